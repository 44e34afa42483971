"""Addresses that hold a password: resolved when a connection is made, and shown without it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from dagster_ckpt.errors import CheckpointError, OutsideCodeError
from dagster_ckpt.protocol.redaction import (
    escape_user,
    redacted_text,
    secret_parts,
    secret_parts_within,
    shown_messages,
    split_user,
    without_parts,
)


class UnsetVariableError(OutsideCodeError):
    """An environment variable that a destination names is not set."""


def resolve(text: str) -> str:
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


def connection_options(options: Mapping[str, str]) -> dict[str, str]:
    """Options as a library is given them: resolved, and those that are addresses with the user escaped."""
    return {name: escape_user(resolve(value)) for name, value in options.items()}


def public_address(url: str) -> str:
    """An address without user, password, parameters and fragment."""
    scheme, _, rest = split_user(url)
    return scheme + rest.partition("?")[0].partition("#")[0].partition(";")[0]


@contextmanager
def secrets_hidden(options: Mapping[str, object]) -> Iterator[None]:
    """Within it, an error that shows a secret of these options, or whose cause does, is raised without both.

    Every call of a library that was given the options is made in one: libraries put what they are given into errors.
    """
    try:
        yield
    except Exception as error:
        if all(without_secrets(message, options) == message for message in shown_messages(error)):
            raise
        kind = type(error) if isinstance(error, CheckpointError) else CheckpointError
        raise kind(without_secrets(str(error), options)).with_traceback(error.__traceback__) from None


def without_secrets(text: str, options: Mapping[str, object]) -> str:
    """A message of a library that was given these options: each value in it is shown as the option's name.

    In a literal address only user, password and parameters are replaced; other addresses in the message are redacted.
    """
    for name, option in options.items():
        if not isinstance(option, str):  # as an EnvVar is; else a number or a switch
            continue
        value = resolve(option)
        is_shown = value is option and bool(split_user(value)[0])
        parts = secret_parts_within(value) if is_shown else secret_parts(value)
        text = without_parts(text, parts, f"<{name}>")
    return redacted_text(text)
