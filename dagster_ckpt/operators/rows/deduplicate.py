"""Deduplicate: the first row of each key, or the newest."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.lsm.columns import Positions
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators.operator import Changes, EpochContext, Operator, StreamTable
from dagster_ckpt.operators.rows.first_rows import FirstRows
from dagster_ckpt.operators.rows.kept_rows import KeptRows
from dagster_ckpt.operators.shared import expiry_checks
from dagster_ckpt.operators.shared.checks import pipeline_checks
from dagster_ckpt.operators.shared.late_rows import DROP, late_tables
from dagster_ckpt.operators.shared.row_order import check_total_order
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline

NAME = "deduplicate"
DUPLICATES = "duplicates"
"""Rows of the epoch, late ones excluded, that did not add a new key."""
COUNTERS = (DUPLICATES,)


class Keep(StrEnum):
    """Which row of a key is kept."""

    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True)
class Deduplicate(Operator):
    """One row of each key.

    First: the row with the least event time in the epoch in which the key first arrives; rows of later epochs never
    replace it. Last: the row with the greatest event time of all epochs. `by` columns take precedence over the event
    time, in their order; by them the first row too is that of all epochs. Ties are broken by the other columns
    (`RowChoice`), so the result does not depend on the order or the batching of an epoch's rows.

    After `expire_after_us` of event time a key expires, and a later row starts it again. The first rows are then an
    append-only table, with one row each time a key starts; the last rows leave the table. Rows below the watermark are
    then late, and so are rows without an event time, since they could never expire.
    """

    pipeline: Pipeline
    rows: KeptRows | FirstRows

    @classmethod
    def build(
        cls,
        keys: tuple[str, ...],
        source: InputSpec,
        keep: str = Keep.FIRST,
        event_time: str | None = None,
        expire_after_us: int | None = None,
        late: str = DROP,
        by: tuple[str, ...] = (),
    ) -> "Deduplicate":
        """Check the operator; raises `InvalidPipelineError`. The output has all columns of the input."""
        _check(keys, source.schema, keep, event_time, expire_after_us, late)
        _check_by(by, keys, source.schema, keep, event_time, expire_after_us)
        rows = _rows(source.schema, keys, Keep(keep), by, event_time, expire_after_us)
        expiry_checks.check_names_are_free(source.schema, rows.extra_columns)
        kept_late = late_tables(late, [source], [event_time])
        pipeline = Pipeline(
            operator=NAME,
            parameters={
                "keep": str(keep),
                "event_time": event_time,
                "expire_after_us": expire_after_us,
                "late": str(late),
                **({"by": list(by)} if by else {}),
            },
            inputs=(source,),
            keys=keys,
            tables=(*rows.tables, *kept_late),
            output=source.schema,
            appends=rows.table is None,
        )
        return cls(pipeline, rows)

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline) -> "Deduplicate":
        """The same operator from its fingerprint."""
        options: dict[str, Any] = pipeline.parameters
        return cls.build(
            pipeline.keys,
            pipeline.inputs[0],
            options["keep"],
            options["event_time"],
            options["expire_after_us"],
            options["late"],
            tuple(options.get("by", ())),
        )

    @property
    def horizon_us(self) -> int | None:
        return self.rows.horizon_us

    @property
    def table(self) -> StreamTable | None:
        return self.rows.table

    def on_rows(self, number: int, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        late = self.rows.on_rows(hashes, rows, state, context)
        context.counters[DUPLICATES] += rows.num_rows - len(late)
        return late

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        for changes, new_keys in self.rows.finish(state, context):
            context.counters[DUPLICATES] -= new_keys
            yield changes


def _check(
    keys: tuple[str, ...],
    schema: pa.Schema,
    keep: str,
    event_time: str | None,
    expire_after_us: int | None,
    late: str,
) -> None:
    pipeline_checks.check_columns(schema)
    pipeline_checks.check_storable(schema)
    pipeline_checks.check_keys(keys, schema)
    pipeline_checks.check_event_time(event_time, schema)
    check_total_order(schema)
    if keep not in tuple(Keep):
        raise InvalidPipelineError(f"keep must be 'first' or 'last'. keep={keep!r}")
    expiry_checks.check_expiry("deduplicate", expire_after_us, late, event_time, schema)


def _check_by(
    by: tuple[str, ...],
    keys: tuple[str, ...],
    schema: pa.Schema,
    keep: str,
    event_time: str | None,
    expire_after_us: int | None,
) -> None:
    """`by` can order the rows of a key, and a row that expires is never replaced by an older one."""
    for name in by:
        pipeline_checks.check_column(name, "deduplicate by=", schema)
        if name in keys or by.count(name) > 1:
            raise InvalidPipelineError(
                "order the rows of a key by columns other than the key's, each once. "
                f"column={name}, by={', '.join(by)}, keys={', '.join(keys)}"
            )
    if keep == Keep.FIRST:
        if by and expire_after_us is not None:
            raise InvalidPipelineError(
                "with expire_after the first row that is seen of a key comes out and stays, though a later epoch may "
                f"have one that is earlier by= a column: leave one of the two out. by={', '.join(by)}"
            )
        return
    if not by and event_time is None:
        raise InvalidPipelineError(
            "deduplicate with keep='last' needs an order: call with_watermark(column, delay) before it, or name the "
            "columns that say which row is the newest, such as by='version'. by=None, event_time=None"
        )
    if expire_after_us is not None and by and by[0] != event_time:
        raise InvalidPipelineError(
            "expire_after uses the event time of the kept row, and a row that is newer by= another column may have "
            f"an earlier one: leave expire_after out, or put the event time first. by={', '.join(by)}, "
            f"event_time={event_time}"
        )


def _rows(
    schema: pa.Schema,
    keys: tuple[str, ...],
    keep: Keep,
    by: tuple[str, ...],
    event_time: str | None,
    expire_after_us: int | None,
) -> KeptRows | FirstRows:
    order = tuple(dict.fromkeys((*by, *([] if event_time is None else [event_time]))))
    if keep is Keep.LAST:
        return KeptRows.newest(schema, keys, order, expire_after_us)
    if by:
        return KeptRows.earliest(schema, keys, order)
    if expire_after_us is None:
        return KeptRows.first_seen(schema, keys, order)
    assert event_time is not None, "checks require an event time for keys that expire"
    return FirstRows(schema, keys, event_time, expire_after_us)
