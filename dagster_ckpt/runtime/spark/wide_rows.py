"""Spark's settings for rows of any width: few bytes in an Arrow batch, and plans that are made quickly."""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"

_ROWS_MAX = 16_384
_ROWS_OF_TEXT_KEYS_MAX = 2_048
"""From about 2,000 rows on, larger batches are no faster."""

_UNCOUNTED = 2**31 - 1

_INFERS = "spark.sql.constraintPropagation.enabled"

_COLUMNS_MAX = 500
"""Up to here what Spark infers costs less than a second an epoch, and saves a join with a static table some rows."""


def limit_batches(
    session: SparkSession, inputs: Sequence[pa.Schema], keys: Iterable[pa.DataType], bytes_max: int
) -> None:
    """Limit the batches of the session's next query to about `bytes_max` of the columns of its inputs.

    Spark can count a batch's bytes after each row, which doubles its work per row. So that is switched on only where a
    value, of a key too, may have any length. For columns of fixed width a number of rows is enough. `keys` are the
    types of all key columns.

    The user's functions in the plan get such batches too. Smaller limits of the session stay.
    """
    widths = [_width(field.type) for schema in inputs for field in schema]
    row_bytes = sum(width or 0 for width in widths)
    rows = min(_ROWS_MAX, bytes_max // max(1, row_bytes))
    if any(_width(key) is None for key in keys):
        rows = min(rows, _ROWS_OF_TEXT_KEYS_MAX)
    counted = None in widths
    _set_at_most(session, _ROWS, max(1, rows))
    _set_at_most(session, _BYTES, min(bytes_max, _UNCOUNTED - 1) if counted else _UNCOUNTED)


def plan_wide_rows(session: SparkSession, inputs: Sequence[pa.Schema]) -> None:
    """Let the session's next query infer no conditions from its columns where one of its inputs has many.

    For each column that is renamed, Spark looks at all the conditions that it has inferred of those before: of 2,000
    columns for half a minute in each epoch. What is inferred saves work and changes no row.
    """
    if max(map(len, inputs)) > _COLUMNS_MAX:
        session.conf.set(_INFERS, "false")


def _set_at_most(session: SparkSession, name: str, most: int) -> None:
    """Set it to `most`, unless it is less already; Spark takes 0 and below as no limit."""
    given = session.conf.get(name, None)
    if given is None or not 0 < _number(session, given) < most:
        session.conf.set(name, str(most))


def _number(session: SparkSession, text: str) -> int:
    """The number in a setting, which may have one of Spark's byte units."""
    try:
        return int(text)
    except ValueError:
        jvm: Any = session._jvm  # noqa: SLF001  (Spark exposes it nowhere else)
        return int(jvm.org.apache.spark.network.util.JavaUtils.byteStringAsBytes(text))


def _width(type_: pa.DataType) -> int | None:
    """The bytes of a value; None for types of variable width."""
    try:
        return -(-int(type_.bit_width) // 8)
    except ValueError:
        return None
