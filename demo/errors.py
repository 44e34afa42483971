"""What can go wrong in the demo, told to the person who watches it."""


class DemoError(Exception):
    """The demo cannot go on; the message says why."""
