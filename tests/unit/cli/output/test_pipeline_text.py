import pyarrow as pa
import pytest

from dagster_ckpt.cli.output import amounts
from dagster_ckpt.cli.output.pipeline_text import operator_line, source_line
from dagster_ckpt.ids import Epoch, StreamUuid, Term
from dagster_ckpt.operators import RunningAggregate, agg
from dagster_ckpt.operators.joins.interval.interval_join import IntervalJoin
from dagster_ckpt.operators.rows.changes_from import ChangesFrom
from dagster_ckpt.operators.rows.deduplicate import Deduplicate
from dagster_ckpt.operators.rows.mirror import Mirror
from dagster_ckpt.operators.shared.window_kinds import Hopping, Session
from dagster_ckpt.operators.windows.session_aggregate import SessionAggregate
from dagster_ckpt.operators.windows.window_aggregate import WindowAggregate
from dagster_ckpt.protocol.epochs.upstream import FORMAT, UpstreamPosition
from dagster_ckpt.protocol.manifest.manifest import (
    FileSeen,
    IndexedList,
    IndexRef,
    InputSpec,
    Pipeline,
    SourceIdentity,
    SourcePosition,
)

HOUR = 3_600_000_000
TIME = pa.timestamp("us", "UTC")
FLIGHTS = InputSpec((), pa.schema([("origin", pa.string()), ("hour", TIME), ("delay", pa.int64())]))
CHANGES = InputSpec((), FLIGHTS.schema.append(pa.field("_change_type", pa.string())))
KINDS = InputSpec((), FLIGHTS.schema.append(pa.field("_kind", pa.string())))
WEATHER = InputSpec((), pa.schema([("airport", pa.string()), ("taken", TIME), ("wind", pa.float64())]))
AGGREGATES = {"flights": agg.count(), "worst": agg.max("delay")}


@pytest.mark.parametrize(
    ("pipeline", "words"),
    [
        (
            RunningAggregate.build(("origin",), AGGREGATES, FLIGHTS).pipeline,
            "aggregate flights=count(), worst=max(delay)",
        ),
        (
            WindowAggregate.build(("origin",), AGGREGATES, FLIGHTS, "hour", Hopping(HOUR, HOUR // 4)).pipeline,
            "window flights=count(), worst=max(delay) window=hopping(size=1 h, slide=15 min) event_time=hour late=drop",
        ),
        (
            SessionAggregate.build(("origin",), AGGREGATES, FLIGHTS, "hour", Session(HOUR), True).pipeline,
            "session flights=count(), worst=max(delay) window=session(gap=1 h) event_time=hour early=true late=drop",
        ),
        (
            IntervalJoin.build([FLIGHTS, WEATHER], [("origin",), ("airport",)], ["hour", "taken"], -HOUR, 0).pipeline,
            "interval_join keys=origin|airport event_times=hour|taken lower=-1 h upper=0 ms how=inner late=drop",
        ),
        (
            Deduplicate.build(("origin",), FLIGHTS, "first", "hour", HOUR).pipeline,
            "deduplicate keep=first event_time=hour expire_after=1 h late=drop",
        ),
        (
            Mirror.build(("origin",), CHANGES, "delay > 15").pipeline,
            "the upstream's table where delay > 15",
        ),
        (
            ChangesFrom.build(("origin",), KINDS, ("origin",), ("delay",), (), "hour", HOUR).pipeline,
            "changes_from sequence=delay time=hour deletes_expire_after=1 h",
        ),
        (Mirror.build(("origin",), CHANGES, None).pipeline, "the upstream's table as it is"),
    ],
)
def test_a_line_says_what_an_operator_does(pipeline: Pipeline, words: str) -> None:
    assert operator_line(pipeline) == words


@pytest.mark.parametrize(
    ("span_us", "words"), [(0, "0 ms"), (250, "250 us"), (-1_500_000, "-1.5 s"), (HOUR + 60_000_000, "1 h 1 min")]
)
def test_a_span_may_be_negative_or_shorter_than_a_millisecond(span_us: int, words: str) -> None:
    assert amounts.span(span_us) == words


FILES = SourceIdentity("parquet", "file:///data/departures")
KAFKA = SourceIdentity("kafka", "broker:9092", (("subscribe", "departures"),))
TOPIC = SourceIdentity("kafka", "", (("subscribe", "departures"),))
UPSTREAM = SourceIdentity(FORMAT, "delays", (("read", "table"),))
SEEN = IndexedList((IndexRef("index/a", 40, 9, "c"),), (FileSeen("f1", 1), FileSeen("f2", 2)))


def at(epoch: int, part: int = 0, parts: int = 0) -> str:
    return UpstreamPosition(StreamUuid("a" * 32), Epoch(epoch), part, parts, Term(3)).encode()


@pytest.mark.parametrize(
    ("position", "words"),
    [
        (SourcePosition(FILES), "parquet file:///data/departures, no position yet"),
        (SourcePosition(FILES, '{"logOffset": 3}', files=SEEN), "parquet file:///data/departures, 42 files seen"),
        (
            SourcePosition(KAFKA, '{"departures":{"10":7,"2":9,"0":41},"arrivals":{"0":3}}'),
            "kafka broker:9092, next offset by partition: arrivals 0: 3; departures 0: 41, 2: 9, 10: 7",
        ),
        (SourcePosition(TOPIC, '{"departures":{"0":41}}'), "kafka, next offset by partition: departures 0: 41"),
        (SourcePosition(UPSTREAM, at(41)), "stream delays, read up to epoch 41"),
        (
            SourcePosition(UPSTREAM, at(41, 3, 8)),
            "stream delays, its table at epoch 41 is being read: 3 of 8 parts",
        ),
        (SourcePosition(UPSTREAM, at(41, 8, 8)), "stream delays, read up to epoch 41"),
        (SourcePosition(UPSTREAM, at(0)), "stream delays, nothing read yet"),
    ],
)
def test_line_of_a_source(position: SourcePosition, words: str) -> None:
    assert source_line(position) == words
