"""What differs between tables without a key: rows by how often they are there, and a table of one row."""

import pyarrow as pa
import pytest

from dagster_ckpt.tables.table_difference import _of_bags, _of_keys

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
    assert _changes(_of_bags(_table(before), _table(after))) == changes


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
    assert _changes(_of_keys(_table(before), _table(after), ())) == changes
