"""Spark's own sql-tests: after every epoch the table of each query has the rows of the batch."""

import gc
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.plans.compiler import stream_of_sql
from dagster_ckpt.runtime.plans.stand_ins import stand_ins_of
from tests.spark.fingerprints import PLANS_ALONE, plan_twice
from tests.spark.local_spark import local_spark
from tests.spark.rows_as_bags import bag, nine_digits
from tests.spark.streams import StreamUnderTest
from tests.sql_tests.files import SqlFiles
from tests.sql_tests.kept import KEPT, LEFT_OPEN
from tests.sql_tests.tables import Tables

[JAR] = Path(os.environ["DAGSTER_CKPT_TEST_JARS"], "queries").glob("spark-sql_*-tests.jar")
FILES = SqlFiles(JAR)
OPENED = 1
"""The epoch in which a stream is opened has no rows."""
QUERY = re.compile(r"[\s(]*(select|with|values|from|table|reduce)\b", re.IGNORECASE)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = str(tmp_path_factory.mktemp("warehouse"))
    with local_spark({"spark.sql.warehouse.dir": folder, "spark.sql.catalogImplementation": "in-memory"}) as spark:
        yield spark


@pytest.mark.parametrize("name", KEPT)
def test_each_query_has_its_rows_or_is_refused(
    spark: SparkSession, tmp_path: Path, subtests: pytest.Subtests, name: str
) -> None:
    file = FILES.file(name)
    empty_catalog(spark)
    gc.collect()  # plans in the JVM live as long as what names them in Python
    tables = Tables(spark, tmp_path / "tables", file.settings)
    tables.add_known(FILES, " ".join(file.statements).lower())
    kept = 0
    with stand_ins_of(tables.streams):
        for number, statement in enumerate(file.statements):
            if not QUERY.match(statement):
                tables.run(statement)
            elif number not in LEFT_OPEN.get(name, {}):
                tables.refresh()
                with subtests.test(number=number, query=statement):
                    kept += is_kept(spark, tables, tmp_path / str(number), statement)
    # A refusal may come as late as when the stream starts.
    assert kept >= KEPT[name] if PLANS_ALONE else kept == KEPT[name]


def is_kept(spark: SparkSession, tables: Tables, folder: Path, query: str) -> bool:
    """Whether a query is kept up to date, and not refused. Fails where its table is not what it gives in batch."""
    try:
        query = with_aliases(query, tables.written.sql(query).columns)
        if PLANS_ALONE:  # Spark finds some errors of a query only when it plans it
            tables.written.sql(query)._jdf.queryExecution().executedPlan()
        states = [] if PLANS_ALONE else tables.behind
        expected = [bag(session.sql(query).collect(), nine_digits) for session in states]
    except (PySparkException, Py4JJavaError):  # the latter of a query that runs, and fails
        return False  # nor is it a query in batch
    stream = StreamUnderTest(spark, folder, shards=2)

    def plan(session: SparkSession) -> Stream:
        return plan_twice(session, lambda: stream_of_sql(tables.streams, query))

    try:
        if PLANS_ALONE:
            plan(tables.streams)
            return True
        stream.run(plan)
    except InvalidPipelineError:
        return False
    for epoch, rows in enumerate(expected):
        table = stream.table(OPENED + epoch + 1)
        found = bag((row.values() for row in table.to_pylist(maps_as_pydicts="strict")), nine_digits)
        assert found == rows, f"epoch={epoch}, more={found - rows}, missing={rows - found}"
    return True


def with_aliases(query: str, names: list[str]) -> str:
    """The query with names for its columns that are all different, as a table's must be."""
    if len({name.lower() for name in names}) == len(names):
        return query
    return f"SELECT * FROM (\n{query}\n) AS named ({', '.join(f'c{number}' for number, _ in enumerate(names))})"


def empty_catalog(spark: SparkSession) -> None:
    """Drop the tables and functions that another file has left."""
    # Not `spark.catalog.listTables`: it fails for a view that no longer has what it reads.
    for kind, column in (("VIEW", "viewName"), ("TABLE", "tableName")):
        for row in spark.sql(f"SHOW {kind}S").collect():
            spark.sql(f"DROP {kind} IF EXISTS `{row[column]}`")
    for function in spark.catalog.listFunctions():
        if function.namespace:
            spark.sql(f"DROP FUNCTION IF EXISTS `{function.name}`")
