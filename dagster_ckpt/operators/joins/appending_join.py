"""What all joins share: two inputs, and output that is appended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from dagster_ckpt.operators.joins.join_types import LEFT, JoinType
from dagster_ckpt.operators.joins.joined_rows import PAIRS, ROWS_UNMATCHED, Output
from dagster_ckpt.operators.joins.sides import Side
from dagster_ckpt.operators.operator import KEYS, EpochContext, Operator, Origins
from dagster_ckpt.operators.shared.late_rows import DROP, late_tables
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline, StateTableSpec

COUNTERS = (PAIRS, ROWS_UNMATCHED)


@dataclass(frozen=True)
class AppendingJoin(Operator):
    """The part of `Operator` that does not depend on which rows match."""

    pipeline: Pipeline
    how: JoinType
    output: Output

    @property
    def origins(self) -> Origins:
        return self.output.origins

    def emit_unmatched(self, number: int, rows: pa.Table, context: EpochContext) -> pa.Table:
        """The output for unmatched rows of an input."""
        context.counters[ROWS_UNMATCHED] += rows.num_rows
        return self.output.alone(number, rows)


def pipeline_of(
    operator: str,
    inputs: Sequence[InputSpec],
    sides: tuple[Side, Side],
    options: Mapping[str, object],
    tables: Sequence[StateTableSpec],
    output: Output,
    late: str,
) -> Pipeline:
    """The fingerprint of a join. `options` are its parameters, `tables` the state of both sides.

    `inputs` have all columns. The pipeline's have those that `on_rows` reads, or all if late rows are kept.
    """
    if late == DROP:
        inputs = [replace(source, schema=side.schema) for source, side in zip(inputs, sides, strict=True)]
    times = [side.time for side in sides]
    return Pipeline(
        operator=operator,
        parameters={
            KEYS: [list(side.keys) for side in sides],
            "event_times": times,
            **options,
            "late": str(late),
        },
        inputs=tuple(inputs),
        keys=tuple(sides[LEFT].keys),
        tables=(*tables, *late_tables(late, inputs, times)),
        output=output.schema,
        appends=True,
    )
