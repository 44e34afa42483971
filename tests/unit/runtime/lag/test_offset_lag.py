"""The lag of sources that report offsets: Spark's progress as its JSON, and what it means."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from dagster_ckpt.protocol.manifest.manifest import SourceIdentity
from dagster_ckpt.runtime.declared.sources import Source
from dagster_ckpt.runtime.lag.lag import SourceLag
from dagster_ckpt.runtime.lag.offset_lag import OffsetHistory, partitions_of
from dagster_ckpt.runtime.lag.source_lags import QueryView, offset_lag

TEN = 1_700_000_000_000  # 2023-11-14T22:13:20Z
KAFKA = Source(SourceIdentity("kafka", "", (("subscribe", "trips"),)), 0, (0,), reads_files=False)
RATE = Source(SourceIdentity("rate", "", ()), 0, (0,), reads_files=False)


@dataclass
class JavaSource:
    """A source in the JVM."""

    text: str

    def toString(self) -> str:  # noqa: N802  (Java's name)
        return self.text


def view(second: int, **source: Any) -> QueryView:
    """Spark's progress of a query with a Kafka source, as `StreamingQueryProgress.json` writes it."""
    finds_data = bool(source.pop("finds_data", True))
    description = source.pop("description", "KafkaV2[Subscribe[trips]]")
    progress = {
        "id": "4d1b2a4e-6d28-4b1c-8b3b-6a9e6f0e7c11",
        "runId": "0f0d44c5-5d63-4f5e-8a9c-2d1f1f5f5c10",
        "name": "trips",
        "timestamp": f"2023-11-14T22:13:{20 + second:02d}.000Z",
        "batchId": 7,
        "batchDuration": 812,
        "numInputRows": 40,
        "stateOperators": [],
        "sources": [
            {"description": "FileStreamSource[file:/data/in]", "startOffset": None, "endOffset": {"logOffset": 1}},
            {
                "description": description,
                "startOffset": {"trips": {"0": 90, "1": 40}},
                "endOffset": {"trips": {"0": 100, "1": 50}},
                "numInputRows": 20,
                "metrics": {"avgOffsetsBehindLatest": "12.5", "maxOffsetsBehindLatest": "20"},
                **source,
            },
        ],
        "sink": {"description": "ForeachBatchSink", "numOutputRows": -1},
    }
    return QueryView((JavaSource(description),), json.loads(json.dumps(progress)), finds_data)


def kafka(history: OffsetHistory, second: int, latest: object, committed: object) -> SourceLag:
    text = None if committed is None else json.dumps(committed)
    return offset_lag(KAFKA, view(second, latestOffset=latest), text, history)


def test_rows_behind_are_those_between_the_committed_and_the_newest_offset_of_each_partition() -> None:
    committed = {"trips": {"0": 100, "1": 50}}
    found = kafka(OffsetHistory(), 0, {"trips": {"0": 120, "1": 55}}, committed)
    assert found == SourceLag(rows=25, since_ms=TEN)
    new_partition = kafka(OffsetHistory(), 0, {"trips": {"0": 100, "1": 50, "2": 7}}, committed)
    assert new_partition.rows == 7
    assert kafka(OffsetHistory(), 0, {"trips": {"0": 30}}, None).rows == 30


def test_nothing_waits_where_all_offsets_are_committed_also_if_spark_looked_before_the_commit() -> None:
    for latest in ({"trips": {"0": 100, "1": 50}}, {"trips": {"0": 90, "1": 50}}):
        found = kafka(OffsetHistory(), 0, latest, {"trips": {"0": 100, "1": 50}})
        assert found == SourceLag(rows=0)


def test_rows_wait_since_spark_first_saw_more_than_is_committed() -> None:
    history = OffsetHistory()
    offset = [{"trips": {"0": at}} for at in (100, 110, 130)]
    assert kafka(history, 0, offset[0], offset[0]).since_ms is None
    assert kafka(history, 10, offset[1], offset[0]) == SourceLag(rows=10, since_ms=TEN + 10_000)
    assert kafka(history, 20, offset[2], offset[0]) == SourceLag(rows=30, since_ms=TEN + 10_000)
    assert kafka(history, 30, offset[2], offset[1]) == SourceLag(rows=20, since_ms=TEN + 20_000)
    assert kafka(history, 39, offset[2], offset[2]) == SourceLag(rows=0)


def test_a_history_that_grows_for_days_stays_small_and_keeps_its_oldest_look() -> None:
    history, committed = OffsetHistory(), partitions_of({"trips": {"0": 0}})
    found = [history.lag(partitions_of({"trips": {"0": at}}), committed, TEN + at) for at in range(1, 5_000)]
    assert found[-1] == SourceLag(rows=4_999, since_ms=TEN + 1)
    assert len(history._looks) <= 1_001


def test_of_any_other_source_all_since_sparks_last_look_may_wait() -> None:
    rate = {"description": "RateStreamV2[rowsPerSecond=1]", "latestOffset": 7, "endOffset": 7}
    busy = offset_lag(RATE, view(5, finds_data=True, **rate), "7", OffsetHistory())
    assert busy == SourceLag(since_ms=TEN + 5_000)
    assert offset_lag(RATE, view(5, finds_data=False, **rate), "7", OffsetHistory()) == SourceLag()
    behind = offset_lag(RATE, view(5, finds_data=False, **{**rate, "latestOffset": 9}), "7", OffsetHistory())
    assert behind == SourceLag(since_ms=TEN + 5_000)


def test_before_spark_has_looked_a_source_counts_nothing() -> None:
    assert offset_lag(KAFKA, QueryView((), None, finds_data=False), None, OffsetHistory()) == SourceLag()


@pytest.mark.parametrize("offset", ['{"logOffset": 3}', "[1]", "7"])
def test_an_offset_of_another_source_is_refused(offset: str) -> None:
    with pytest.raises(ValueError, match="no offset of Kafka's"):
        partitions_of(offset)
