"""Spark's errors as ours: with the asset, what could not be read, and what to do; without passwords and tokens.

Dagster stores and shows errors.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from subprocess import Popen, TimeoutExpired
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from dagster_ckpt.errors import CheckpointError, OutsideCodeError
from dagster_ckpt.protocol.redaction import redacted_folder, redacted_text, shown_messages
from dagster_ckpt.runtime.declared.sources import StreamSource, source_text

_MISSING = re.compile(r"\[PATH_NOT_FOUND\] Path does not exist: (.+?)\.(?: SQLSTATE|\s|$)")

_OUT_OF_MEMORY = 52
"""What Spark ends a JVM with that has no memory left."""
_EXIT_S_MAX = 5.0


def explain_error(asset: str, sources: Sequence[StreamSource], error: Exception, session: SparkSession) -> Exception:
    """The error to raise for one that ended a stream's query; an error that is not from Spark is returned unchanged.

    Spark reports a missing folder in several ways, some without a path ("Option 'basePath' not found"): so the folders
    are looked for.
    """
    if not isinstance(error, PySparkException):
        return error
    reason = reason_text(error)
    found = _MISSING.search(reason)
    missing = [found[1]] if found is not None else list(_missing_folders(sources, session))
    if missing:
        return _missing(asset, missing)
    return CheckpointError(
        "Spark ended the query that runs the stream; nothing of the epoch in work was committed. Remove the cause and "
        f"start again: it goes on from its last epoch. asset={asset}, "
        f"sources={list(map(_with_brokers, sources))}, reason={reason}"
    )


def _with_brokers(source: StreamSource) -> str:
    """`kafka subscribe=departures at broker:9092`: a broker that does not answer may be another than was meant."""
    name = source_text(source.identity)
    return name if source.kafka is None else f"{name} at {source.kafka.brokers}"


def reason_text(error: Exception) -> str:
    """The text of an error, without the pages of offsets and plans that Spark adds to that of a query."""
    return str(error).partition("\n=== Streaming Query ===")[0]


def jvm_is_gone(asset: str, error: Exception, session: SparkSession) -> CheckpointError:
    """What to raise where the JVM of the session no longer answers; of one that ran out of memory it says so."""
    process = getattr(session.sparkContext._gateway, "proc", None)  # noqa: SLF001  (None: another process started it)
    status = None if process is None else _exit_status(process)
    what_to_do = "Start again."
    if status == _OUT_OF_MEMORY:
        what_to_do = (
            "It ran out of memory: give Spark more with spark.driver.memory, or an epoch less at once: fewer files, or "
            "smaller rows."
        )
    return CheckpointError(
        "Spark's JVM is gone, and this process cannot go on without it; nothing of the epoch in progress was "
        f"committed. {what_to_do} asset={asset}, exit_status={status}, reason={_text_without_jvm(error)}"
    )


def _text_without_jvm(error: Exception) -> str:
    try:
        return str(error)
    except (Py4JError, OSError):  # its text was in the JVM
        return type(error).__name__


def _exit_status(process: "Popen[bytes]") -> int | None:
    """What a process ended with; None where it has not ended, though it may no longer answer."""
    try:
        return process.wait(_EXIT_S_MAX)
    except TimeoutExpired:
        return None


@contextmanager
def missing_input_named(asset: str) -> Iterator[None]:
    """Within it a missing input raises an error with the asset and the path."""
    try:
        yield
    except AnalysisException as error:
        found = _MISSING.search(str(error))
        if found is None:
            raise
        # In its place, not caused by it: a reader of the innermost error alone must see the asset and what to do.
        raise _missing(asset, [found[1]]).with_traceback(error.__traceback__) from None


def _missing(asset: str, paths: Sequence[str]) -> CheckpointError:
    return OutsideCodeError(
        "what the stream reads is not there; nothing of the epoch in work was committed. Restore it: the stream "
        "goes on from its last epoch, and reads no file twice. "
        f"asset={asset}, path={', '.join(map(redacted_folder, paths))}"
    )


def _missing_folders(sources: Sequence[StreamSource], session: SparkSession) -> Iterator[str]:
    """The folders and patterns of file sources that match nothing now, as far as Hadoop can list them."""
    jvm: Any = session._jvm  # noqa: SLF001  (Spark exposes it nowhere else)
    conf = session._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001
    for address in (source.path or source.identity.address for source in sources if source.reads_files):
        with suppress(Py4JError):
            path = jvm.org.apache.hadoop.fs.Path(address)
            if not path.getFileSystem(conf).globStatus(path):
                yield address


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
