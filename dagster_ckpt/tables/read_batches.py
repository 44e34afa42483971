"""Rows as a reader wants them: with its columns, in batches of bounded size."""

from collections.abc import Iterator

import pyarrow as pa

from dagster_ckpt.state.committed.change_log import BATCH_ROWS, in_schema


def batches_of(rows: pa.Table, schema: pa.Schema, **constants: object) -> Iterator[pa.RecordBatch]:
    """The rows with these columns and types; `constants` are columns that are the same in all rows."""
    for name, value in constants.items():
        if name in schema.names:
            field = schema.field(name)
            rows = rows.append_column(field, pa.repeat(pa.scalar(value, field.type), rows.num_rows))
    yield from in_schema(rows, schema).to_batches(max_chunksize=BATCH_ROWS)
