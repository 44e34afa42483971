"""Addresses that hold a password: resolved when a connection is made, and shown without it."""

from urllib.parse import urlsplit


def resolved(text: str) -> str:
    """The text, or what the environment variable has that it stands for (`dagster.EnvVar`)."""
    get_value = getattr(text, "get_value", None)
    return text if get_value is None else str(get_value())


def shown(url: str) -> str:
    """A URL without user, password, parameters and fragment."""
    parts = urlsplit(url)
    host = "" if parts.hostname is None else parts.hostname
    port = "" if parts.port is None else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}{parts.path}"
