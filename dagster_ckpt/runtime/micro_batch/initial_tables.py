"""What the table is that a stream begins with: its rows and a digest of each column.

A stream that goes back to epoch 0, or is rebuilt, reads the table again. By then it may have rows that the source has
too.
"""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.protocol.manifest.manifest import ColumnDigest, InitialTable, SourceIdentity
from dagster_ckpt.protocol.redaction import redacted_file
from dagster_ckpt.runtime.declared.sources import source_text

_PATHS_MAX = 20
_WIDE = "decimal(20,0)"
"""Any hash; Spark's sum of it has room for ten billion rows."""


def describe_table(table: DataFrame) -> InitialTable:
    """What the table is now. Reads all of it once; the order of its rows and the files they are in do not matter."""
    fields = table.schema.fields
    numbered = table.toDF(*(f"c{number}" for number in range(len(fields))))
    sums = [F.sum(_hash(f"c{number}", field.dataType).cast(_WIDE)) for number, field in enumerate(fields)]
    rows, *digests = numbered.agg(F.count(F.lit(1)), *sums).collect()[0]
    paths = sorted(map(redacted_file, table.inputFiles()))
    return InitialTable(
        rows,
        tuple(
            ColumnDigest(field.name, field.dataType.simpleString(), str(digest or 0))
            for field, digest in zip(fields, digests, strict=True)
        ),
        len(paths),
        tuple(paths[:_PATHS_MAX]),
    )


def refuse_other_tables(
    asset: str, then: Mapping[SourceIdentity, InitialTable], now: Mapping[SourceIdentity, InitialTable]
) -> None:
    """Raise `InvalidPipelineError` where the table before a source is not what it was."""
    for source in then.keys() & now.keys():
        if differences := then[source].differences(now[source]):
            raise InvalidPipelineError(
                "the table that the stream began with has other rows now; with these, rows that the source has too "
                "would count twice, and others not at all: give `initial` the rows that it had then (by a filter, or "
                "an older version of the table). To begin with the table as it is, begin a stream under another name, "
                f"fork(..., epoch=0), whose source begins where the table ends. asset={asset}, "
                f"source={source_text(source)}, {', '.join(differences)}"
            )


def _hash(column: str, type_: DataType) -> Column:
    # Spark hashes no maps.
    return F.xxhash64(F.to_json(F.struct(column)) if _has_map(type_) else F.col(column))


def _has_map(type_: DataType) -> bool:
    if isinstance(type_, StructType):
        return any(_has_map(field.dataType) for field in type_.fields)
    return isinstance(type_, MapType) or (isinstance(type_, ArrayType) and _has_map(type_.elementType))
