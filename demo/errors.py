"""What can go wrong in the demo, as a message to the user."""


class DemoError(Exception):
    """The demo cannot continue; the message says why."""
