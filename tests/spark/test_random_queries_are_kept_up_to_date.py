"""Random queries over random tables: after every epoch the stream's table is what Spark gives in batch."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, event, given, note, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dagster_ckpt.errors import InvalidPipelineError
from tests.spark.changing_tables import after_each_epoch, in_batch
from tests.spark.rows_as_bags import nine_digits
from tests.worlds.examples import TIMES
from tests.worlds.queries import collated
from tests.worlds.queries.tables import COLUMNS, EPOCHS, Changing, tables
from tests.worlds.queries.texts import OF_ALL_NUMBERS, comparisons_of_rows, queries

WORLDS = 3 if TIMES == 1 else 150 * TIMES
"""`make properties` has TIMES = 20: 3,000 worlds of any query."""
OF_ONE_KIND = 10 * TIMES
"""200 there: queries of one kind say little that is new after so many, and each world starts Spark jobs."""
PARTS = 1 if TIMES == 1 else 2
"""Each can have a core of its own."""

pytestmark = pytest.mark.queries

Query = Callable[[dict[str, dict[str, str]]], st.SearchStrategy[str]]


def worlds(count: int) -> settings:
    """Settings for so many worlds."""
    unhealthy = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.large_base_example]
    return settings(max_examples=count, derandomize=TIMES == 1, deadline=None, suppress_health_check=unhealthy)


@pytest.mark.parametrize("part", range(PARTS))
@given(data=st.data())
@worlds(WORLDS // PARTS)
def test_the_table_is_what_the_query_gives_in_batch(spark: SparkSession, part: int, data: st.DataObject) -> None:
    note(f"part {part}")
    check(spark, data, queries)


@given(data=st.data())
@worlds(4 if TIMES == 1 else OF_ONE_KIND)
def test_rows_are_compared_as_in_batch_whichever_side_may_have_nulls(spark: SparkSession, data: st.DataObject) -> None:
    check(spark, data, comparisons_of_rows)


@given(data=st.data())
@worlds(3 if TIMES == 1 else OF_ONE_KIND)
def test_aggregates_of_nan_and_infinities_are_those_of_batch(spark: SparkSession, data: st.DataObject) -> None:
    table = data.draw(tables("t", {"k": "boolean", "y": "wild", "x": "wild"}))
    check_query(spark, {"t": table}, OF_ALL_NUMBERS)


@given(data=st.data())
@worlds(5 if TIMES == 1 else OF_ONE_KIND)
def test_text_is_compared_by_its_collation_as_in_batch(spark: SparkSession, data: st.DataObject) -> None:
    world = {name: data.draw(tables(name, collated.COLUMNS)) for name in "tu"}
    query = data.draw(collated.queries())
    check_query(spark, {name: table for name, table in world.items() if f"FROM {name}" in query}, query)


def check(spark: SparkSession, data: st.DataObject, query_over: Query) -> None:
    """A random query over random tables has, after each epoch, the rows that it has in batch."""
    names = data.draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=2, max_size=5, unique=True))
    world = {name: data.draw(tables(name, COLUMNS[name])) for name in names}
    check_query(spark, world, data.draw(query_over({name: table.columns for name, table in world.items()})))


def check_query(spark: SparkSession, world: Mapping[str, Changing], query: str) -> None:
    note(query)
    try:
        expected = [in_batch(spark, world, query, epoch, nine_digits) for epoch in range(1, EPOCHS + 1)]
    except (PySparkException, Py4JJavaError) as error:  # the latter where Spark's optimizer makes a wrong plan
        event(f"no query: {type(error).__name__}")
        assume(False)
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = after_each_epoch(spark, Path(folder), world, query, nine_digits)
        except InvalidPipelineError as error:
            event(f"refused: {str(error).split(':')[0][:80]}")
            assume(False)
    assert found
    for epoch, (table, wanted) in enumerate(zip(found, expected, strict=False), 1):
        assert table == wanted, f"after epoch {epoch}"
