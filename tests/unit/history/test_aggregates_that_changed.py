"""A stream whose aggregates have changed goes on with its state, as far as that has what they need."""

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from dagster_ckpt.errors import FencedError, IncompatibleStateError
from dagster_ckpt.history import CheckpointStore, StreamHistory
from dagster_ckpt.lsm.compaction.compaction import CompactionLimits
from dagster_ckpt.operators import AppendOnly, Operator, RunningAggregate, agg
from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.operators.begun import begun
from dagster_ckpt.operators.shared.accumulators.since import SINCE
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from dagster_ckpt.protocol.transitions.later_columns import beginnings, next_beginning
from tests.unit.history.made_streams import DEPARTURES, SOURCE, MadeStream, departures

NAME, DELAY = "delays", "dep_delay"
Rows = dict[str | None, dict[str, object]]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return tmp_path.as_uri()


def of(schema: pa.Schema = DEPARTURES, **aggregates: Aggregation) -> Operator:
    return RunningAggregate.build(("carrier",), aggregates, InputSpec((SOURCE,), schema))


def changed(stream: MadeStream, operator: Operator) -> None:
    """Open the stream with another operator, as a run does."""
    newest = stream.writer.manifest
    resolved = begun(operator, None, newest.pipeline.steps, next_beginning(newest))
    assert not isinstance(resolved, AppendOnly)
    stream.operator = resolved
    stream.open()


def table(url: str, epoch: int | None = None) -> Rows:
    rows = history(url).read(epoch).to_pylist()
    return {row.pop("carrier"): row for row in rows}


def history(url: str) -> StreamHistory:
    return CheckpointStore(url).stream(NAME)


def test_an_aggregate_is_dropped_and_one_comes_that_needs_nothing_new(url: str) -> None:
    stream = MadeStream(url, NAME, of(flights=agg.count(), mean=agg.avg("dep_delay"), worst=agg.max("dep_delay")))
    first = stream.commit(departures({"UA": [1.0, 5.0], "AA": [3.0]}))
    changed(stream, of(mean_delay=agg.avg("dep_delay"), total=agg.sum("dep_delay"), rows=agg.count()))
    second = stream.commit(departures({"UA": [6.0]}))
    assert table(url, first) == {
        "UA": {"flights": 2, "mean": 3.0, "worst": 5.0},
        "AA": {"flights": 1, "mean": 3.0, "worst": 3.0},
    }
    assert table(url) == {
        "UA": {"mean_delay": 4.0, "total": 12.0, "rows": 3},
        "AA": {"mean_delay": 3.0, "total": 3.0, "rows": 1},
    }
    changes = history(url).changes(after=first).to_pylist()
    assert [(each["_change_type"], each["total"], each["_epoch"]) for each in changes] == [
        ("update_preimage", 6.0, second),
        ("update_postimage", 12.0, second),
    ]
    assert stream.open(from_epoch=first) is not None  # with the new aggregates
    assert table(url)["UA"] == {"mean_delay": 3.0, "total": 6.0, "rows": 2}


def test_one_reader_looks_up_keys_before_and_after_the_change(url: str) -> None:
    """It keeps files open: each is read by the columns that the table has at the epoch."""
    stream = MadeStream(url, NAME, of(flights=agg.count(), worst=agg.max("dep_delay")))
    first = stream.commit(departures({"UA": [1.0, 5.0], "AA": [3.0]}))
    changed(stream, of(rows=agg.count(), longest=agg.max("dep_delay", since="now")))
    second = stream.commit(departures({"UA": [6.0]}))
    reader = history(url)
    for _ in range(2):
        assert reader.get({"carrier": ["AA"]}, first).to_pylist() == [{"carrier": "AA", "flights": 1, "worst": 3.0}]
        assert reader.get({"carrier": ["AA"]}, second).to_pylist() == [{"carrier": "AA", "rows": 1, "longest": None}]


def test_an_aggregate_that_needs_the_past_is_refused_and_named(url: str) -> None:
    stream = MadeStream(url, NAME, of(flights=agg.count()))
    stream.commit(departures({"UA": [1.0]}))
    with pytest.raises(IncompatibleStateError, match=r"has no _max\(dep_delay\), which needs all rows"):
        changed(stream, of(flights=agg.count(), worst=agg.max("dep_delay")))


def test_an_aggregate_begins_now_and_never_again(url: str) -> None:
    stream = MadeStream(url, NAME, of(flights=agg.count()))
    stream.commit(departures({"UA": [1.0], "AA": [2.0]}))
    later = of(flights=agg.count(), since=agg.count(since="now"), worst=agg.max("dep_delay", since="now"))
    changed(stream, later)
    [begins] = beginnings(stream.writer.manifest.pipeline)
    assert table(url) == {
        "UA": {"flights": 1, "since": None, "worst": None},
        "AA": {"flights": 1, "since": None, "worst": None},
    }
    stream.commit(departures({"UA": [0.5], "B6": [4.0]}))
    changed(stream, later)
    assert beginnings(stream.writer.manifest.pipeline) == {begins}
    stream.commit(departures({"UA": [0.25]}))
    assert table(url) == {
        "UA": {"flights": 3, "since": 2, "worst": 0.5},
        "AA": {"flights": 1, "since": None, "worst": None},
        "B6": {"flights": 1, "since": 1, "worst": 4.0},
    }
    assert history(url).read().schema.field("worst").metadata == {SINCE: str(begins).encode()}


def test_an_aggregate_dropped_and_begun_again_knows_nothing_of_its_first_life(url: str) -> None:
    stream = MadeStream(url, NAME, of(flights=agg.count()))
    stream.commit(departures({"UA": [1.0]}))
    later = of(flights=agg.count(), worst=agg.max("dep_delay", since="now"))
    changed(stream, later)
    stream.commit(departures({"UA": [9.0], "AA": [8.0]}))
    changed(stream, of(flights=agg.count()))
    stream.commit(departures({"UA": [1.0]}))
    changed(stream, later)
    stream.commit(departures({"UA": [2.0]}))
    assert table(url) == {"UA": {"flights": 4, "worst": 2.0}, "AA": {"flights": 1, "worst": None}}


def test_compaction_and_a_rollback_over_the_change(url: str) -> None:
    stream = MadeStream(url, NAME, of(flights=agg.count()), limits=CompactionLimits(depth_min=1, depth_max=1))
    first = stream.commit(departures({"UA": [1.0]}))
    later = of(flights=agg.count(), worst=agg.max("dep_delay", since="now"))
    changed(stream, later)
    for delay in range(12):
        stream.commit(departures({"UA": [delay], f"{delay}": [delay]}))
    assert table(url)["UA"] == {"flights": 13, "worst": 11.0}
    stream.open(from_epoch=first)
    assert table(url) == {"UA": {"flights": 1, "worst": None}}
    stream.commit(departures({"UA": [3.0]}))
    assert table(url) == {"UA": {"flights": 2, "worst": 3.0}}


def test_another_run_that_has_gone_on_meanwhile_is_not_forgotten(url: str) -> None:
    stream = MadeStream(url, NAME, of(flights=agg.count()))
    stream.commit(departures({"UA": [1.0]}))
    later = of(flights=agg.count(), worst=agg.max("dep_delay", since="now"))
    stale = begun(later, None, stream.writer.manifest.pipeline.steps, next_beginning(stream.writer.manifest))
    stream.commit(departures({"UA": [2.0]}))
    changed(stream, later)
    stream.commit(departures({"UA": [7.0]}))
    stream.operator = stale
    with pytest.raises(FencedError, match="begin elsewhere"):
        stream.open()
    assert table(url) == {"UA": {"flights": 3, "worst": 7.0}}


@pytest.mark.parametrize(
    ("narrow", "wide", "values"),
    [
        (pa.int32(), pa.int64(), [1, 2]),
        (pa.float32(), pa.float64(), [0.5, 2.25]),
        (pa.decimal128(9, 2), pa.decimal128(20, 3), [Decimal("1.25"), Decimal("2.5")]),
    ],
)
def test_a_column_gets_a_wider_type(narrow: pa.DataType, wide: pa.DataType, values: list[float], url: str) -> None:
    def reading(type_: pa.DataType) -> Operator:
        aggregates = {"total": agg.sum(DELAY), "worst": agg.max(DELAY), "last": agg.last(DELAY, by=DELAY)}
        return of(pa.schema([("carrier", pa.string()), (DELAY, type_)]), **aggregates)

    def rows(type_: pa.DataType, value: float, *carriers: str) -> pa.Table:
        return pa.table({"carrier": carriers, DELAY: pa.array([value] * len(carriers), type_)})

    stream = MadeStream(url, NAME, reading(narrow))
    first = stream.commit(rows(narrow, values[0], "UA", "AA"))
    changed(stream, reading(wide))
    stream.commit(rows(wide, values[1], "UA"))
    assert table(url)["UA"] == {"total": sum(values), "worst": values[1], "last": values[1]}
    assert table(url)["AA"] == {"total": values[0], "worst": values[0], "last": values[0]}
    assert history(url).read().schema.field("worst").type == wide
    assert history(url).read(first).schema.field("worst").type == narrow
    with pytest.raises(IncompatibleStateError, match="dep_delay was"):
        changed(stream, reading(narrow))
