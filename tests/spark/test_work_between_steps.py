"""What a task does itself with the changes of a step is what Spark would do; all else is left to Spark."""

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_ckpt.runtime.declared.arrow_plan import find_arrow_work

ENDS = {bits: np.iinfo(f"int{bits}") for bits in (8, 16, 32, 64)}
ROWS = pa.table(
    {
        "t": pa.array([None, *([end for _ in range(2) for end in (ENDS[8].min, ENDS[8].max)]), 7], pa.int8()),
        "i": pa.array([3, ENDS[32].min, ENDS[32].max, -7, 7, None], pa.int32()),
        "l": pa.array([ENDS[64].min, ENDS[64].max, None, -1001, 1001, 0], pa.int64()),
        "s": pa.array(["", None, "é", "x" * 99, "1", "2"]),
        "f": pa.array([0.0, -0.0, float("nan"), None, float("inf"), 1.5]),
    }
)


def test_a_task_does_what_spark_would(spark: SparkSession) -> None:
    rows = spark.createDataFrame(ROWS)
    for worked in (
        rows,
        rows.select("s", "l"),
        rows.selectExpr("l AS k", "s AS l", "f", "i AS `a.b`"),
        rows.selectExpr("l % 1000 AS g", "i % 7 AS h", "t % 5 AS small", "l % 9223372036854775807 AS most"),
        rows.selectExpr("t % 1000000 AS wide", "i % 3000000000L AS wider", "CAST(t AS BIGINT) % 3 AS cast"),
        rows.withColumn("i", F.expr("i % 10")).alias("named").withColumn("j", F.col("i") % 3).drop("f"),
        rows.toDF("a", "b", "c", "d", "e").select("e", "a").alias("x").select("x.a"),
        rows.where("l > 1 AND s IS NOT NULL").select("l", "s"),
        rows.selectExpr("CAST(i AS DOUBLE) AS d", "1 AS one", "l", "f > 0 OR l IS NULL AS either").where("either"),
    ):
        _check_alike(rows, worked)


def _check_alike(rows: DataFrame, worked: DataFrame) -> None:
    names = list(dict.fromkeys(worked.columns))
    work = find_arrow_work(rows, worked, names)
    assert work is not None, worked.columns
    found = pa.Table.from_arrays(work.columns(rows.toArrow())[0], names=names)
    theirs = worked.toArrow().cast(found.schema)
    assert str(found.to_pylist()) == str(theirs.to_pylist())  # as text, since NaN is not itself
    assert [field.type for field in found.schema] == [field.type for field in worked.toArrow().schema]


@pytest.mark.parametrize(
    "expression",
    [
        "l + 1", "l % 0", "l % -3", "l % i", "l % NULL", "f % 2", "pmod(l, 10)", "l div 10", "-l", "CAST(l AS INT)",
        "CAST(l AS STRING)", "CAST(i AS DECIMAL(12, 0)) % 3", "upper(s)", "NULL", "if(l > 1, l + 1, 0)",
    ],
)  # fmt: skip
def test_spark_does_the_rest(spark: SparkSession, expression: str) -> None:
    rows = spark.createDataFrame(ROWS)
    worked = rows.selectExpr("l", f"{expression} AS x")
    assert find_arrow_work(rows, worked, ["l", "x"]) is None
    assert find_arrow_work(rows, worked, ["l"]) is not None, "an unused column makes no difference"


def test_spark_does_what_makes_several_rows_of_one(spark: SparkSession) -> None:
    rows = spark.createDataFrame(ROWS)
    assert find_arrow_work(rows, rows.where("upper(s) = 'X'"), ["l"]) is None
    assert find_arrow_work(rows, rows.selectExpr("explode(array(l, l)) AS l"), ["l"]) is None
    assert find_arrow_work(rows, rows.union(rows), ["l"]) is None
    assert find_arrow_work(rows, spark.createDataFrame(ROWS), ["l"]) is None
