"""The rows of keys before an epoch, as a column of its run: this makes the run the epoch's change log too."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import flat, mask_of, take, taken
from dagster_ckpt.lsm.integer_widths import widen
from dagster_ckpt.lsm.missing_columns import stand_in
from dagster_ckpt.lsm.runs.run import Run
from dagster_ckpt.lsm.table import Found


def with_before_images(run: Run, before: Found, keys: Sequence[str]) -> Run:
    """The run with the rows of its keys before the epoch; `before` has them in the order of the run's rows."""
    values = [name for name in before.rows.column_names if name not in keys]
    # Row numbers in `before.rows`, which has no row for an absent key; there any number will do, since it is masked.
    at = pa.array(np.cumsum(before.present) - 1, mask=~before.present)
    columns = [flat(before.rows.column(name)).take(at) for name in values]
    fields = [before.rows.schema.field(name).with_nullable(True) for name in values]
    absent = pa.array(~before.present)
    if not values:  # else Arrow would not know how many rows there are
        bits = pa.array(before.present).buffers()[1]
        return replace(run, before_column=pa.Array.from_buffers(pa.struct([]), len(run), [bits]))
    return replace(run, before_column=pa.StructArray.from_arrays(columns, fields=fields, mask=absent))


def before_images_of(run: Run, keys: Sequence[str], schema: pa.Schema) -> Found:
    """The rows that the keys of a logged run had before its epoch, in the run's order. `schema` is the table's."""
    assert run.before is not None, "the run is not a logged one"
    present = mask_of(run.before.is_valid())
    at = np.flatnonzero(present)
    there = take(run.columns(keys), at)
    before = run.before
    known = {field.name: before.field(field.name) for field in before.type}

    def image(field: pa.Field) -> pa.Array:
        # A file that is older than a column does not have it.
        stored = known[field.name] if field.name in known else stand_in(field.name, known, len(before))
        return widen(taken(stored, at), field.type)

    columns = [flat(there.column(field.name)) if field.name in keys else image(field) for field in schema]
    return Found(present, pa.Table.from_arrays(columns, schema=schema))
