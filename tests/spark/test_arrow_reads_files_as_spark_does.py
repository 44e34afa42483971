"""Files of several writers, read by Arrow and by Spark: the same rows, or Arrow leaves them to Spark."""

import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from dagster_ckpt.runtime.spark.arrow_schemas import to_spark_schema
from dagster_ckpt.runtime.task.arrow_work import ArrowWork, LeftToSparkError
from dagster_ckpt.runtime.task.file_scan import FileRange, FileScan
from tests.worlds.examples import examples
from tests.worlds.value_tables import value_tables

UTC = dt.UTC
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "t": (pa.int8(), [-128, 0, 127]),
    "s": (pa.int16(), [-(2**15), 0, 2**15 - 1]),
    "i": (pa.int32(), [-(2**31), 0, 2**31 - 1]),
    "l": (pa.int64(), [-(2**63), 0, 2**63 - 1]),
    "f": (pa.float32(), [0.0, -0.0, 1.5, math.nan, math.inf]),
    "d": (pa.float64(), [0.0, -0.0, 1e300, math.nan, -math.inf]),
    "x": (pa.string(), ["", "a", "é", "\U0001f600", "a" * 300]),
    "b": (pa.bool_(), [True, False]),
    "day": (pa.date32(), [dt.date(1, 1, 1), dt.date(1582, 10, 4), dt.date(1970, 1, 1), dt.date(9999, 12, 31)]),
    "at": (
        pa.timestamp("us", "UTC"),
        [
            dt.datetime(1, 1, 1, tzinfo=UTC),
            dt.datetime(1582, 10, 10, 1, 2, 3, tzinfo=UTC),
            dt.datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC),
            dt.datetime(2024, 2, 29, 1, 2, 3, 456000, tzinfo=UTC),
        ],
    ),
    "n": (pa.timestamp("us"), [-62_135_596_800_000_000, 1_709_168_523_456_000]),
    "m": (pa.decimal128(9, 2), [Decimal("9999999.99"), Decimal("-0.01"), Decimal("0.00")]),
    "w": (pa.decimal128(38, 6), [Decimal("-1.000001"), Decimal("99999999999999999999999999999999.999999")]),
    "raw": (pa.binary(), [b"", b"\xff\x00"]),
}
OF_POLARS = ["t", "s", "i", "l", "f", "d", "x", "b", "day", "at", "n", "m", "w", "raw"]
ALL = pa.schema([pa.field(name, type_) for name, (type_, _) in VALUES.items()])


def by_arrow(file: Path, columns: pa.Schema, pieces: int = 1) -> pa.Table:
    size = file.stat().st_size
    edges = [size * number // pieces for number in range(pieces + 1)]
    ranges = [FileRange(0, 0, str(file), start, end - start, size) for start, end in pairwise(edges)]
    return pa.Table.from_batches(list(FileScan(columns, ArrowWork((), ())).read(ranges)), columns)


def by_spark(session: SparkSession, file: Path, columns: pa.Schema) -> pa.Table:
    return session.read.schema(to_spark_schema(columns)).parquet(str(file)).toArrow().cast(columns)


def check_alike(session: SparkSession, file: Path, columns: pa.Schema, pieces: int = 1) -> None:
    assert repr(by_arrow(file, columns, pieces).to_pylist()) == repr(by_spark(session, file, columns).to_pylist())


@given(value_tables(VALUES, 0, 30), st.data())
@examples(100, usual=15)
def test_files_of_arrow(
    spark_of_all: SparkSession, tmp_path_factory: pytest.TempPathFactory, rows: pa.Table, data: st.DataObject
) -> None:
    file = tmp_path_factory.mktemp("files") / "one.parquet"
    kept = data.draw(st.lists(st.sampled_from(ALL.names), unique=True))
    pq.write_table(
        rows.select([name for name in ALL.names if name in kept]) if kept else rows,
        file,
        version=data.draw(st.sampled_from(["1.0", "2.4", "2.6"])),
        data_page_version=data.draw(st.sampled_from(["1.0", "2.0"])),
        use_dictionary=data.draw(st.booleans()),
        row_group_size=data.draw(st.sampled_from([1, 3, 1000])),
        store_schema=data.draw(st.booleans()),
        use_deprecated_int96_timestamps=False,
        coerce_timestamps=data.draw(st.sampled_from([None, "ms", "us"])),
        allow_truncated_timestamps=True,
        compression=data.draw(st.sampled_from(["none", "snappy", "zstd", "gzip"])),
        store_decimal_as_integer=data.draw(st.booleans()),
    )
    check_alike(spark_of_all, file, ALL, data.draw(st.integers(1, 4)))


@given(value_tables(VALUES, 0, 30), st.data())
@examples(50, usual=5)
def test_files_of_polars(
    spark_of_all: SparkSession, tmp_path_factory: pytest.TempPathFactory, rows: pa.Table, data: st.DataObject
) -> None:
    file, columns = tmp_path_factory.mktemp("files") / "one.parquet", pa.schema([ALL.field(name) for name in OF_POLARS])
    pl.DataFrame(rows.select(OF_POLARS)).write_parquet(
        file,
        compression=data.draw(st.sampled_from(["uncompressed", "zstd"])),
        row_group_size=data.draw(st.sampled_from([2, 100])),
    )
    check_alike(spark_of_all, file, columns)


@pytest.mark.parametrize("times", ["INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"])
@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("legacy", ["true", "false"])
def test_files_of_spark(spark_of_all: SparkSession, tmp_path: Path, times: str, version: str, legacy: str) -> None:
    session = spark_of_all.newSession()
    session.conf.set("spark.sql.parquet.outputTimestampType", times)
    session.conf.set("spark.sql.parquet.writeLegacyFormat", legacy)
    longest = max(len(values) for _, values in VALUES.values()) + 1
    rows = pa.table(
        {
            name: pa.array([*values, *[None] * (longest - len(values))], type_)
            for name, (type_, values) in VALUES.items()
        }
    )
    frame = session.createDataFrame(rows, to_spark_schema(ALL)).coalesce(1)
    frame.write.option("parquet.writer.version", version).parquet(str(tmp_path / "rows"))
    [file] = (tmp_path / "rows").glob("*.parquet")
    check_alike(session, file, ALL)


OTHERS: dict[str, tuple[pa.Table, dict[str, Any], pa.Schema]] = {
    "another width": (pa.table({"a": pa.array([1], pa.int64())}), {}, pa.schema({"a": pa.int32()})),
    "no sign": (pa.table({"a": pa.array([1], pa.uint32())}), {}, pa.schema({"a": pa.int32()})),
    "a float for a double": (pa.table({"a": pa.array([1], pa.float32())}), {}, pa.schema({"a": pa.float64()})),
    "other letters": (pa.table({"A": [1]}), {}, pa.schema({"a": pa.int64()})),
    "two names alike": (pa.table({"A": [1], "a": [2]}), {}, pa.schema({"a": pa.int64()})),
    "a struct": (pa.table({"a": [{"b": 1}]}), {}, pa.schema({"a": pa.int64()})),
    "a list": (pa.table({"a": [[1]]}), {}, pa.schema({"a": pa.int64()})),
    "nanoseconds": (
        pa.table({"a": pa.array([1], pa.timestamp("ns", "UTC"))}), {}, pa.schema({"a": pa.timestamp("us", "UTC")})
    ),
    "a zone": (pa.table({"a": pa.array([1], pa.timestamp("us"))}), {}, pa.schema({"a": pa.timestamp("us", "UTC")})),
    "no zone": (pa.table({"a": pa.array([1], pa.timestamp("us", "UTC"))}), {}, pa.schema({"a": pa.timestamp("us")})),
    "another scale": (
        pa.table({"a": pa.array([Decimal("1.5")], pa.decimal128(9, 1))}), {}, pa.schema({"a": pa.decimal128(9, 2)})
    ),
    "bytes for text": (pa.table({"a": [b"a"]}), {}, pa.schema({"a": pa.string()})),
    "text for bytes": (pa.table({"a": ["a"]}), {}, pa.schema({"a": pa.binary()})),
    "an old calendar": (
        pa.table({"a": [dt.date(1500, 1, 1)]}).replace_schema_metadata({"org.apache.spark.legacyDateTime": ""}),
        {},
        pa.schema({"a": pa.date32()}),
    ),
    "an old writer": (
        pa.table({"a": [dt.date(1500, 1, 1)]}).replace_schema_metadata({"org.apache.spark.version": "2.4.5"}),
        {},
        pa.schema({"a": pa.date32()}),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rows", "options", "columns"), OTHERS.values(), ids=OTHERS)
def test_what_may_differ_is_left_to_spark(
    tmp_path: Path, rows: pa.Table, options: dict[str, Any], columns: pa.Schema
) -> None:
    file = tmp_path / "one.parquet"
    pq.write_table(rows, file, **options)
    with pytest.raises(LeftToSparkError, match=r"^(the (nested )?column a|times of)"):
        by_arrow(file, columns)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut off": lambda data: data[:-20],
    "no file of Parquet": lambda data: b"PAR1" + b"x" * 100,
    "other bytes": lambda data: data[:10] + bytes(len(data) - 60) + data[-50:],
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_refused(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    file = tmp_path / "one.parquet"
    pq.write_table(pa.table({"a": list(range(1000))}), file)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises((pa.ArrowException, OSError)):
        by_arrow(file, pa.schema({"a": pa.int64()}))
