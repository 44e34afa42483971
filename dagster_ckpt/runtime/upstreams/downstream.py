"""The stream that reads an upstream: what it reads, where it is, and which Spark it needs."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.protocol.change_columns import CHANGE_FIELDS
from dagster_ckpt.protocol.epochs.upstream import ROWS_A_PART
from dagster_ckpt.protocol.manifest.manifest import Pipeline
from dagster_ckpt.protocol.manifest.row_key import row_key
from dagster_ckpt.runtime.spark.arrow_schemas import to_arrow_schema, to_spark_schema
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.widening import widens

_LOG_COLUMNS = frozenset(field.name for field in CHANGE_FIELDS)
_FIRST_SPARK = (4, 2)
"""The first whose Python data sources learn from where to read on and how much: `latestOffset(start, limit)`."""


def check_spark(version: str) -> None:
    """Raise `InvalidPipelineError` where this version of Spark, such as `4.1.4`, cannot read a stream as a stream."""
    if tuple(int(part) for part in version.split(".")[:2]) < _FIRST_SPARK:
        raise InvalidPipelineError(
            "a stream that reads another stream needs Spark 4.2 or newer, whose Python data sources can limit a "
            "micro-batch: install pyspark>=4.2, or read the upstream's table in an ordinary asset. "
            f"pyspark={version}"
        )


EQUAL_ROWS = ("*",)
"""In place of a key: rows of the table may be equal in all columns."""


class Read(StrEnum):
    """What is read of an upstream: its table, with at most one change per key and batch; or its change log as it is."""

    TABLE = "table"
    CHANGES = "changes"


@dataclass(frozen=True)
class Planned:
    """What a query was planned on: the columns of the upstream that it reads, and the key of its rows.

    `key` is `table_key` the upstream's pipeline.
    """

    columns: pa.Schema
    key: tuple[str, ...] | None

    @classmethod
    def parse(cls, columns: pa.Schema, key: str) -> "Planned":
        """That of a source with these columns, whose option `key` is this."""
        names = json.loads(key)
        return cls(columns, None if names is None else tuple(names))

    def has_names_of(self, pipeline: Pipeline) -> bool:
        """Whether the table of this pipeline has all these columns by their names."""
        return _LOG_COLUMNS.union(pipeline.output.names).issuperset(self.columns.names)

    def matches(self, pipelines: Sequence[Pipeline]) -> bool:
        """Whether rows of streams with these pipelines, the newest last, match the plan.

        Columns may have been added since; rows of older epochs have nulls there. Within a column fewer fields may be
        nullable than planned.
        """
        newest = to_arrow_schema(to_spark_schema(pipelines[-1].output))
        own = [field for field in self.columns if field.name not in _LOG_COLUMNS]
        there = all(field.name in newest.names and widens(newest.field(field.name).type, field.type) for field in own)
        return there and all(table_key(pipeline) == self.key for pipeline in pipelines)


def table_key(pipeline: Pipeline) -> tuple[str, ...] | None:
    """The columns that identify a row of the table, `EQUAL_ROWS` if none do; None for a table that only grows."""
    if pipeline.appends:
        return None
    key = row_key(pipeline)
    return EQUAL_ROWS if key is None else key


@dataclass(frozen=True)
class BatchLimits:
    """The most epochs in a micro-batch, and about how many rows a part of a snapshot has, which is one too."""

    epochs_max: int
    rows_a_part: int


@dataclass(frozen=True)
class Downstream:
    """The reading stream: its folder, the store that it shares with its upstreams, and how it reads them.

    A micro-batch has at most `epochs_max` epochs, or a part of a snapshot with about `rows_a_part` rows; `tasks` tasks
    read it.
    """

    address: StoreAddress
    folder: str
    epochs_max: int
    tasks: int
    rows_a_part: int = ROWS_A_PART

    @property
    def limits(self) -> BatchLimits:
        """What a micro-batch has at most."""
        return BatchLimits(self.epochs_max, self.rows_a_part)
