"""Errors without the passwords and tokens of the addresses in them: Dagster stores and shows errors."""

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from dagster_ckpt.errors import CheckpointError
from dagster_ckpt.protocol.redaction import redacted_text, shown_messages


@contextmanager
def secrets_left_out() -> Iterator[None]:
    """Within it, an error with a secret in its message, or in that of a cause, is raised without secret and cause.

    An error from Spark or the system becomes a `CheckpointError`; all others are raised unchanged.
    """
    try:
        yield
    except (CheckpointError, PySparkException, Py4JError, OSError) as error:
        if all(redacted_text(message) == message for message in shown_messages(error)):
            raise
        kind = type(error) if isinstance(error, CheckpointError) else CheckpointError
        raise kind(redacted_text(str(error))).with_traceback(error.__traceback__) from None
