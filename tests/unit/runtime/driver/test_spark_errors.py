import re
from subprocess import TimeoutExpired
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, StreamingQueryException

from dagster_ckpt.errors import CheckpointDeclinedError, CheckpointError, OutsideCodeError
from dagster_ckpt.protocol.manifest.manifest import SourceIdentity
from dagster_ckpt.runtime.declared.sources import KafkaOptions, StreamSource
from dagster_ckpt.runtime.driver.spark_errors import explain_error, jvm_is_gone, missing_input_named

SOURCES = [StreamSource(SourceIdentity("parquet", "file:/data/inbox"), 0, (0,), reads_files=True)]
PLAN = "\n=== Streaming Query ===\nIdentifier: flights\nCurrent Committed Offsets: {}"
MISSING = "[PATH_NOT_FOUND] Path does not exist: s3a://me:secret@bucket/in.box. SQLSTATE: 42K03"

KAFKA = KafkaOptions((("bootstrap.servers", "broker:9092"), ("sasl.jaas.config", 'password="secret"')))
TOPIC = StreamSource(
    SourceIdentity("kafka", "", (("subscribe", "departures"),)), 0, (0,), reads_files=False, kafka=KAFKA
)


class Session:
    """A Spark session on a host where Hadoop finds the folders `there`."""

    def __init__(self, *there: str, answers: bool = True) -> None:
        self._there = there
        self._answers = answers
        self._jvm = self.org = self.apache = self.hadoop = self.fs = self
        self._jsparkSession = self

    def sessionState(self) -> "Session":  # noqa: N802  (Spark's name)
        return self

    def newHadoopConf(self) -> None: ...  # noqa: N802  (Spark's name)

    def Path(self, path: str) -> "Session":  # noqa: N802  (Hadoop's name)
        self.path = path
        return self

    def getFileSystem(self, conf: None) -> "Session":  # noqa: N802  (Hadoop's name)
        return self

    def globStatus(self, path: "Session") -> list[str]:  # noqa: N802  (Hadoop's name)
        if not self._answers:
            raise Py4JError("access denied")
        return [there for there in self._there if there == path.path]


def error_of(error: Exception, *there: str, answers: bool = True) -> Exception:
    session: Any = Session(*there, answers=answers)
    return explain_error("flights", SOURCES, error, session)


def test_a_missing_path_is_named_with_what_to_do() -> None:
    failed = StreamingQueryException(f"[STREAM_FAILED] Query [id = 1] terminated with exception: {MISSING} SQLSTATE: X")
    error = error_of(failed, "file:/data/inbox")
    assert type(error) is OutsideCodeError
    assert "Restore it: the stream goes on" in str(error)
    assert str(error).endswith("asset=flights, path=s3a://bucket/in.box")


@pytest.mark.parametrize("answers", [True, False])
def test_a_folder_that_spark_does_not_name_is_looked_for(*, answers: bool) -> None:
    failed = StreamingQueryException("[STREAM_FAILED] terminated with exception: Option 'basePath' not found" + PLAN)
    named = str(error_of(failed, answers=answers)).endswith("asset=flights, path=file:/data/inbox")
    assert named == answers


def test_any_other_end_of_the_query_names_asset_sources_and_reason() -> None:
    text = "[STREAM_FAILED] the schema of the topic is gone"
    error = error_of(StreamingQueryException(text + PLAN), "file:/data/inbox")
    assert type(error) is CheckpointError
    assert str(error).endswith(
        "asset=flights, sources=['parquet file:/data/inbox'], reason=[STREAM_FAILED] the schema of the topic is gone"
    )


@pytest.mark.parametrize("error", [CheckpointDeclinedError("disk full, asset=flights"), ValueError("of the user's")])
def test_errors_that_are_not_sparks_are_raised_as_they_are(error: Exception) -> None:
    assert error_of(error) is error


def test_a_streaming_function_that_reads_a_missing_path_fails_with_the_assets_name() -> None:
    with (
        pytest.raises(CheckpointError, match=r"asset=flights, path=s3a://bucket/in\.box"),
        missing_input_named("flights"),
    ):
        raise AnalysisException(MISSING)
    with pytest.raises(AnalysisException, match="no such column"), missing_input_named("flights"):
        raise AnalysisException("no such column")


class Jvm:
    """The process of a JVM that ends with this status, or goes on; as `SparkContext` holds it."""

    def __init__(self, status: int | None) -> None:
        self._status = status
        self.sparkContext = self._gateway = self.proc = self

    def wait(self, timeout: float) -> int:
        if self._status is None:
            raise TimeoutExpired("java", timeout)
        return self._status


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (52, r"It ran out of memory: .*spark\.driver\.memory.* asset=flights, exit_status=52, reason="),
        (-9, r"committed\. Start again\. asset=flights, exit_status=-9, reason="),
        (None, r"committed\. Start again\. asset=flights, exit_status=None, reason="),
    ],
)
def test_an_out_of_memory_jvm_is_named_with_what_to_do(status: int | None, said: str) -> None:
    error = jvm_is_gone("flights", Py4JError("connection lost"), Jvm(status))  # type: ignore[arg-type]
    assert isinstance(error, CheckpointError)
    assert re.search(said + "connection lost$", str(error)), error


def test_a_jvm_that_another_process_started_is_not_asked_for_its_end() -> None:
    jvm = Jvm(52)
    del jvm.proc
    error = jvm_is_gone("flights", Py4JError("connection lost"), jvm)  # type: ignore[arg-type]
    assert "Start again. asset=flights, exit_status=None" in str(error)


class TextInJvmError(Py4JError):  # type: ignore[misc]  # py4j has no types
    """As py4j's error of an exception in Java: its text must be fetched."""

    def __str__(self) -> str:
        raise ConnectionRefusedError("no JVM")


def test_an_error_whose_text_was_in_the_jvm_is_named_by_its_class() -> None:
    error = jvm_is_gone("flights", TextInJvmError(), Jvm(52))  # type: ignore[arg-type]
    assert str(error).endswith("exit_status=52, reason=TextInJvmError")


def test_a_topic_is_named_with_its_brokers_and_no_password() -> None:
    session: Any = Session()
    error = explain_error("flights", [TOPIC], StreamingQueryException(f"Timed out waiting for a node{PLAN}"), session)
    assert str(error).endswith(
        "sources=['kafka subscribe=departures at broker:9092'], reason=Timed out waiting for a node"
    )
