"""Random tables: what happens to their rows in each epoch, and what is in them then."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
from hypothesis import strategies as st

from dagster_ckpt.protocol.change_columns import CHANGE_TYPE

EPOCHS = 3
ROWS_MAX = 6
"""Rows that come into a table in an epoch."""

TYPES = {
    "int": pa.int32(),
    "string": pa.string(),
    "decimal": pa.decimal128(8, 2),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
    "wild": pa.float64(),
    "cased": pa.string(),
}
VALUES: dict[str, Sequence[object]] = {
    "int": [None, 0, 1, 1, 2, 3, -1],
    "string": [None, "", "a", "a", "b", "B"],
    "decimal": [None, Decimal("0.00"), Decimal("1.25"), Decimal("-7.50"), Decimal("0.10")],
    # Halves and quarters: their sums are exact, in any order.
    "double": [None, 0.0, -0.0, 0.5, 1.5, -2.25, float("nan")],
    "boolean": [None, True, False],
    "timestamp": [None, *(datetime(2024, 1, 1, at, at, tzinfo=UTC) for at in (0, 1, 2, 3))],
    "wild": [None, 0.0, -0.0, 1.5, 1.5, 2.0, float("nan"), float("inf"), float("-inf")],
    "cased": [None, "", "a", "A", "a ", "b", "B", "ab"],
}
COLUMNS = {
    "t0": {"k": "int", "s": "string", "d": "decimal"},
    "t1": {"k": "int", "x": "double", "b": "boolean"},
    "t2": {"s": "string", "j": "int", "t": "timestamp"},
    "t3": {"k": "int", "j": "int"},
    "t4": {"s": "string", "d": "decimal", "x": "double"},
}
KEY = "id"
"""The column that identifies the rows of a table with a key."""
ADDED = ("insert", "update_postimage")

Row = tuple[object, ...]


@dataclass(frozen=True)
class Changing:
    """A table. `epochs` has the changes of each: a kind (`insert`, ...) and a row. One that only grows has inserts."""

    name: str
    columns: dict[str, str]
    key: tuple[str, ...] | None
    changes: bool
    epochs: tuple[tuple[tuple[str, Row], ...], ...]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(name, TYPES[kind]) for name, kind in self.columns.items()])

    def files(self) -> list[pa.Table]:
        """What comes in, a table for each epoch."""
        fields = [*self.schema, *([pa.field(CHANGE_TYPE, pa.string())] if self.changes else [])]
        return [
            _table(pa.schema(fields), [(*row, kind) if self.changes else row for kind, row in epoch])
            for epoch in self.epochs
        ]

    def rows(self, epochs: int) -> pa.Table:
        """What the table has after so many epochs."""
        rows: list[Row] = []
        for kind, row in (change for epoch in self.epochs[:epochs] for change in epoch):
            if kind in ADDED:
                rows.append(row)
            else:
                rows.pop(next(at for at, other in enumerate(rows) if _same(other, row)))
        return _table(self.schema, rows)


@st.composite
def tables(draw: st.DrawFn, name: str, columns: dict[str, str]) -> Changing:
    """A table in one of three ways: rows only come, rows have a key, or rows may be equal and go."""
    kind = draw(st.sampled_from(["appends", "appends", "key", "bag"]))
    drawn = st.tuples(*(st.sampled_from(VALUES[type_]) for type_ in columns.values()))
    epochs: list[tuple[tuple[str, Row], ...]] = []
    there: list[Row] = []
    number = 0
    for _ in range(draw(st.sampled_from([*range(1, EPOCHS), EPOCHS, EPOCHS]))):  # nothing new in the last ones
        changes: list[tuple[str, Row]] = []
        if kind != "appends":
            stay: list[Row] = []
            for row in there:
                becomes = draw(st.sampled_from(["stays", "stays", "goes", "changes"]))
                if becomes == "stays":
                    stay.append(row)
                elif becomes == "goes" or kind == "bag":
                    changes.append(("delete", row))
                else:
                    new = (row[0], *draw(drawn))
                    changes += [("update_preimage", row), ("update_postimage", new)]
                    stay.append(new)
            there = stay
        for values in draw(st.lists(drawn, max_size=ROWS_MAX)):
            row = (number, *values) if kind == "key" else values
            number += 1
            there.append(row)
            changes.append(("insert", row))
        epochs.append(tuple(changes))
    if kind == "key":
        return Changing(name, {KEY: "int", **columns}, (KEY,), True, tuple(epochs))
    return Changing(name, columns, None, kind == "bag", tuple(epochs))


def _table(schema: pa.Schema, rows: Sequence[Row]) -> pa.Table:
    columns = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(schema)]
    return pa.Table.from_arrays(columns, schema=schema)


def _same(one: Row, other: Row) -> bool:
    return repr(one) == repr(other)
