"""Which input columns the columns of each operator's table are made from."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt.operators import AppendOnly, agg, over, process
from dagster_ckpt.operators.column_lineage import Work, columns_of_sources, columns_read
from dagster_ckpt.operators.joins import IntervalJoin, WindowedJoin
from dagster_ckpt.operators.joins.regular.regular_join import RegularJoin
from dagster_ckpt.operators.rows.deduplicate import Deduplicate
from dagster_ckpt.operators.rows.materializer import Materializer
from dagster_ckpt.operators.rows.over.over import OverPartition
from dagster_ckpt.operators.rows.top import Best, Top
from dagster_ckpt.operators.sets.set_operation import Kind, SetOperation
from dagster_ckpt.operators.sets.union_all import UnionAll
from dagster_ckpt.operators.shared.window_kinds import Session, Tumbling
from dagster_ckpt.operators.step import OperatorStep, one_group
from dagster_ckpt.operators.windows.session_aggregate import SessionAggregate
from dagster_ckpt.operators.windows.window_aggregate import WindowAggregate
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline
from tests.unit.operators.joined_streams import KEYS, SCHEMAS, TIMES, inputs
from tests.unit.operators.streams import build

ROWS = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
SOURCE = InputSpec((), ROWS)
MINUTE_US = 60_000_000


def test_an_aggregate_is_made_from_its_column_and_a_count_of_rows_from_none() -> None:
    aggregates: Any = {"n": agg.count(), "some": agg.count("v"), "v": agg.sum("v"), "last": agg.last("v", by="at")}
    assert columns_read(build(ROWS, ("k",), **aggregates).pipeline) == {
        "k": [(0, "k")],
        "n": [],
        "some": [(0, "v")],
        "v": [(0, "v")],
        "last": [(0, "v")],
    }


def test_the_bounds_of_a_window_are_made_from_the_event_time() -> None:
    options = (("k",), {"total": agg.sum("v")}, SOURCE, "at")
    expected = {
        "k": [(0, "k")],
        "window_start": [(0, "at")],
        "window_end": [(0, "at")],
        "total": [(0, "v")],
    }
    assert columns_read(WindowAggregate.build(*options, Tumbling(MINUTE_US)).pipeline) == expected
    assert columns_read(SessionAggregate.build(*options, Session(MINUTE_US)).pipeline) == expected


def test_rows_that_pass_whole_keep_their_columns() -> None:
    whole = {name: [(0, name)] for name in ROWS.names}
    assert columns_read(AppendOnly.build(SOURCE).pipeline) == whole
    assert columns_read(Deduplicate.build(("k",), SOURCE, "first", "at", None).pipeline) == whole
    changes = InputSpec((), ROWS.append(pa.field("_change_type", pa.string())))
    assert columns_read(Materializer.build(("k",), changes, None).pipeline) == whole


def test_a_rank_is_made_from_the_columns_that_order_the_rows() -> None:
    whole = {name: [(0, name)] for name in ROWS.names}
    ranked = Top.build(("k",), SOURCE, Best(3, ["v desc", "at asc"], "rank", "place"))
    assert columns_read(OperatorStep.of(ranked).with_table().pipeline) == {**whole, "place": [(0, "v"), (0, "at")]}
    assert columns_read(Top.build(("k",), SOURCE, Best(3, "v desc")).pipeline) == whole


def test_a_function_over_a_partition_is_made_from_its_column_and_a_rank_from_the_order() -> None:
    whole = {name: [(0, name)] for name in ROWS.names}
    functions = {"before": over.lag("at"), "place": over.rank(), "rows": over.count()}
    operator = OperatorStep.of(OverPartition.build(("k",), SOURCE, "v desc", functions)).with_table()
    wanted = {**whole, "before": [(0, "at")], "place": [(0, "v")], "rows": []}
    assert columns_read(operator.pipeline) == wanted


def test_rows_of_a_union_or_an_intersection_are_of_both_inputs() -> None:
    both = {name: [(0, name), (1, name)] for name in ROWS.names}
    left = {name: [(0, name)] for name in ROWS.names}
    assert columns_read(UnionAll.build([SOURCE, SOURCE]).pipeline) == both
    for kind in Kind:
        operator = OperatorStep.of(SetOperation.build([SOURCE, SOURCE], kind)).with_table()
        assert columns_read(operator.pipeline) == (both if kind.is_of_both else left)


def test_columns_of_a_join_are_of_the_side_that_they_come_from_and_a_shared_key_of_both() -> None:
    joined = {"k": [(0, "k"), (1, "k")], "at": [(0, "at")], "v": [(0, "v")], "bt": [(1, "bt")], "w": [(1, "w")]}
    interval = IntervalJoin.build(inputs(), KEYS, TIMES, 0, MINUTE_US, "inner")
    assert columns_read(interval.pipeline) == joined
    instant = WindowedJoin.build(inputs(), KEYS, TIMES, None)
    assert columns_read(instant.pipeline) == joined
    windowed = WindowedJoin.build(inputs(), KEYS, TIMES, Tumbling(MINUTE_US))
    bounds = [(0, "at"), (1, "bt")]
    assert columns_read(windowed.pipeline) == {**joined, "window_start": bounds, "window_end": bounds}
    semi = IntervalJoin.build(inputs(), KEYS, TIMES, 0, MINUTE_US, "semi")
    assert columns_read(semi.pipeline) == {name: [(0, name)] for name in SCHEMAS[0].names}


def test_only_the_users_code_knows_what_a_process_function_reads() -> None:
    assert columns_read(replace(AppendOnly.build(SOURCE).pipeline, operator=process.NAME)) == {}


def test_functions_over_all_rows_are_made_from_their_columns_too() -> None:
    functions = {"before": over.lag("at"), "place": over.rank()}
    operator = OperatorStep.of(
        one_group(SOURCE, lambda keys, rows: OverPartition.build(keys, rows, "v desc", functions))
    )
    wanted = {**{name: [(0, name)] for name in ROWS.names}, "before": [(0, "at")], "place": [(0, "v")]}
    assert columns_read(operator.pipeline) == wanted
    assert columns_read(operator.with_table().pipeline) == wanted


def steps(*pipelines: Pipeline) -> Pipeline:
    *before, last = pipelines
    return replace(last, before=tuple(before))


def totals_joined_with_rows() -> Pipeline:
    """A total of each key of the first source, joined with the rows of the second."""
    totals = build(ROWS, ("k",), n=agg.count(), total=agg.sum("v")).pipeline
    renamed = pa.schema([("k", pa.string()), ("twice", pa.int64()), ("made", pa.int64()), ("n", pa.int64())])
    right = InputSpec((), pa.schema([("k", pa.string()), ("v", pa.int64())]))
    joined = RegularJoin.build([InputSpec((), renamed, step=0), right], [("k",), ("k",)], "inner")
    return steps(totals, OperatorStep.of(joined).with_table().pipeline)


def test_columns_are_followed_through_the_steps_and_what_spark_does_between_them() -> None:
    between = {"k": ("k",), "twice": ("total", "k"), "n": ("n",)}  # nothing says what 'made' is made from
    of_source = {"k": ("id",), "v": ("price", "amount")}
    assert columns_of_sources(totals_joined_with_rows(), [[None], [between, of_source]]) == {
        "k": ((0, "k"), (1, "id")),
        "twice": ((0, "v"), (0, "k")),
        "n": (),
        "v": ((1, "price"), (1, "amount")),
    }


def test_a_step_may_know_a_column_by_an_older_name_than_the_work_before_it() -> None:
    counted = build(ROWS, ("k",), n=agg.count()).pipeline
    newest = Deduplicate.build(("k",), InputSpec((), counted.output, step=0))
    renamed = OperatorStep.of(newest).with_names({"key": "k", "n": "n"}).pipeline
    assert columns_of_sources(steps(counted, renamed), [[None], [{"key": ("k",), "n": ("n",)}]]) == {
        "key": ((0, "k"),),
        "n": (),
    }


@pytest.mark.parametrize("work", [[], [[None]], [[None], [None]], [[None], [None, None], [None]]])
def test_the_work_of_other_steps_says_nothing(work: Sequence[Sequence[Work]]) -> None:
    assert columns_of_sources(totals_joined_with_rows(), work) == {}


def test_behind_a_process_function_nothing_is_known() -> None:
    processed = replace(AppendOnly.build(SOURCE).pipeline, operator=process.NAME)
    counted = build(ROWS, ("k",), n=agg.count(), total=agg.sum("v")).pipeline
    later = replace(counted, inputs=(replace(counted.inputs[0], step=0),))
    assert columns_of_sources(steps(processed, later), [[None], [None]]) == {"n": ()}
