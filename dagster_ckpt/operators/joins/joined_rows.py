"""The output of a join: columns of the left, then of the right; key columns of the same name are one column."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flat, take_array
from dagster_ckpt.operators.joins.join_types import LEFT, RIGHT, JoinType
from dagster_ckpt.operators.joins.sides import JoinSide
from dagster_ckpt.operators.operator import InputColumn

PAIRS = "pairs"
"""Pairs of rows emitted in the epoch."""
ROWS_UNMATCHED = "rows_unmatched"
"""Unmatched rows emitted in the epoch."""

_PAIRS_MIN, _PAIRS_MAX = 1 << 10, 1 << 20
"""Bounds for the pairs to build at once: few enough for memory, but not one by one for wide rows."""


@dataclass(frozen=True)
class OutputColumn:
    """An output column, and its source in the left input, the right one, or both."""

    field: pa.Field
    left: str | None
    right: str | None

    @property
    def of_sides(self) -> tuple[str | None, str | None]:
        """The source columns by input number."""
        return self.left, self.right


@dataclass(frozen=True)
class Output:
    """The columns of a join's output."""

    columns: tuple[OutputColumn, ...]

    @property
    def schema(self) -> pa.Schema:
        """The output's columns."""
        return pa.schema([column.field for column in self.columns])

    @property
    def origins(self) -> dict[str, Sequence[InputColumn]]:
        """For each column those of the inputs that it has: both for a key of one name."""
        return {
            column.field.name: [(number, name) for number, name in enumerate(column.of_sides) if name is not None]
            for column in self.columns
        }

    def pairs(self, lefts: pa.Table, left_at: Positions, rights: pa.Table, right_at: Positions) -> pa.Table:
        """One row for each pair: the left rows at `left_at` with the right ones at `right_at`."""
        return self._table(
            take_array(flat(lefts.column(column.left)), left_at)
            if column.left is not None
            else take_array(flat(rights.column(column.right)), right_at)
            for column in self.columns
        )

    def alone(self, number: int, rows: pa.Table) -> pa.Table:
        """One row for each row of this input, null in the columns of the other."""
        return self._table(
            pa.nulls(rows.num_rows, column.field.type)
            if (name := column.of_sides[number]) is None
            else flat(rows.column(name))
            for column in self.columns
        )

    def _table(self, columns: Iterator[pa.Array]) -> pa.Table:
        return pa.Table.from_arrays(list(columns), schema=self.schema)


def output_of(left: JoinSide, right: JoinSide, how: JoinType, after_key: Sequence[pa.Field] = ()) -> Output:
    """The output of a join of these sides; `after_key` are additional columns that the rows of both sides have.

    Those follow the last key column of the left. A semi or an anti join has only the left's columns.
    """
    paired = dict(zip(left.keys, right.keys, strict=True))
    one = {mine: theirs for mine, theirs in paired.items() if mine == theirs and how.gives_pairs}
    columns = [
        OutputColumn(_field(field, right, one.get(field.name), how), field.name, one.get(field.name))
        for field in left.schema
    ]
    after = 1 + max(left.schema.names.index(key) for key in left.keys)
    columns[after:after] = [OutputColumn(field, field.name, field.name) for field in after_key]
    if how.gives_pairs:
        columns += [
            OutputColumn(field.with_nullable(field.nullable or how.keeps_unmatched(LEFT)), None, field.name)
            for field in right.schema
            if field.name not in one
        ]
    return Output(tuple(columns))


def pairs_at_once(lefts: pa.Table, rights: pa.Table, bytes_max: int) -> int:
    """The number of pairs of such rows whose output has about `bytes_max` bytes."""
    row_bytes = sum(rows.nbytes / max(1, rows.num_rows) for rows in (lefts, rights))
    return int(min(max(bytes_max / max(1.0, row_bytes), _PAIRS_MIN), _PAIRS_MAX))


def _field(field: pa.Field, right: JoinSide, theirs: str | None, how: JoinType) -> pa.Field:
    """A left column as an output field; `theirs` is the right's key column that it is merged with."""
    missing = how.keeps_unmatched(RIGHT) and (theirs is None or right.schema.field(theirs).nullable)
    return field.with_nullable(field.nullable or missing)
