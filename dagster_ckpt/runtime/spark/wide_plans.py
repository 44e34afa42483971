"""How Spark plans an epoch of wide rows: in time that grows with their columns, not with the square of these."""

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

_INFERS = "spark.sql.constraintPropagation.enabled"

_COLUMNS_MAX = 500
"""Up to here what Spark infers costs less than a second an epoch, and saves a join with a static table some rows."""


def plan_wide_rows(session: SparkSession, inputs: Sequence[pa.Schema]) -> None:
    """Let the session's next query infer no conditions from its columns where one of its inputs has many.

    For each column that is renamed, Spark looks at all the conditions that it has inferred of those before: of 2,000
    columns for half a minute in each epoch. What is inferred saves work and changes no row.
    """
    if max(map(len, inputs)) > _COLUMNS_MAX:
        session.conf.set(_INFERS, "false")
