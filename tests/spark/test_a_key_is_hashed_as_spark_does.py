"""Readers without Spark find rows by the hash that Spark's shuffle gave them."""

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from dagster_ckpt.lsm.key_hash import key_hashes

ROWS = 500


def test_columns_of_all_types_that_a_key_may_have(spark: SparkSession) -> None:
    keys = some_keys(random.Random(7))
    frame = spark.createDataFrame(keys)
    hashed = frame.select(*(F.xxhash64(name).alias(name) for name in keys.column_names)).toArrow()
    for name in keys.column_names:
        assert np.array_equal(hashed[name].to_numpy().view(np.uint64), key_hashes(keys.select([name]))), name
    together = frame.select(F.xxhash64(*keys.column_names).alias("h")).toArrow()
    assert np.array_equal(together["h"].to_numpy().view(np.uint64), key_hashes(keys))


def some_keys(chance: random.Random) -> pa.Table:
    def column(make: object, type_: pa.DataType) -> pa.Array:
        assert callable(make)
        return pa.array([None if chance.random() < 0.1 else make() for _ in range(ROWS)], type_)

    def number(bits: int) -> int:
        value = chance.getrandbits(chance.randint(1, bits - 1))
        return value if chance.random() < 0.5 else -value - 1

    def moment() -> datetime:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=number(54))

    def digits(most: int) -> Decimal:
        return Decimal(chance.randint(-(10 ** chance.randint(1, most)), 10 ** chance.randint(1, most))).scaleb(-2)

    return pa.table(
        {
            "s": column(lambda: "aé€" * chance.randint(0, 30) + "x" * chance.randint(0, 5), pa.string()),
            "b": column(lambda: chance.randbytes(chance.randint(0, 80)), pa.binary()),
            "t": column(lambda: chance.random() < 0.5, pa.bool_()),
            "i8": column(lambda: number(8), pa.int8()),
            "i16": column(lambda: number(16), pa.int16()),
            "i32": column(lambda: number(32), pa.int32()),
            "i64": column(lambda: number(64), pa.int64()),
            "d": column(lambda: date(1970, 1, 1) + timedelta(days=number(18)), pa.date32()),
            "at": column(moment, pa.timestamp("us", "UTC")),
            "local": column(lambda: moment().replace(tzinfo=None), pa.timestamp("us")),
            "short": column(lambda: digits(16), pa.decimal128(18, 2)),
            "long": column(lambda: digits(36), pa.decimal128(38, 2)),
        }
    )
