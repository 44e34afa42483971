"""Which steps of a changed pipeline keep their state."""

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.ids import Epoch, Version
from dagster_ckpt.operators import RunningAggregate, agg
from dagster_ckpt.operators.operator import Operator
from dagster_ckpt.operators.rows.deduplicate import Deduplicate
from dagster_ckpt.operators.sets.distinct import Distinct
from dagster_ckpt.operators.sets.set_operation import SetOperation
from dagster_ckpt.operators.shared.window_kinds import Tumbling
from dagster_ckpt.operators.step import OperatorStep
from dagster_ckpt.operators.windows.window_aggregate import WindowAggregate
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.protocol.manifest.manifest import (
    ROW_KEY,
    EpochRange,
    InputSpec,
    Pipeline,
    SourceIdentity,
    StateTableSpec,
    Statistics,
)
from dagster_ckpt.protocol.transitions.compatibility import breaking_changes
from dagster_ckpt.protocol.transitions.step_changes import StepChange, change_steps, has_table
from tests.worlds.manifests import a_run
from tests.worlds.several_steps import shops_counted, with_runs

ROWS = pa.schema([("a", pa.int64())])


def a_step(name: str, *reads: int | str) -> Pipeline:
    """A step over these sources (by name) and earlier steps (by number)."""
    inputs = tuple(
        InputSpec((), ROWS, each) if isinstance(each, int) else InputSpec((SourceIdentity("parquet", each),), ROWS)
        for each in reads
    )
    return Pipeline("aggregate", {"name": name}, inputs, ("a",), (StateTableSpec("groups", ROWS, ("a",)),), ROWS)


def steps(*each: Pipeline) -> Pipeline:
    *before, last = each
    return replace(last, before=tuple(before))


ORDERS, SHOPS, SIZES = a_step("orders", "s"), a_step("shops", 0), a_step("sizes", 1)
THREE = steps(ORDERS, SHOPS, SIZES)
OTHER = a_step("other", 1)


@pytest.mark.parametrize(
    ("after", "kept", "read", "dropped"),
    [
        (steps(ORDERS, SHOPS, OTHER), {0: 0, 1: 1}, {1}, (2,)),
        (steps(ORDERS, SHOPS), {0: 0, 1: 1}, set(), (2,)),
        (steps(ORDERS, SHOPS, SIZES, a_step("all", 2)), {0: 0, 1: 1, 2: 2}, {2}, ()),
        (steps(ORDERS, a_step("other", 0), SIZES), {0: 0}, {0}, (1, 2)),
        (steps(ORDERS, a_step("between", 0), a_step("shops", 1)), {0: 0}, {0}, (1, 2)),
        (steps(ORDERS, a_step("branch", 0), SHOPS, a_step("join", 1, 2)), {0: 0, 2: 1}, {0, 2}, (2,)),
    ],
)
def test_a_step_is_kept_if_neither_it_nor_what_feeds_it_changed(
    after: Pipeline, kept: dict[int, int], read: set[int], dropped: tuple[int, ...]
) -> None:
    change = StepChange.between(THREE, after)
    assert (change.kept, set(change.read), change.dropped_steps) == (kept, read, dropped)
    assert change.can_restart
    assert breaking_changes(THREE, after)


def test_a_change_of_an_earlier_step_is_a_breaking_one() -> None:
    other = steps(replace(ORDERS, parameters={"name": "x"}), SHOPS, SIZES)
    assert breaking_changes(THREE, other) == ('step 1: name was "orders", now it is "x"',)
    assert breaking_changes(THREE, steps(ORDERS, SHOPS)) == ("there were 3 steps, now there are 2",)
    assert breaking_changes(THREE, steps(ORDERS, SHOPS, a_step("sizes", 0))) == (
        "step 3: the input was that of step 2, now it is that of step 1",
    )
    assert breaking_changes(THREE, THREE) == ()


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (THREE, steps(a_step("x", "s"), SHOPS, SIZES), "no step is as it was"),
        (THREE, steps(ORDERS, SHOPS, a_step("join", 1, "t")), "step 3 (aggregate), which is new or changed, reads a"),
        (steps(ORDERS, SHOPS, a_step("join", 1, "t")), THREE, "step 3 (aggregate), which is removed or changed, reads"),
        (
            steps(replace(ORDERS, appends=True), SHOPS),
            steps(replace(ORDERS, appends=True), a_step("other", 0)),
            "step 1 (aggregate) keeps no rows that a changed step",
        ),
        (
            steps(replace(ORDERS, parameters={"name": "top", ROW_KEY: None}), SHOPS),
            steps(replace(ORDERS, parameters={"name": "top", ROW_KEY: None}), a_step("other", 0)),
            "step 1 (aggregate) keeps no rows that a changed step",
        ),
        (steps(replace(ORDERS, appends=True), SHOPS), replace(ORDERS, appends=True), "only passed its rows on"),
    ],
)
def test_what_stands_in_the_way_is_named(before: Pipeline, after: Pipeline, why: str) -> None:
    change = StepChange.between(before, after)
    assert not change.can_restart
    assert why in "; ".join(change.obstacles())


FILTERED = steps(ORDERS, SHOPS, replace(a_step("large", 1), operator="mirror"))
FILTERED_BY_MORE = steps(ORDERS, SHOPS, replace(a_step("larger", 1), operator="mirror"))


@pytest.mark.parametrize(
    ("before", "after", "alone"),
    [
        pytest.param(FILTERED, FILTERED_BY_MORE, True, id="another-filter"),
        pytest.param(steps(ORDERS, SHOPS), FILTERED, True, id="a-new-filter"),
        pytest.param(FILTERED, steps(ORDERS, SHOPS), True, id="a-filter-gone"),
        pytest.param(FILTERED, THREE, False, id="a-step-with-state-begins"),
        pytest.param(THREE, FILTERED, False, id="a-step-with-state-is-dropped"),
        pytest.param(FILTERED, steps(a_step("x", "s"), *FILTERED_BY_MORE.steps[1:]), False, id="nothing-is-kept"),
    ],
)
def test_a_filter_behind_all_state_is_told_from_other_changes(
    before: Pipeline, after: Pipeline, *, alone: bool
) -> None:
    assert StepChange.between(before, after).is_of_rows_alone == alone


def test_a_last_step_that_only_appended_gives_the_rows_of_its_files() -> None:
    windows = replace(ORDERS, appends=True)
    after = steps(windows, SHOPS)
    assert StepChange.between(windows, after).can_restart
    assert list(StepChange.between(windows, after, {1}).obstacles()) == [
        "step 2 (aggregate), which is new or changed, reads event times, and all old rows are late"
    ]
    assert StepChange.between(windows, after, {0}).can_restart, "a kept step goes on as it was"


def test_rows_of_files_have_the_columns_that_they_were_written_with() -> None:
    def windows(**aggregates: agg.Aggregation) -> Pipeline:
        rows = pa.schema([("carrier", pa.string()), ("v", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
        source = InputSpec((SourceIdentity("parquet", "s"),), rows)
        return WindowAggregate.build(("carrier",), aggregates, source, "at", Tumbling(60)).pipeline

    follower, before = a_step("sizes", 0), windows(n=agg.count(), m=agg.sum("v"))
    for now, columns in (
        (windows(m=agg.count(), n=agg.sum("v")), "m, n"),
        (windows(rows=agg.count(), m=agg.sum("v")), "rows"),
    ):
        change = StepChange.between(before, steps(now, follower))
        assert change.kept == {0: 0}
        [why] = change.obstacles()
        assert f"has columns that its old rows do not have ({columns}): change them in a start of their own" in why
    assert StepChange.between(before, steps(windows(m=agg.sum("v"), n=agg.count()), follower)).can_restart


def test_a_last_step_that_gets_a_follower_loses_its_table_and_gives_it() -> None:
    inner = replace(ORDERS, parameters={"name": "top", ROW_KEY: None})
    last = replace(inner, tables=(StateTableSpec("table", ROWS, ("a",)), *inner.tables))
    assert not has_table(inner)
    assert has_table(last)
    change = StepChange.between(last, steps(inner, SHOPS))
    assert (change.kept, list(change.obstacles())) == ({0: 0}, [])
    back = StepChange.between(steps(inner, SHOPS), last)
    assert list(back.obstacles()) == ["step 1 (aggregate), which is the last now, kept no table of its rows"]


def test_the_changed_stream_has_the_state_of_kept_steps_and_nothing_else() -> None:
    before = shops_counted()
    parent = replace(
        with_runs(before),
        version=Version(7),
        epoch=Epoch(6),
        statistics=Statistics(state_rows=1000, table_rows=3, total_rows_in=90, total_epochs=4),
        event_times_us=(5,),
    )
    orders, shops, last = before.steps
    after = steps(orders, shops, replace(last, parameters={**last.parameters, "more": 1}))
    child = change_steps(parent, after)
    assert child.runs == {**{name: parent.runs[name] for name in ("0.rows", "1.groups")}, "groups": ((), ())}
    assert child.abandoned == (EpochRange(Epoch(1), Epoch(6)),)
    assert (child.version, child.nonce, child.sources) == (parent.version, parent.nonce, parent.sources)
    assert (child.statistics.table_rows, child.statistics.state_rows) == (0, 60)
    assert (child.statistics.total_rows_in, child.event_times_us) == (90, (5,))
    shorter = change_steps(parent, steps(orders, shops))
    assert shorter.runs == {"0.rows": parent.runs["0.rows"], "groups": parent.runs["1.groups"]}


@st.composite
def graphs(draw: st.DrawFn) -> Pipeline:
    """A graph of few kinds of steps, so that two of them are often alike."""
    made: list[Pipeline] = []
    for number in range(draw(st.integers(1, 5))):
        reads = draw(st.lists(st.one_of(st.just("s"), st.integers(0, max(0, number - 1))), min_size=1, max_size=2))
        sources: list[int | str] = ["s" if number == 0 else each for each in reads]
        made.append(a_step(draw(st.sampled_from("xyz")), *sources))
    return steps(*made)


def history(pipeline: Pipeline, number: int) -> object:
    """All that the rows of a step depend on."""
    step = pipeline.steps[number]
    fed = tuple("s" if each.step is None else history(pipeline, each.step) for each in step.inputs)
    return step.parameters["name"], fed


@given(graphs(), graphs())
def test_a_kept_step_has_seen_what_its_old_one_saw(before: Pipeline, after: Pipeline) -> None:
    change = StepChange.between(before, after)
    assert len(set(change.kept.values())) == len(change.kept)
    for now, old in change.kept.items():
        assert history(after, now) == history(before, old)
        for was, each in zip(before.steps[old].inputs, after.steps[now].inputs, strict=True):
            assert each.step is None or change.kept[each.step] == was.step
    for number in change.read:
        assert number in change.kept


@given(graphs())
def test_a_pipeline_keeps_all_its_steps(pipeline: Pipeline) -> None:
    assert StepChange.between(pipeline, pipeline).kept == {n: n for n in range(len(pipeline.steps))}
    assert breaking_changes(pipeline, pipeline) == ()


def test_a_run_that_is_overlaid_is_not_counted_twice() -> None:
    run = replace(a_run(1, 1, 0), tombstones=4)
    parent = replace(with_runs(THREE, 2), statistics=Statistics(state_rows=50), epoch=Epoch(1))
    parent = replace(parent, runs={**parent.runs, "0.groups": ((run,), (run,)), "1.groups": ((), ())})
    assert change_steps(parent, steps(ORDERS, SHOPS, OTHER)).statistics.state_rows == 2


def test_a_table_is_there_where_the_operator_logs_one() -> None:
    changes = InputSpec((), shops_counted().before[1].output.append(pa.field(CHANGE_TYPE, pa.string())), 1)
    rows = InputSpec((SourceIdentity("parquet", "s"),), ROWS)
    built: list[Operator] = [
        Distinct.build(changes),
        Distinct.build(rows),
        SetOperation.build([rows, rows], "subtract"),
        SetOperation.build([rows, rows], "intersect"),
        RunningAggregate.build(("a",), {"rows": agg.count()}, rows),
        Deduplicate.build(("a",), rows, "first"),
    ]
    built += [OperatorStep.of(each).with_table() for each in built]
    assert [has_table(each.pipeline) for each in built] == [each.table is not None for each in built]
    assert {each.table is None for each in built} == {True, False}


AMOUNTS = pa.schema([("shop", pa.string()), ("amount", pa.float64())])


def of_shops(**aggregates: agg.Aggregation) -> Pipeline:
    source = InputSpec((SourceIdentity("parquet", "s"),), AMOUNTS)
    return RunningAggregate.build(("shop",), aggregates, source).pipeline


def test_what_reads_a_step_with_other_aggregates_begins_with_its_table() -> None:
    """Its state has their columns, which it knows by name; that of the step itself has what it needs."""
    before = steps(of_shops(a0=agg.avg("amount"), a1=agg.count()), a_step("sizes", 0))
    after = steps(of_shops(a0=agg.sum("amount"), a1=agg.count()), a_step("sizes", 0))
    assert breaking_changes(before.before[0], after.before[0]) == ()
    assert any(each.startswith("step 1: column a0 was") for each in breaking_changes(before, after))
    change = StepChange.between(before, after)
    assert (change.kept, set(change.read), change.dropped_steps) == ({0: 0}, {0}, (1,))
    assert StepChange.between(before, before).kept == {0: 0, 1: 1}


def test_what_reads_a_step_goes_on_if_that_only_loses_or_gets_other_columns() -> None:
    before = steps(of_shops(a0=agg.avg("amount"), a1=agg.count()), a_step("sizes", 0))
    for aggregates in (
        {"a0": agg.avg("amount")},
        {"a0": agg.avg("amount"), "a1": agg.count(), "a2": agg.count("amount")},
    ):
        after = steps(of_shops(**aggregates), a_step("sizes", 0))
        assert breaking_changes(before.before[0], after.before[0]) == breaking_changes(before, after) == ()
        assert StepChange.between(before, after).kept == {0: 0, 1: 1}


def test_a_step_whose_state_lacks_a_column_is_not_kept() -> None:
    before = steps(of_shops(a0=agg.avg("amount")), a_step("sizes", 0))
    after = steps(of_shops(a0=agg.max("amount")), a_step("sizes", 0))
    assert StepChange.between(before, after).kept == {}
