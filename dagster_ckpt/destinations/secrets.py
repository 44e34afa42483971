"""Addresses that hold a password: resolved when a connection is made, and shown without it."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from dagster_ckpt.errors import OutsideCodeError
from dagster_ckpt.protocol.redaction import redacted_text

_SECRET_LENGTH = 4
"""A shorter value is a switch or a number, and part of too many words."""


class UnsetVariableError(OutsideCodeError):
    """An environment variable that a destination names is not set."""


def resolved(text: str) -> str:
    """The text, or the value of the environment variable that it stands for (`dagster.EnvVar`).

    Raises `UnsetVariableError` where the variable is not set.
    """
    get_value = getattr(text, "get_value", None)
    if get_value is None:
        return text
    value: str | None = get_value()
    if value is None:
        raise UnsetVariableError(
            "an environment variable that a destination names is not set: set it where the delivery runs. "
            f"variable={getattr(text, 'env_var_name', None)}"
        )
    return value


def shown(url: str) -> str:
    """A URL without user, password, parameters and fragment."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def without_secrets(text: str, options: Mapping[str, str]) -> str:
    """A message of a library that was given these options: each value in it is shown as the option's name.

    Of an address, only the password and the parameters are; addresses in the message are redacted.
    """
    for name, option in options.items():
        value = resolved(option)
        address = urlsplit(value) if "://" in value else None
        parts = [] if address is None else [address.password, address.query]
        whole = value if address is None or value is not option else None  # a literal address may be shown
        for secret in (whole, *parts):
            if secret is not None and len(secret) >= _SECRET_LENGTH:
                text = text.replace(secret, f"<{name}>")
    return redacted_text(text)
