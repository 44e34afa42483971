"""Functions over a partition: the rows of each key with columns that are computed from the rows beside them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flat, take, take_array
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators.operator import NONE_LATE, Changes, EpochContext, LiveRows, Operator, Origins
from dagster_ckpt.operators.over import Function, Over
from dagster_ckpt.operators.rows.over import over_checks
from dagster_ckpt.operators.rows.over.elements import ROWS, Elements
from dagster_ckpt.operators.rows.over.over_checks import STEP
from dagster_ckpt.operators.rows.over.reach import Reach
from dagster_ckpt.operators.rows.over.region import Region, region_of
from dagster_ckpt.operators.rows.over.values import Value
from dagster_ckpt.operators.shared.bounded.lookups import BatchSize
from dagster_ckpt.operators.shared.checks import updating_checks
from dagster_ckpt.operators.shared.net_changes import inserts, kept_rows
from dagster_ckpt.operators.shared.ranked.order_by import RowOrder, order_columns
from dagster_ckpt.operators.shared.ranked.ordered_tree import COPIES, NodeRows, OrderedTree
from dagster_ckpt.operators.shared.zsets.epoch_rows import EpochRows
from dagster_ckpt.operators.shared.zsets.zset import ZSet
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline

NAME = STEP
ORDERED = "ordered"
"""The state table with the rows in their order."""
ARRIVED = "arrived"
"""The rows of the epoch, net."""
EMITTED = "emitted"
"""The changes of the epoch, net."""
_ROOM_BYTES = 1 << 11
"""The assumed size of what is read for a row until the first rows are known."""


@dataclass(frozen=True)
class OverPartition(Operator):
    """The rows of an input with the values of functions over each one's partition, as rows that come and go.

    Rows that are equal in the order columns are ordered by all columns (`row_order`), so the result does not depend on
    the order of arrival. Only rows that come, go or get other values are emitted. The rows of one partition that an
    epoch touches (see `Reach`) are in memory at once.
    """

    pipeline: Pipeline
    tree: OrderedTree
    values: tuple[Value, ...]
    reach: Reach
    arrived: EpochRows
    emitted: EpochRows

    @classmethod
    def build(
        cls,
        keys: tuple[str, ...],
        source: InputSpec,
        by: Any,
        functions: Mapping[str, Over],
        *,
        input_key: tuple[str, ...] | None = None,
        updating: bool = False,
        where: str | None = None,
    ) -> "OverPartition":
        """Check the operator; raises `InvalidPipelineError`. The output has the input's columns, then the functions'.

        `by` is the order, see `order_columns`; the other options are those of `Top.build`.
        """
        if updating:
            updating_checks.check_changes(source.schema)
        schema = pa.schema([field for field in source.schema if not (updating and field.name == CHANGE_TYPE)])
        order = order_columns(STEP, by, schema)
        over_checks.check_rows(keys, schema, order)
        over_checks.check_functions(functions, keys, schema, order)
        values, reach = _values(functions, schema)
        output = pa.schema([*schema, *(value.output for value in values)])
        more = _beside(values)
        over_checks.check_output(schema, output, [field.name for field in more])
        key_fields, others = [schema.field(key) for key in keys], [each for each in schema if each.name not in keys]
        order_of_rows = RowOrder(order, tuple(field.name for field in others))
        tree = OrderedTree.of(ORDERED, key_fields, others, order_of_rows, more)
        arrived = EpochRows.of(ARRIVED, key_fields, others)
        emitted = EpochRows.of(EMITTED, key_fields, [*others, *(value.output for value in values)])
        pipeline = Pipeline(
            operator=NAME,
            parameters={
                "by": [column.spelling() for column in order],
                "functions": [{"name": name, **function.spelling()} for name, function in functions.items()],
                "input_key": None if input_key is None else list(input_key),
                updating_checks.ROW_KEY: _row_key(functions, input_key),
                **(updating_checks.parameters(where) if updating else {}),
            },
            inputs=(source,),
            keys=keys,
            tables=(tree.spec, arrived.spec, emitted.spec),
            output=output,
        )
        return cls(pipeline, tree, values, reach, arrived, emitted)

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline) -> "OverPartition":
        """The same operator from its fingerprint."""
        options: dict[str, Any] = pipeline.parameters
        input_key = options["input_key"]
        return cls.build(
            pipeline.keys,
            pipeline.inputs[0],
            options["by"],
            {each["name"]: Over.of(each) for each in options["functions"]},
            input_key=None if input_key is None else tuple(input_key),
            updating=options.get(updating_checks.UPDATING, False),
            where=options.get(updating_checks.WHERE),
        )

    @property
    def origins(self) -> Origins:
        """A rank is computed from the order columns, any other function from its own, and a count of rows from none."""
        ranked = [(0, column.name) for column in self.tree.order.by]
        read = dict(super().origins)
        for value in self.values:
            column, kind = value.function.column, value.function.function
            read[value.name] = [(0, column)] if column is not None else [] if kind is Function.COUNT else ranked
        return read

    def on_rows(self, number: int, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        self.arrived.add(ZSet.of_changes(hashes, rows, self.arrived.spec.keys), state, context)
        return NONE_LATE

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        for _ in self._add_rows(self.arrived.net(state, context), state, context):
            yield inserts(self.pipeline.output.empty_table())
        for piece in self.emitted.net(state, context):
            yield piece.to_changes(self.pipeline.output.names)

    def rows_kept(self, live: LiveRows) -> Iterator[tuple[int, pa.Table]]:
        for piece in live(ORDERED):  # an entry of an inner node is there 0 times
            yield 0, kept_rows(piece, flat(piece.column(COPIES)).to_numpy(), self.pipeline.inputs[0].schema)

    def _add_rows(self, pieces: Iterable[ZSet], state: State, context: EpochContext) -> Iterator[None]:
        """Add the rows, as many at once as fit: those of one key touch much the same rows."""
        batch = BatchSize(context.memory_bytes // 4, _ROOM_BYTES, growth_max=4)
        for piece in pieces:
            for part in piece.parts_by_hash(batch):
                region = region_of(self.tree, state.table(ORDERED), part, self.reach)
                batch.learn(len(part.hashes), region.bytes_read)
                self._change(region, state, context)
                yield

    def _change(self, region: Region, state: State, context: EpochContext) -> None:
        carried = self._carry(region)
        before, after = (self._elements(region, rows, carried) for rows in (region.before, region.after))
        written = region.after
        if self.tree.more:
            columns = [pa.array(after.before[after.firsts])]
            for value in self.values:
                columns += value.state_columns(after, after.firsts)
            beside = dict(zip([field.name for field in _beside_all(self.values)], columns, strict=True))
            schema = written.more.schema
            more = pa.Table.from_arrays(
                [beside[name].cast(schema.field(name).type) for name in schema.names], schema=schema
            )
            written = NodeRows(written.nodes, written.rows, written.children, written.copies, more)
        self.tree.write(
            state.table(ORDERED), region.partitions, region.leaves, region.before, written, region.origin, context
        )
        added, removed = self._output(region, after), self._output(region, before).negate()
        self.emitted.add(added.concat(removed), state, context)

    def _carry(self, region: Region) -> dict[str, pa.Array]:
        """What the first row of each run has beside it. It is there before and after, unless the run begins with it."""
        run = region.run_of_leaf[region.before.nodes]
        first = np.searchsorted(run, np.arange(len(region.in_middle)))
        first[~region.in_middle] = len(run)
        more = region.before.more
        return {
            name: take_array(
                pa.concat_arrays([flat(more.column(name)), pa.nulls(1, more.schema.field(name).type)]), first
            )
            for name in more.column_names
        }

    def _elements(self, region: Region, rows: NodeRows, carried: Mapping[str, pa.Array]) -> Elements:
        run = region.run_of_leaf[rows.nodes]
        return Elements(rows.rows, rows.copies, run, region.in_middle, carried, self.tree.order.by)

    def _output(self, region: Region, rows: Elements) -> ZSet:
        leaf_group = region.leaves.groups
        first_leaf = np.searchsorted(region.run_of_leaf, np.arange(len(region.in_middle)))
        groups = leaf_group[first_leaf[rows.run]]
        keys, others = take(region.partitions.keys, groups), take(rows.rows, rows.at)
        columns = [value.of(rows) for value in self.values]
        schema = pa.schema([self.emitted.spec.schema.field(name) for name in self.emitted.spec.keys])
        table = pa.Table.from_arrays([*keys.columns, *others.columns, *columns], schema=schema)
        return ZSet(region.partitions.hashes[groups], table, np.ones(len(groups), dtype=np.int64))


def _values(functions: Mapping[str, Over], schema: pa.Schema) -> tuple[tuple[Value, ...], Reach]:
    reach = Reach.of(list(functions.values()))
    carries = reach.behind and not reach.whole
    values = tuple(
        Value(name, each, None if each.column is None else schema.field(each.column).type, number, carries)
        for number, (name, each) in enumerate(functions.items())
    )
    return values, reach


def _beside_all(values: tuple[Value, ...]) -> list[pa.Field]:
    return [pa.field(ROWS, pa.int64()), *(field for value in values for field in value.fields)]


def _beside(values: tuple[Value, ...]) -> list[pa.Field]:
    """What is kept beside each row, once. If runs never begin in the middle, nothing."""
    if not values[0].carries:
        return []
    return list({field.name: field for field in _beside_all(values)}.values())


def _row_key(functions: Mapping[str, Over], input_key: tuple[str, ...] | None) -> list[str] | None:
    """The columns that, with the keys, identify a row of the output; None if there are none."""
    if input_key is not None:
        return list(input_key)
    numbers = [name for name, each in functions.items() if each.function is Function.ROW_NUMBER]
    return numbers[:1] or None
