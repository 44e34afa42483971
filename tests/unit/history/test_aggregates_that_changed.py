"""A stream whose aggregates have changed goes on with its state, as far as that has what they need."""

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import FencedError, IncompatibleStateError
from dagster_ckpt.history import CheckpointStore, StreamHistory
from dagster_ckpt.history.swap import swap
from dagster_ckpt.lsm.compaction.compaction import CompactionLimits
from dagster_ckpt.operators import AppendOnly, RunningAggregate, agg
from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.operators.aggregates.since import SINCE
from dagster_ckpt.operators.since_now import resolve_since
from dagster_ckpt.operators.step import OperatorStep
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from dagster_ckpt.protocol.transitions.later_columns import beginning_after, beginnings, next_beginning
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.stores.address import open_store
from dagster_ckpt.storage.stores.folder import stream_folder
from dagster_ckpt.storage.writer.opening import manifest_to_show
from tests.unit.history.made_streams import DEPARTURES, SOURCE, MadeStream, departures

NAME, DELAY = "delays", "dep_delay"
Rows = dict[str | None, dict[str, object]]
Delays = dict[str | None, list[float]]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return tmp_path.as_uri()


def of(schema: pa.Schema = DEPARTURES, **aggregates: Aggregation) -> OperatorStep:
    return OperatorStep.of(RunningAggregate.build(("carrier",), aggregates, InputSpec((SOURCE,), schema)))


def changed(stream: MadeStream, operator: OperatorStep, from_epoch: int | None = None) -> None:
    """Open the stream with another operator, as a run does."""
    chain = ManifestChain(stream.writer.store, SystemClock())
    newest = chain.newest()
    assert newest is not None
    shown = manifest_to_show(chain, newest, stream.opening(from_epoch))
    steps = () if shown is None else shown.pipeline.steps
    resolved = resolve_since(operator, None, steps, beginning_after(shown, newest))
    assert not isinstance(resolved, AppendOnly)
    stream.operator = resolved
    stream.open(from_epoch)


def rebuilt(stream: MadeStream, operator: OperatorStep, *rows: Delays) -> None:
    """Let a stream with these rows take the place of this one, which has read as many files."""
    resolved = resolve_since(operator, None, (), 0)
    beside = MadeStream(stream.url, f"{NAME}/~rebuild-1", resolved)
    for each in rows:
        beside.commit(departures(each))
    beside.close()
    stream.operator = resolved
    root, clock = open_store(stream.url), SystemClock()
    live, other = (ManifestChain(stream_folder(root, name), clock) for name in (NAME, beside.name))
    swap(root, live, other, stream.opening())


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
    changed(stream, later, from_epoch=first)
    assert table(url) == {"UA": {"flights": 1, "worst": None}}
    stream.commit(departures({"UA": [3.0]}))
    assert table(url) == {"UA": {"flights": 2, "worst": 3.0}}


WORST = agg.max("dep_delay", since="now")


def test_a_rollback_finds_what_the_aggregate_counted_by_then(url: str) -> None:
    """Also where it was dropped meanwhile, and has begun again since."""
    stream = MadeStream(url, NAME, of(flights=agg.count()))
    stream.commit(departures({"UA": [1.0]}))
    changed(stream, of(flights=agg.count(), worst=WORST))
    first = stream.commit(departures({"UA": [50.0]}))
    changed(stream, of(flights=agg.count()))
    stream.commit(departures({"UA": [1.0]}))
    changed(stream, of(flights=agg.count(), worst=WORST))
    stream.commit(departures({"UA": [2.0]}))
    assert table(url) == {"UA": {"flights": 4, "worst": 2.0}}
    changed(stream, of(flights=agg.count(), worst=WORST), from_epoch=first)
    assert table(url) == {"UA": {"flights": 2, "worst": 50.0}}
    stream.commit(departures({"UA": [5.0]}))
    assert table(url) == {"UA": {"flights": 3, "worst": 50.0}}
    changed(stream, of(flights=agg.count(), worst=WORST), from_epoch=0)
    assert beginnings(stream.writer.manifest.pipeline) == {0}, "with the stream, which is empty again"


def test_a_rollback_over_a_rebuild_finds_what_the_aggregate_counted_by_then(url: str) -> None:
    stream = MadeStream(url, NAME, of(flights=agg.count()))
    stream.commit(departures({"UA": [1.0]}))
    changed(stream, of(flights=agg.count(), worst=WORST))
    first = stream.commit(departures({"UA": [50.0]}))
    rebuilt(stream, of(flights=agg.count(), worst=WORST, least=agg.min("dep_delay")), {"UA": [1.0]}, {"UA": [50.0]})
    assert table(url) == {"UA": {"flights": 2, "worst": 50.0, "least": 1.0}}
    changed(stream, of(flights=agg.count(), worst=WORST), from_epoch=first)
    stream.commit(departures({"UA": [5.0]}))
    assert table(url) == {"UA": {"flights": 3, "worst": 50.0}}


def test_after_a_rollback_over_a_rebuild_an_aggregate_knows_nothing_of_an_earlier_life(url: str) -> None:
    """Each of both streams had it from its beginning; the one that is gone back to had dropped it."""
    resolved = resolve_since(of(flights=agg.count(), worst=WORST), None, (), 0)
    stream = MadeStream(url, NAME, resolved)
    stream.commit(departures({"UA": [100.0], "AA": [77.0]}))
    changed(stream, of(flights=agg.count()))
    dropped = stream.commit(departures({"UA": [1.0]}))
    rebuilt(stream, of(flights=agg.count(), worst=WORST), {"UA": [100.0], "AA": [77.0]}, {"UA": [1.0]})
    assert table(url)["AA"] == {"flights": 1, "worst": 77.0}
    changed(stream, of(flights=agg.count(), worst=WORST), from_epoch=dropped)
    stream.commit(departures({"UA": [5.0]}))
    assert table(url) == {"UA": {"flights": 3, "worst": 5.0}, "AA": {"flights": 1, "worst": None}}


def test_another_run_that_has_gone_on_meanwhile_is_not_forgotten(url: str) -> None:
    stream = MadeStream(url, NAME, of(flights=agg.count()))
    stream.commit(departures({"UA": [1.0]}))
    later = of(flights=agg.count(), worst=agg.max("dep_delay", since="now"))
    stale = resolve_since(later, None, stream.writer.manifest.pipeline.steps, next_beginning(stream.writer.manifest))
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
    def reading(type_: pa.DataType) -> OperatorStep:
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


def delays(type_: pa.DataType, rows: dict[str, list[int | None]]) -> pa.Table:
    pairs = [(carrier, value) for carrier, values in rows.items() for value in values]
    return pa.table({"carrier": [c for c, _ in pairs], DELAY: pa.array([value for _, value in pairs], type_)})


def over(type_: pa.DataType, **aggregates: Aggregation) -> OperatorStep:
    return of(pa.schema([("carrier", pa.string()), (DELAY, type_)]), **aggregates)


def sketched(type_: pa.DataType) -> OperatorStep:
    return over(type_, about=agg.approx_count_distinct(DELAY))


@pytest.mark.parametrize(
    ("narrow", "wide", "value"),
    [
        (pa.int32(), pa.int64(), -1),
        (pa.float32(), pa.float64(), 0.1),
        (pa.decimal128(9, 2), pa.decimal128(20, 2), Decimal("1.25")),
    ],
    ids=str,
)
def test_a_sketch_knows_the_values_of_a_wider_column_again(
    narrow: pa.DataType, wide: pa.DataType, value: object, url: str
) -> None:
    rows = pa.table({"carrier": ["UA"], DELAY: pa.array([value], narrow)})
    stream = MadeStream(url, NAME, sketched(narrow))
    stream.commit(rows)
    changed(stream, sketched(wide))
    stream.commit(rows.set_column(1, DELAY, rows[DELAY].cast(wide)))
    assert table(url) == {"UA": {"about": 1}}


def test_a_sketch_of_decimals_keeps_their_scale(url: str) -> None:
    """It would count a value again that it knows with another scale."""
    narrow, wide = pa.decimal128(9, 2), pa.decimal128(20, 3)
    stream = MadeStream(url, NAME, sketched(narrow))
    stream.commit(pa.table({"carrier": ["UA"], DELAY: pa.array([Decimal("1.25")], narrow)}))
    with pytest.raises(IncompatibleStateError, match="with another scale: approx_count_distinct would count"):
        changed(stream, sketched(wide))
    changed(stream, over(wide, about_now=agg.approx_count_distinct(DELAY, since="now")))
    assert table(url) == {"UA": {"about_now": None}}


@pytest.mark.parametrize("narrow", [pa.int8(), pa.int16(), pa.int32()], ids=str)
@pytest.mark.parametrize("depth", [1, 8])
def test_the_mean_of_a_column_that_gets_wider_is_of_all_rows(narrow: pa.DataType, depth: int, url: str) -> None:
    """Also where the total of longs no longer fits into one, and in files that are merged with newer ones."""
    limits = CompactionLimits(depth_min=1, depth_max=depth)
    before, after = (over(type_, mean=agg.avg(DELAY)) for type_ in (narrow, pa.int64()))
    stream = MadeStream(url, NAME, before, limits=limits)
    first = stream.commit(delays(narrow, {"UA": [-7, 4, None], "AA": [-1], "B6": [None]}))
    changed(stream, after)
    assert table(url) == {"UA": {"mean": -1.5}, "AA": {"mean": -1.0}, "B6": {"mean": None}}
    second = stream.commit(delays(pa.int64(), {"UA": [2**63 - 1, 2**63 - 1], "DL": [-(2**63), -(2**63)]}))
    for value in range(6):
        stream.commit(delays(pa.int64(), {"B6": [value], str(value): [value]}))
    found = table(url)
    assert found["UA"] == {"mean": (2**64 - 5) / 4}
    assert found["DL"] == {"mean": -(2.0**63)}
    assert (found["AA"], found["B6"]) == ({"mean": -1.0}, {"mean": 2.5})
    changes = history(url).changes(after=first, until=second).to_pylist()
    assert [(each["_change_type"], each["mean"]) for each in changes if each["carrier"] == "UA"] == [
        ("update_preimage", -1.5),
        ("update_postimage", (2**64 - 5) / 4),
    ]
    with pytest.raises(IncompatibleStateError, match=r"dep_delay was int64, now it is"):
        changed(stream, before)


def test_a_rollback_over_the_change_goes_on_with_either_code(url: str) -> None:
    before, after = (over(type_, mean=agg.avg(DELAY)) for type_ in (pa.int32(), pa.int64()))
    stream = MadeStream(url, NAME, before)
    first = stream.commit(delays(pa.int32(), {"UA": [1], "AA": [5]}))
    changed(stream, after)
    stream.commit(delays(pa.int64(), {"UA": [2**40]}))
    stream.open(from_epoch=first)
    assert table(url) == {"UA": {"mean": 1.0}, "AA": {"mean": 5.0}}
    stream.commit(delays(pa.int64(), {"AA": [2**40 + 1]}))
    assert table(url)["AA"] == {"mean": 2.0**39 + 3}
    stream.operator = before
    stream.open(from_epoch=first)
    stream.commit(delays(pa.int32(), {"UA": [4]}))
    assert table(url) == {"UA": {"mean": 2.5}, "AA": {"mean": 5.0}}


def test_a_total_and_a_mean_of_it_count_nothing_twice(url: str) -> None:
    total, both = {"total": agg.sum(DELAY)}, {"total": agg.sum(DELAY), "mean": agg.avg(DELAY)}
    stream = MadeStream(url, NAME, over(pa.int32(), **both))
    stream.commit(delays(pa.int32(), {"UA": [1, 2], "AA": [-3]}))
    changed(stream, over(pa.int64(), **both))
    stream.commit(delays(pa.int64(), {"UA": [2**40]}))
    assert table(url) == {"UA": {"total": 2**40 + 3, "mean": (2**40 + 3) / 3}, "AA": {"total": -3, "mean": -3.0}}
    changed(stream, over(pa.int64(), **total))
    stream.commit(delays(pa.int64(), {"UA": [1]}))
    changed(stream, over(pa.int64(), **both))
    stream.commit(delays(pa.int64(), {"AA": [-(2**35)]}))
    assert table(url) == {
        "UA": {"total": 2**40 + 4, "mean": (2**40 + 4) / 4},
        "AA": {"total": -(2**35) - 3, "mean": (-(2**35) - 3) / 2},
    }


def test_a_mean_that_began_later_goes_on_when_its_column_gets_wider(url: str) -> None:
    stream = MadeStream(url, NAME, over(pa.int32(), rows=agg.count()))
    stream.commit(delays(pa.int32(), {"UA": [100], "AA": [100]}))
    later = {"rows": agg.count(), "mean": agg.avg(DELAY, since="now")}
    changed(stream, over(pa.int32(), **later))
    stream.commit(delays(pa.int32(), {"UA": [-1, 4]}))
    changed(stream, over(pa.int64(), **later))
    assert table(url) == {"UA": {"rows": 3, "mean": 1.5}, "AA": {"rows": 1, "mean": None}}
    stream.commit(delays(pa.int64(), {"UA": [2**40], "DL": [2**40]}))
    assert table(url) == {
        "UA": {"rows": 4, "mean": (2**40 + 3) / 3},
        "AA": {"rows": 1, "mean": None},
        "DL": {"rows": 1, "mean": 2.0**40},
    }


def test_a_total_does_not_come_from_the_halves_of_a_mean(url: str) -> None:
    """It may not fit."""
    stream = MadeStream(url, NAME, over(pa.int64(), mean=agg.avg(DELAY)))
    stream.commit(delays(pa.int64(), {"UA": [2**63 - 1, 1]}))
    with pytest.raises(IncompatibleStateError, match=r"has no _sum\(dep_delay\), which needs all rows"):
        changed(stream, over(pa.int64(), total=agg.sum(DELAY)))


CHANGES = pa.schema(
    [
        ("carrier", pa.string()),
        ("x", pa.int64()),
        ("y", pa.int64()),
        pa.field(CHANGE_TYPE, pa.string(), nullable=False),
    ]
)


@pytest.mark.parametrize("first", [agg.bit_or("x"), agg.median("x")])
def test_bits_over_rows_that_go_have_tables_beside_and_stay_in_their_order(url: str, first: Aggregation) -> None:
    def updating(**aggregates: Aggregation) -> OperatorStep:
        source = InputSpec((SOURCE,), CHANGES)
        return OperatorStep.of(RunningAggregate.build(("carrier",), aggregates, source, updating=True))

    stream = MadeStream(url, NAME, updating(first=first, all=agg.bit_and("y")))
    stream.commit(pa.Table.from_pylist([{"carrier": "UA", "x": 10, "y": 3, CHANGE_TYPE: "insert"}], CHANGES))
    with pytest.raises(IncompatibleStateError):
        changed(stream, updating(all=agg.bit_and("y"), first=first))


OTHER_MEANINGS = [
    ({"a": agg.max(DELAY)}, {"a": agg.max(DELAY, since="now")}, "a"),
    ({"a": agg.sum(DELAY), "b": agg.avg(DELAY)}, {"a": agg.avg(DELAY), "b": agg.sum(DELAY)}, "a, b"),
]


@pytest.mark.parametrize(("before", "after", "columns"), OTHER_MEANINGS, ids=["begins now", "exchanged"])
def test_a_name_keeps_its_meaning(
    url: str, before: dict[str, Aggregation], after: dict[str, Aggregation], columns: str
) -> None:
    """What reads the changes, registered or not, has values of the old one, and none tells it of the new one."""
    stream = MadeStream(url, NAME, of(**before))
    stream.commit(departures({"UA": [9.0, 3.0], "AA": [5.0]}))
    with pytest.raises(IncompatibleStateError, match=f"give it another name. columns={columns}, stream={NAME}"):
        changed(stream, of(**after))
    changed(stream, of(**{f"{name}_now": each for name, each in after.items()}))


def test_an_aggregate_begins_when_it_comes_also_beside_one_like_it(url: str) -> None:
    worst = agg.max(DELAY, since="now")
    stream = MadeStream(url, NAME, of(flights=agg.count()))
    stream.commit(departures({"UA": [1.0]}))
    changed(stream, of(flights=agg.count(), worst=worst))
    stream.commit(departures({"UA": [50.0]}))
    changed(stream, of(flights=agg.count(), worst=worst, worst_of_summer=worst))
    stream.commit(departures({"UA": [2.0]}))
    assert table(url)["UA"] == {"flights": 3, "worst": 50.0, "worst_of_summer": 2.0}


def test_a_fork_of_a_rollback_uses_no_number_twice(url: str) -> None:
    stream = MadeStream(url, NAME, of(flights=agg.count()))
    first = stream.commit(departures({"UA": [1.0]}))
    for _ in range(8):
        stream.commit(departures({"UA": [1.0]}))
    worst, recent = agg.max(DELAY, since="now"), agg.count(since="now")
    changed(stream, of(flights=agg.count(), worst=worst), from_epoch=first)
    stream.close()  # it dies before its first epoch
    history(url).fork("fork")
    fork = MadeStream(url, "fork", stream.operator)
    for _ in range(8):
        fork.commit(departures({"UA": [50.0]}))
        used = beginnings(fork.writer.manifest.pipeline)
        assert next_beginning(fork.writer.manifest) not in used
    changed(fork, of(flights=agg.count(), worst=worst, recent=recent))
    fork.commit(departures({"UA": [2.0]}))
    [row] = CheckpointStore(url).stream("fork").read().to_pylist()
    assert row == {"carrier": "UA", "flights": 10, "worst": 50.0, "recent": 1}
