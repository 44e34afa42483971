"""A regular join as two tables that change, and what it must give: loops over the tables as they are."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from dagster_ckpt.operators.joins.regular.regular_join import RegularJoin
from dagster_ckpt.operators.operator import Operator
from dagster_ckpt.operators.step import OperatorStep
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from tests.unit.operators.changing_streams import Bag, Batch, Changing, Row, bag_of, sum_of

KIND = pa.field("_change_type", pa.string(), nullable=False)
LEFT = pa.schema([("x", pa.int64()), ("k", pa.string()), ("i", pa.int32())])
RIGHT = pa.schema([("i", pa.int32()), ("k", pa.string()), ("y", pa.float64())])
RIGHT_OTHER = pa.schema([("j", pa.int32()), ("m", pa.string()), ("y", pa.float64())])
"""As the right input, with other names of its keys."""
TYPES = ("inner", "left", "right", "full", "semi", "anti")


def regular_join(
    how: str,
    changes: tuple[bool, bool] = (True, True),
    schemas: Sequence[pa.Schema] = (LEFT, RIGHT),
    keys: Sequence[tuple[str, ...]] = (("k", "i"), ("k", "i")),
    row_keys: Sequence[tuple[str, ...] | None] = (None, None),
) -> RegularJoin:
    inputs = [
        InputSpec((), schema.append(KIND) if its else schema) for schema, its in zip(schemas, changes, strict=True)
    ]
    return RegularJoin.build(inputs, keys, how, row_keys)


def joined(
    lefts: Sequence[Row], rights: Sequence[Row], how: str, keys: Sequence[tuple[str, ...]], output: pa.Schema
) -> list[Row]:
    """The join in plain Python. `output` has the columns of both sides, a key of one name once."""

    def matches(left: Row, right: Row) -> bool:
        pairs = list(zip((left[key] for key in keys[0]), (right[key] for key in keys[1]), strict=True))
        return all(mine is not None and mine == theirs for mine, theirs in pairs)

    def row(left: Row | None, right: Row | None) -> Row:
        return {
            name: next((each[name] for each in (left, right) if each and name in each), None) for name in output.names
        }

    pairs = [(left, right) for left in lefts for right in rights if matches(left, right)]
    alone_left = [left for left in lefts if not any(matches(left, right) for right in rights)]
    alone_right = [right for right in rights if not any(matches(left, right) for left in lefts)]
    match how:
        case "semi":
            return [row(left, None) for left in lefts if left not in alone_left]
        case "anti":
            return [row(left, None) for left in alone_left]
    found = [row(left, right) for left, right in pairs]
    if how in ("left", "full"):
        found += [row(left, None) for left in alone_left]
    if how in ("right", "full"):
        found += [row(None, right) for right in alone_right]
    return found


@dataclass
class Joined:
    """A join and its inputs' tables. After each epoch the output is compared with the join of the tables.

    `kept`: the join is the last step of a stream, and its table is compared too.
    """

    join: RegularJoin
    kept: bool = False
    tasks: Any = ()
    memory_bytes: int = 1 << 20
    piece: int = 1000
    tables: tuple[list[Row], list[Row]] = field(default_factory=lambda: ([], []))

    def __post_init__(self) -> None:
        operator: Operator = OperatorStep.of(self.join).with_table() if self.kept else self.join
        self.stream = Changing(operator, self.tasks, self.memory_bytes, piece=self.piece)

    def epoch(self, *changes: tuple[int, str, Row], size: int = 100) -> list[Row]:
        """An epoch of changes (+ or -) of the inputs' rows, in calls of so many rows."""
        for number, sign, row in changes:
            its = self.tables[number]
            if sign == "+":
                its.append(row)
        for number, sign, row in changes:
            if sign == "-":
                self.tables[number].remove(row)
        batches = [
            each
            for start in range(0, len(changes), size)
            for number in (0, 1)
            if (each := self._batch(number, changes[start : start + size])) is not None
        ]
        found = self.stream.epoch(*batches)
        output = self.join.pipeline.output
        wanted = bag_of(joined(*self.tables, self.join.how, self._keys, output))
        assert sum_of(self.stream.changes) == wanted, "the changes make the join of the tables"
        if self.kept and not self.join.pipeline.appends:
            assert bag_of(self.stream.table()) == wanted
        return found

    @property
    def bag(self) -> Bag:
        return sum_of(self.stream.changes)

    @property
    def _keys(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        left, right = self.join.sides
        return left.keys, right.keys

    def _batch(self, number: int, changes: Sequence[tuple[int, str, Row]]) -> Batch | None:
        schema = self.join.pipeline.inputs[number].schema
        kinds = {"+": "insert", "-": "delete"}
        rows = [{**row, "_change_type": kinds[sign]} for its, sign, row in changes if its == number]
        if not rows:
            return None
        return number, pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema=schema)
