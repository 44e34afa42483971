"""What differs between tables without a key: rows by how often they are there, and a table of one row."""

from dataclasses import replace

import pyarrow as pa
import pytest

from dagster_ckpt.operators import RunningAggregate, agg
from dagster_ckpt.operators.rows.top import Best, Top
from dagster_ckpt.operators.shared.net_changes import difference_of_equal_rows
from dagster_ckpt.operators.step import OperatorStep
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from dagster_ckpt.protocol.manifest.row_key import row_key
from dagster_ckpt.tables.share import Share
from dagster_ckpt.tables.table_difference import ROWS_AT_ONCE, _of_keys, _shares
from tests.worlds.manifests import a_manifest

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string())])
Rows = list[tuple[int | None, str]]


def _table(rows: Rows) -> pa.Table:
    return pa.table({"a": [a for a, _ in rows], "b": [b for _, b in rows]}, schema=SCHEMA)


def _changes(found: pa.Table) -> list[tuple[str, int | None, str]]:
    rows = found.to_pylist()
    return sorted(((row["_change_type"], row["a"], row["b"]) for row in rows), key=repr)


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ([], [], []),
        ([(1, "x")], [(1, "x")], []),
        ([(1, "x"), (1, "x")], [(1, "x")], [("delete", 1, "x")]),
        ([(1, "x")], [(1, "x"), (1, "x"), (None, "y")], [("insert", 1, "x"), ("insert", None, "y")]),
        ([(None, "y"), (2, "z")], [(None, "y"), (3, "z")], [("delete", 2, "z"), ("insert", 3, "z")]),
    ],
)
def test_rows_without_a_key_come_and_go_as_often_as_the_tables_differ(
    before: Rows, after: Rows, changes: list[tuple[str, int | None, str]]
) -> None:
    assert _changes(difference_of_equal_rows(_table(before), _table(after)).rows) == changes


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ([], [(1, "x")], [("insert", 1, "x")]),
        ([(1, "x")], [(2, "x")], [("update_postimage", 2, "x"), ("update_preimage", 1, "x")]),
        ([(1, "x")], [(1, "x")], []),
        ([(1, "x")], [], [("delete", 1, "x")]),
    ],
)
def test_a_table_of_one_row_has_one_change_at_most(
    before: Rows, after: Rows, changes: list[tuple[str, int | None, str]]
) -> None:
    assert _changes(_of_keys(_table(before), _table(after), ()).rows) == changes


def test_tables_that_place_their_rows_otherwise_are_compared_as_a_whole() -> None:
    rows = pa.schema([("carrier", pa.string()), ("day", pa.string()), ("n", pa.int64())])
    changes = rows.append(pa.field(CHANGE_TYPE, pa.string(), nullable=False))
    total = RunningAggregate.build(("carrier", "day"), {"n": agg.sum("n")}, InputSpec((), rows))
    least = RunningAggregate.build(("carrier", "day"), {"n": agg.min("n")}, InputSpec((), rows))
    best = Best(1000, "n desc")
    # The same key, but its rows are placed by the carrier first.
    top = OperatorStep.of(
        Top.build(("carrier",), InputSpec((), changes), best, input_key=("carrier", "day"), updating=True)
    ).with_table()
    statistics = replace(a_manifest().statistics, state_rows=4 * ROWS_AT_ONCE)
    of_total, of_least, of_top = (
        a_manifest(pipeline=each.pipeline, statistics=statistics) for each in (total, least, top)
    )
    assert row_key(of_total.pipeline) == row_key(of_top.pipeline)
    assert len(_shares(of_total, of_least)) == 8
    assert _shares(of_total, of_top) == [Share()]
