"""Addresses that hold a password: resolved when a connection is made, and shown without it."""

from urllib.parse import urlsplit

from dagster_ckpt.errors import InvalidPipelineError


class UnsetVariableError(InvalidPipelineError):
    """An environment variable that a destination names is not set."""


def resolved(text: str) -> str:
    """The text, or what the environment variable has that it stands for (`dagster.EnvVar`).

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
