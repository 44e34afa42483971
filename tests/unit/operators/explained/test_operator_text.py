import pyarrow as pa
import pytest

from dagster_ckpt.operators import RunningAggregate, agg, over
from dagster_ckpt.operators.explained.operator_text import operator_line
from dagster_ckpt.operators.joins.interval_join import IntervalJoin
from dagster_ckpt.operators.rows.changes_from import ChangesFrom
from dagster_ckpt.operators.rows.deduplicate import Deduplicate
from dagster_ckpt.operators.rows.materializer import Materializer
from dagster_ckpt.operators.rows.over.over import OverPartition
from dagster_ckpt.operators.shared.window_kinds import Hopping, Session
from dagster_ckpt.operators.step import OperatorStep
from dagster_ckpt.operators.windows.session_aggregate import SessionAggregate
from dagster_ckpt.operators.windows.window_aggregate import WindowAggregate
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline

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
            Materializer.build(("origin",), CHANGES, "delay > 15").pipeline,
            "the upstream's table where delay > 15",
        ),
        (
            ChangesFrom.build(("origin",), KINDS, ("origin",), ("delay",), (), "hour", HOUR).pipeline,
            "changes_from sequence=delay time=hour deletes_expire_after=1 h",
        ),
        (Materializer.build(("origin",), CHANGES, None).pipeline, "the upstream's table as it is"),
        (
            OverPartition.build(
                ("origin",), FLIGHTS, "hour asc", {"before": over.lag("delay"), "n": over.count()}
            ).pipeline,
            "over before=lag(delay), n=count() by=`hour` asc nulls first",
        ),
        (
            RunningAggregate.build(
                ("origin",), {"last": agg.last(["delay", "hour"], by="hour"), "r": agg.corr("delay", "delay")}, FLIGHTS
            ).pipeline,
            "aggregate last=last(delay, hour, hour), r=corr(delay, delay)",
        ),
        (
            OperatorStep.of(RunningAggregate.build(("origin",), AGGREGATES, FLIGHTS))
            .with_names({"airport": "origin", "n": "flights", "longest": "worst"})
            .pipeline,
            "aggregate n=count(), longest=max(delay)",
        ),
    ],
)
def test_a_line_says_what_an_operator_does(pipeline: Pipeline, words: str) -> None:
    assert operator_line(pipeline) == words
