"""Which sources of a stream Arrow reads in place of Spark, and why it does not read the others."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from dagster_ckpt.runtime.catalyst.query_plan import Leaf, SourceOptions, leaves, node_of, source_options
from dagster_ckpt.runtime.catalyst.values import Node
from dagster_ckpt.runtime.declared.arrow_plan import arrow_work
from dagster_ckpt.runtime.spark.arrow_schemas import to_arrow_schema
from dagster_ckpt.runtime.task.arrow_work import ArrowWork, LeftToSparkError, used_columns
from dagster_ckpt.runtime.task.file_scan import FileScan

if TYPE_CHECKING:
    from typing import Any

    from pyspark.sql import DataFrame, SparkSession

_OF_LISTING = {
    "cleansource",
    "discardcachedinputratio",
    "filenameonly",
    "latestfirst",
    "maxbytespertrigger",
    "maxcachedfiles",
    "maxfileage",
    "maxfilespertrigger",
    "mergeschema",
    "path",
    "pathglobfilter",
    "recursivefilelookup",
}
"""The options of a file source that say which files are read and when, not how."""
_SETTINGS = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.parquet.binaryAsString": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.fieldId.read.enabled": "false",
    "spark.sql.parquet.int96AsTimestamp": "true",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96TimestampConversion": "false",
}
"""Settings by which Spark reads Parquet otherwise than Arrow, each with the value by which it does not."""
_PADDED = "__CHAR_VARCHAR_TYPE_STRING"
"""What Spark writes beside a column of the types CHAR and VARCHAR."""


@dataclass(frozen=True)
class SourceWork:
    """What a step reads of an input's only source: by this work, of the columns at these places."""

    leaf: Leaf
    source: SourceOptions
    work: ArrowWork
    used: Sequence[int]

    @property
    def schema(self) -> "dict[str, Any]":
        """All columns as Spark has them, in the form of its JSON."""
        relation: Any = self.leaf.relation.java
        found: dict[str, Any] = json.loads(str(relation.schema().json()))
        return found


def source_work(frame: "DataFrame", names: Sequence[str]) -> SourceWork:
    """What Arrow does for these columns of an input. Raises `LeftToSparkError` where it does not."""
    plan = node_of(frame)
    added = list(_above_leaf(plan))
    leaf, *others = leaves(plan)
    if others or not leaf.relation.kind.startswith("StreamingRelation"):
        raise LeftToSparkError("an input reads several sources")
    work, used = used_columns(arrow_work(added, leaf.relation.output, plan.output, names))
    return SourceWork(leaf, source_options(leaf), work, used)


def file_scan(found: SourceWork, session: "SparkSession") -> FileScan:
    """The files of a source, as Arrow reads them. Raises `LeftToSparkError` where it does not."""
    _check_files(session, found)
    fields = found.schema["fields"]
    return FileScan(_in_arrow([fields[place] for place in found.used]), found.work)


def _above_leaf(plan: Node) -> Iterator[Node]:
    """The nodes above the source, the last first."""
    while plan.children:
        yield plan
        if len(plan.children) > 1:
            raise LeftToSparkError(f"Spark computes {plan.kind}")
        plan = plan.child


def _check_files(session: "SparkSession", of: SourceWork) -> None:
    """Raise `LeftToSparkError` for files that Spark is told to read otherwise."""
    found = of.source
    if not found.reads_files or found.format != "parquet":
        raise LeftToSparkError(f"the format of a source is {found.format}")
    options = sorted(found.options.keys() - _OF_LISTING)
    if options:
        raise LeftToSparkError(f"the reader has the option {options[0]}")
    relation: Any = of.leaf.relation.java
    if not relation.dataSource().sourceInfo().partitionColumns().isEmpty():
        raise LeftToSparkError("columns are in the names of folders")
    for name, value in _SETTINGS.items():
        there = str(session.conf.get(name))
        if there.lower() != value.lower():
            raise LeftToSparkError(f"{name} is {there}")


def _in_arrow(fields: Sequence["Any"]) -> pa.Schema:
    found: list[pa.Field] = []
    for each in fields:
        if _PADDED in each.get("metadata", {}):
            raise LeftToSparkError(f"the column {each['name']} is a CHAR or a VARCHAR")
        found.append(pa.field(each["name"], _arrow_type(each)))
        if pa.types.is_nested(found[-1].type):
            raise LeftToSparkError(f"the column {each['name']} is nested")
    return pa.schema(found)


def _arrow_type(field: "Any") -> pa.DataType:
    try:
        return to_arrow_schema(StructType.fromJson({"type": "struct", "fields": [field]})).field(0).type
    except (PySparkException, ValueError):
        raise LeftToSparkError(f"the column {field['name']} has a type that Arrow lacks") from None
