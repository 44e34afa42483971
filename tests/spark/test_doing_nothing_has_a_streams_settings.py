"""A trigger that does nothing measures our overhead only under the settings of a real stream."""

from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.inputs import Inbox
from benchmarks.nothing import Nothing
from benchmarks.ours import Ours
from benchmarks.plan import Spread
from benchmarks.session import rivals_session

_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"


def test_doing_nothing_and_a_stream_have_equal_settings_while_they_run(spark: SparkSession, tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "inbox", 10, Spread.UNIFORM)
    inbox.put_each_key(10)
    ours, nothing = (
        Ours.totals(spark, inbox.folder, tmp_path / "ours"),
        Nothing(spark, inbox.folder, tmp_path / "nothing"),
    )
    assert len(ours.work()) == len(nothing.work()) == 1
    assert dict(nothing.session.conf.getAll) == dict(ours.session.conf.getAll)
    assert nothing.session.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == "16384"


def test_the_rivals_need_not_count_bytes_either(spark: SparkSession, tmp_path: Path) -> None:
    nothing = Nothing(spark, Inbox(tmp_path / "inbox", 10, Spread.UNIFORM).folder, tmp_path / "nothing")
    assert rivals_session(spark).conf.get(_BYTES) == nothing.session.conf.get(_BYTES)
