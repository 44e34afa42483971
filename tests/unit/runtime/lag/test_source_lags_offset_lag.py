"""The lag of sources that report offsets: topics as brokers have them, and Spark's progress as its JSON."""

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import pytest

from dagster_ckpt.protocol.epochs.topic_offsets import Offsets, TopicsNow, parse_offsets
from dagster_ckpt.protocol.manifest.manifest import SourceIdentity
from dagster_ckpt.runtime.declared.sources import KafkaOptions, StreamSource
from dagster_ckpt.runtime.lag.lag import SourceLag
from dagster_ckpt.runtime.lag.source_lags import OffsetHistory, QueryView, lag_of_any, source_progress, topics_lag

TEN = 1_700_000_000_000
KAFKA = StreamSource(
    SourceIdentity("kafka", "", (("subscribe", "trips"),)), 0, (0,), reads_files=False, kafka=KafkaOptions(())
)


@dataclass
class Brokers:
    """What the brokers have: the end of each partition, its beginning if that is not 0, the oldest unread timestamp."""

    ends: Offsets
    begins: Offsets = field(default_factory=dict)
    oldest: int | None = None
    asked: list[Offsets] = field(default_factory=list)

    def now(self, source: StreamSource, names: Collection[str]) -> TopicsNow:
        assert source is KAFKA
        assert set(names) == {"trips"}
        return TopicsNow({"trips": "id"}, {**dict.fromkeys(self.ends, 0), **self.begins}, self.ends)

    def oldest_ms(self, source: StreamSource, unread: Offsets) -> int | None:
        self.asked.append(unread)
        return self.oldest if unread else None


def trips(**offsets: int) -> Offsets:
    return {("trips", int(name[1:])): at for name, at in offsets.items()}


def lag(
    history: OffsetHistory, second: int, brokers: Brokers, committed: Offsets, latest: dict[str, Any] | None = None
) -> SourceLag:
    return topics_lag(KAFKA, committed, latest, brokers, history, TEN + second * 1_000)


def test_rows_behind_are_those_between_the_committed_and_the_newest_offset_of_each_partition() -> None:
    brokers = Brokers(trips(p0=120, p1=55, p2=50), oldest=TEN - 9)
    assert lag(OffsetHistory(), 0, brokers, trips(p0=100, p1=50, p2=50)) == SourceLag(rows=25, since_ms=TEN - 9)
    assert brokers.asked == [trips(p0=100, p1=50)], "read where something waits, and nowhere else"


def test_a_partition_is_counted_if_spark_has_found_it_or_it_is_committed() -> None:
    brokers = Brokers(trips(p0=100, p1=7, p2=9), begins=trips(p1=4))
    assert lag(OffsetHistory(), 0, brokers, trips(p0=90)).rows == 10, "others of the topic may not be the stream's"
    assert lag(OffsetHistory(), 0, brokers, trips(p0=90), {"trips": {"0": 95, "1": 6}}).rows == 13


def test_nothing_waits_where_all_offsets_are_committed() -> None:
    assert lag(OffsetHistory(), 0, Brokers(trips(p0=100)), trips(p0=100)) == SourceLag(rows=0)
    assert lag(OffsetHistory(), 0, Brokers(trips(p0=90)), trips(p0=100)) == SourceLag(rows=0)


def test_before_a_stream_has_begun_its_lag_is_not_known() -> None:
    with pytest.raises(LookupError):
        lag(OffsetHistory(), 0, Brokers({}), {})


def test_rows_without_timestamps_wait_since_the_first_look_that_found_more_than_is_committed() -> None:
    history = OffsetHistory()
    offset = [trips(p0=at) for at in (100, 110, 130)]
    assert lag(history, 0, Brokers(offset[0]), offset[0]).since_ms is None
    assert lag(history, 10, Brokers(offset[1]), offset[0]) == SourceLag(rows=10, since_ms=TEN + 10_000)
    assert lag(history, 20, Brokers(offset[2]), offset[0]) == SourceLag(rows=30, since_ms=TEN + 10_000)
    assert lag(history, 30, Brokers(offset[2]), offset[1]) == SourceLag(rows=20, since_ms=TEN + 20_000)
    assert lag(history, 39, Brokers(offset[2]), offset[2]) == SourceLag(rows=0)


def test_a_history_that_grows_for_days_stays_small_and_keeps_its_oldest_look() -> None:
    history, committed = OffsetHistory(), parse_offsets({"trips": {"0": 0}})
    found = [history.lag(parse_offsets({"trips": {"0": at}}), committed, TEN + at) for at in range(1, 5_000)]
    assert found[-1] == SourceLag(rows=4_999, since_ms=TEN + 1)
    assert len(history._looks) <= 1_001


def test_of_any_other_source_all_since_sparks_last_look_may_wait() -> None:
    assert lag_of_any({"latestOffset": 7, "endOffset": 7}, TEN, finds_data=True) == SourceLag(since_ms=TEN)
    assert lag_of_any({"latestOffset": 7, "endOffset": 7}, TEN, finds_data=False) == SourceLag()
    assert lag_of_any({"latestOffset": 9, "endOffset": 7}, TEN, finds_data=False) == SourceLag(since_ms=TEN)


@dataclass
class JavaSource:
    """A source in the JVM."""

    text: str

    def toString(self) -> str:  # noqa: N802  (Java's name)
        return self.text


def test_sparks_progress_names_a_source_by_its_description() -> None:
    sources = [
        {"description": "FileStreamSource[file:/data/in]", "latestOffset": None},
        {"description": "KafkaV2[Subscribe[trips]]", "latestOffset": {"trips": {"0": 120}}},
    ]
    view = QueryView((JavaSource("KafkaV2[Subscribe[trips]]"),), json.loads(json.dumps({"sources": sources})), True)
    assert source_progress(KAFKA, view) == sources[1]
    assert source_progress(KAFKA, QueryView((), None, finds_data=False)) == {}
