"""What is said of each operator's state, which depends on whether its inputs change and on what lets rows go."""

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pytest

from dagster_ckpt.errors import IncompatibleStateError
from dagster_ckpt.operators import RunningAggregate
from dagster_ckpt.operators.aggregates.registry import FUNCTIONS
from dagster_ckpt.operators.explained.explanation import ExplainedInput, ExplainedStep, explain_pipeline
from dagster_ckpt.operators.explained.kept import Bound
from dagster_ckpt.operators.registry import NAMES
from dagster_ckpt.operators.sets.union_all import UnionAll
from dagster_ckpt.operators.step import OperatorStep
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from tests.unit.operators.explained.explained_pipelines import APPENDS, CHANGES, HOUR, K, pipelines
from tests.unit.operators.test_registry import EVERY, HERE, ROWS
from tests.worlds.several_steps import sales_joined, shops_counted

PIPELINES = pipelines()


def step_of(name: str) -> ExplainedStep:
    [step] = explain_pipeline(PIPELINES[name]).steps
    return step


def test_every_operator_is_tried_here() -> None:
    assert {pipeline.operator for pipeline in PIPELINES.values()} == NAMES


def test_an_operator_of_a_later_release_is_not_explained_but_named() -> None:
    with pytest.raises(IncompatibleStateError, match=r"install the release that wrote it\. operator=cube"):
        explain_pipeline(replace(PIPELINES["aggregate"], operator="cube"))


@pytest.mark.parametrize("name", PIPELINES)
def test_each_state_table_is_explained_in_the_order_of_the_tables(name: str) -> None:
    step = step_of(name)
    assert [kept.table for kept in step.keeps] == [spec.name for spec in PIPELINES[name].tables]
    assert all(kept.rows and kept.limit.text for kept in step.keeps)


@pytest.mark.parametrize("name", PIPELINES)
def test_a_table_that_is_empty_between_epochs_has_a_time_by_which_its_rows_go(name: str) -> None:
    times = {spec.name: spec.time for spec in PIPELINES[name].tables}
    for kept in step_of(name).keeps:
        if kept.limit.bound is Bound.EPOCH:
            assert times[kept.table] is not None, "else its rows would be deleted one by one"
        if times[kept.table] is None:
            assert kept.limit.bound is not Bound.EPOCH


ONE_EACH = "one row for each key: counts and sums"
OPEN = "windows whose end the watermark has not reached"
PAST = "each until the watermark is {} past its event time"
IDLE = "each key until the watermark is 1 h past its newest row"
GROWS = "none: grows with the rows"
WIDEST: Mapping[str, tuple[Bound, str]] = {
    "aggregate": (Bound.KEYS, "the number of keys"),
    "aggregate of values": (Bound.ROWS, "none: grows with the distinct values"),
    "aggregate of changes": (Bound.INPUT, "the keys that have rows now"),
    "aggregate that expires": (Bound.ROWS, "none: grows with the late rows"),
    "aggregate of all": (Bound.CONSTANT, "one row"),
    "aggregate of all changes": (Bound.CONSTANT, "one row"),
    "renamed": (Bound.KEYS, "the number of keys"),
    "window": (Bound.ROWS, "none: grows with the late rows"),
    "early window": (Bound.ROWS, "none: grows with the keys and their windows; a row grows with its values"),
    "session": (Bound.WATERMARK, "sessions whose end the watermark has not passed"),
    "early session": (Bound.ROWS, "none: grows with the keys and their sessions"),
    "window of a table": (Bound.WATERMARK, OPEN),
    "early window of a table": (Bound.INPUT, "the windows that have rows now"),
    "early window of appended rows": (Bound.ROWS, "none: grows with the keys and their windows"),
    "interval join": (Bound.WATERMARK, PAST.format("2 h")),
    "interval join of later rows": (Bound.WATERMARK, PAST.format("1 h")),
    "interval join of earlier rows": (Bound.WATERMARK, "each until the watermark is 1 h before its event time"),
    "interval semi join": (Bound.WATERMARK, PAST.format("1 h")),
    "interval anti join": (Bound.WATERMARK, PAST.format("1 h")),
    "window join": (Bound.WATERMARK, OPEN),
    "instant join": (Bound.WATERMARK, "each until the watermark has passed its event time"),
    "join": (Bound.ROWS, GROWS),
    "join of changes": (Bound.INPUT, "the rows that the left input has now"),
    "join with a changing side": (Bound.ROWS, GROWS),
    "semi join": (Bound.ROWS, GROWS),
    "anti join of changes": (Bound.INPUT, "the rows that the left input has now"),
    "mirror": (Bound.INPUT, "the rows that the input has now"),
    "counted mirror": (Bound.INPUT, "the rows that the input has now"),
    "first rows": (Bound.KEYS, "the number of keys"),
    "first rows that expire": (Bound.WATERMARK, "each until the watermark is 1 h past the row"),
    "newest rows": (Bound.KEYS, "the number of keys"),
    "newest rows that expire": (Bound.WATERMARK, IDLE),
    "changes from": (Bound.ROWS, "none: grows with the deleted keys"),
    "changes from, deletes expire": (Bound.INPUT, "the keys that have a row now"),
    "top": (Bound.KEYS, "3 for each key"),
    "top of all": (Bound.CONSTANT, "at most 3 rows"),
    "top of changes": (Bound.INPUT, "the rows that the input has now"),
    "ranks": (Bound.ROWS, "none: grows with the rows that tie"),
    "ranks of changes": (Bound.INPUT, "the rows that the input has now"),
    "over": (Bound.ROWS, GROWS),
    "running over": (Bound.INPUT, "the rows that the input has now"),
    "distinct": (Bound.ROWS, "none: grows with the distinct rows"),
    "distinct of changes": (Bound.INPUT, "the rows that the input has now"),
    "intersect": (Bound.ROWS, "none: grows with the distinct rows"),
    "except all of changes": (Bound.INPUT, "the distinct rows that the inputs have now"),
    "subtract a table": (Bound.ROWS, "none: grows with the distinct rows of the left input, which only appends"),
    "process": (Bound.ROWS, "none, but for what the function deletes: grows with the rows"),
    "process that expires": (Bound.WATERMARK, IDLE),
}


def test_the_limit_of_a_step_is_that_of_the_table_that_may_grow_most() -> None:
    limits = {name: step_of(name).limit for name in PIPELINES}
    assert {name: (limit.bound, limit.text) for name, limit in limits.items() if limit is not None} == WIDEST
    assert {name for name, limit in limits.items() if limit is None} == {"append", "delivery", "union"}


def kept(name: str) -> Mapping[str, str]:
    return {each.table: each.rows for each in step_of(name).lasting}


def test_an_aggregate_keeps_more_where_rows_are_taken_back() -> None:
    assert kept("aggregate") == {"groups": ONE_EACH}
    assert kept("aggregate of all") == {"groups": "one row: counts and sums"}
    counted = "the distinct values of v of each key, with their counts"
    assert kept("aggregate of values") == {
        "groups": "one row for each key: counts, the least or greatest value and results over the values beside it",
        "distinct_0": "the distinct values of v of each key",
        "bag_0": counted,
    }
    assert kept("aggregate of changes") == {
        "groups": "one row for each key: counts, the first or last of the values beside it and results over the values "
        "beside it",
        "values_0": f"{counted} and order: when the first is taken back, the next one is known",
        "distinct_0": counted,
        "bag_0": counted,
    }


def test_keys_that_expire_keep_all_in_their_row() -> None:
    step = step_of("aggregate that expires")
    groups, expiries, late = step.lasting
    assert groups.rows == (
        "one row for each key: counts, the least or greatest value, all distinct values of v, all values of v and the "
        "newest event time"
    )
    assert groups.limit.text == f"{IDLE}; a key without an event time stays; a row grows with its values"
    assert (expiries.rows, expiries.limit.text) == ("the time to look for each key whether it has expired", IDLE)
    assert (late.table, late.rows) == ("_late_0", "the rows that came too late")


def test_each_side_of_an_interval_join_waits_for_the_other() -> None:
    limits = {each.table: each.limit.text for each in step_of("interval join").lasting}
    assert limits == {"left": PAST.format("2 h"), "left_unmatched": PAST.format("2 h"), "right": PAST.format("1 h")}
    assert kept("interval anti join") == {
        "left": "key and event time of the rows of the left input that have no match so far, by key",
        "left_unmatched": "the rows of the left input that have no match so far, by event time",
        "right": "key and event time of the rows of the right input, by key",
    }


def test_a_join_of_tables_finds_what_is_taken_back() -> None:
    assert kept("join") == {f"{side}_rows": f"the rows of the {side} input, by key" for side in ("left", "right")}
    step = step_of("join with a changing side")
    assert [each.changes for each in step.inputs] == [False, True]
    assert {each.table: each.limit.text for each in step.lasting} == {
        "left_rows": GROWS,
        "right_rows": "the rows that the right input has now",
        "right_index": "the rows that the right input has now",
        "counts": "the keys that the right input has now",
    }


def test_the_best_rows_have_all_others_behind_them_only_where_rows_go() -> None:
    assert kept("top")["ranked"] == "the first 3 rows of each key"
    table, ranked = step_of("top of all").lasting
    assert table.limit == ranked.limit, "the table has no more rows than the state"
    assert kept("top of changes") == {"ranked": "all rows of each key: the first 3 and, behind them, all others"}


@pytest.mark.parametrize("name", HERE)
def test_what_a_group_keeps_has_words_for_every_function(name: str) -> None:
    one, source = EVERY[name], InputSpec((), ROWS.schema)
    operators = [RunningAggregate.build(K, {name: one}, source, "at")]
    if one.function != "user_defined":
        operators.append(RunningAggregate.build(K, {name: one}, source, "at", HOUR))
    if FUNCTIONS[one.function].irreversible is None:
        changes = InputSpec((), ROWS.schema.append(pa.field(CHANGE_TYPE, pa.string())))
        by = "at" if "by" in FUNCTIONS[one.function].options else one.by
        operators.append(RunningAggregate.build(K, {name: replace(one, by=by)}, changes, updating=True))
    for operator in operators:
        [step] = explain_pipeline(operator.pipeline).steps
        assert step.lasting[0].rows.startswith("one row for each key: counts")


def test_the_table_of_a_last_step_grows_as_the_inputs_do() -> None:
    for inputs, bound in (([APPENDS, CHANGES], Bound.ROWS), ([CHANGES, CHANGES], Bound.INPUT)):
        [step] = explain_pipeline(OperatorStep.of(UnionAll.build(inputs)).with_table().pipeline).steps
        assert [(each.table, each.limit.bound) for each in step.lasting] == [("table", bound)]


def test_inputs_say_what_they_read_whether_that_changes_and_what_spark_does_with_it() -> None:
    source = "parquet file:///data/in"
    assert step_of("renamed").inputs == (ExplainedInput(source, False, ("WHERE (v > 0)",)),)
    assert step_of("anti join of changes").inputs[1] == ExplainedInput(source, True, ("w > 0",))
    assert step_of("mirror").inputs == (ExplainedInput(source, True, ("v > 0",)),)
    assert step_of("renamed").keys == ("key",)


def test_what_spark_does_is_in_its_order_and_without_the_kind_of_a_row() -> None:
    pipeline = shops_counted()
    work = "WHERE (total > 0); SELECT total AS _1, _change_type"
    large = replace(pipeline, inputs=(replace(pipeline.inputs[0], work=work),))
    *_, last = explain_pipeline(large).steps
    assert last.inputs[0].work == ("WHERE (total > 0)", "SELECT total AS _1")


def test_a_step_reads_a_step_and_its_watermark_may_be_behind() -> None:
    orders, shops, large = explain_pipeline(shops_counted()).steps
    assert [each.inputs[0].reads for each in (orders, shops, large)] == [
        "parquet file:///data/orders",
        "step 0",
        "step 1",
    ]
    assert [each.inputs[0].changes for each in (orders, shops, large)] == [False, True, True]
    joined = sales_joined()
    behind = replace(joined, inputs=(replace(joined.inputs[0], behind_us=HOUR), joined.inputs[1]))
    assert [step.behind_us for step in explain_pipeline(behind).steps] == [0, HOUR]
    assert "\n  watermark   1 h behind the stream's\n" in str(explain_pipeline(behind))


def test_the_text_has_a_block_for_each_step() -> None:
    explanation = explain_pipeline(shops_counted())
    assert str(explanation) == repr(explanation)
    *_, last = str(explanation).split("\n\n")
    assert last.splitlines() == [
        "step 2  aggregate shops=count()",
        "  reads       step 1, which changes",
        "  key         total",
        "  keeps       one row for each key: counts",
        "  bound       the keys that have rows now",
        "  emits       rows that may be taken back",
    ]
    assert explanation.grows
    assert not explain_pipeline(PIPELINES["top of all"]).grows


@pytest.mark.parametrize("since", ["now", 41])
@pytest.mark.parametrize("name", HERE)
def test_an_aggregate_that_begins_later_says_so(name: str, since: str | int) -> None:
    if EVERY[name].function == "user_defined":
        return
    later = replace(EVERY[name], since=since)
    [step] = explain_pipeline(
        RunningAggregate.build(K, {"later": later}, InputSpec((), ROWS.schema), "at").pipeline
    ).steps
    when = since if since == "now" else f"epoch {since}"
    assert f" since {when}" in step.lasting[0].rows
    assert step.operator.split(" event_time")[0].endswith(f" since {when}")
