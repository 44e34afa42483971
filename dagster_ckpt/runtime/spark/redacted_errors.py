"""Errors without the passwords and tokens of the addresses in them: Dagster stores and shows errors."""

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from dagster_ckpt.errors import CheckpointError
from dagster_ckpt.protocol.redaction import redacted_text


@contextmanager
def secrets_left_out() -> Iterator[None]:
    """Within it, an error with a secret in its message, or in that of a cause, is raised without secret and cause.

    An error from Spark or the system becomes a `CheckpointError`; all others are raised unchanged.
    """
    try:
        yield
    except (CheckpointError, PySparkException, Py4JError, OSError) as error:
        if all(redacted_text(message) == message for message in _messages(error)):
            raise
        kind = type(error) if isinstance(error, CheckpointError) else CheckpointError
        raise kind(redacted_text(str(error))).with_traceback(error.__traceback__) from None


def _messages(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
