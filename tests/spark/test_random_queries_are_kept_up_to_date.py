"""Random queries over random tables: after every epoch the stream's table is what Spark gives in batch."""

import gc
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, event, given, note, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.declared.step_parts import Upstream
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.plans import stand_ins
from dagster_ckpt.runtime.plans.compiler import stream_of_sql
from dagster_ckpt.runtime.spark.arrow_schemas import to_spark_schema
from tests.spark.input_files import drop
from tests.spark.rows_as_bags import bag, nine_digits
from tests.spark.streams import StreamUnderTest
from tests.worlds.examples import TIMES
from tests.worlds.queries.tables import COLUMNS, EPOCHS, Changing, tables
from tests.worlds.queries.texts import queries

WORLDS = 3 if TIMES == 1 else 150 * TIMES
"""`make properties` has TIMES = 20: 3,000 worlds."""
PARTS = 1 if TIMES == 1 else 2
"""Each can have a core of its own."""
OPENED = 1
"""The epoch in which a stream is opened has no rows."""


@pytest.mark.parametrize("part", range(PARTS))
@given(data=st.data())
@settings(
    max_examples=WORLDS // PARTS,
    derandomize=TIMES == 1,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.large_base_example],
)
def test_the_table_is_what_the_query_gives_in_batch(spark: SparkSession, part: int, data: st.DataObject) -> None:
    note(f"part {part}")
    names = data.draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=2, max_size=5, unique=True))
    world = {name: data.draw(tables(name)) for name in names}
    query = data.draw(queries({name: table.columns for name, table in world.items()}))
    note(query)
    expected = in_batch(spark, world, query)
    with tempfile.TemporaryDirectory() as folder:
        stream = StreamUnderTest(spark, Path(folder))
        try:
            stream.run(lambda session: stream_of_sql(session, query, read(session, Path(folder), world)))
        except InvalidPipelineError as error:
            event(f"refused: {str(error).split(':')[0][:80]}")
            assume(False)
        finally:
            # Plans in the JVM live as long as what names them in Python, and this names thousands.
            stand_ins._streams.clear()
            gc.collect()
        assert stream.epochs
        for epoch in range(1, len(stream.epochs) + 1):
            table = stream.table(OPENED + epoch).to_pylist()
            assert bag((row.values() for row in table), nine_digits) == expected[epoch - 1], f"after epoch {epoch}"


def in_batch(spark: SparkSession, world: Mapping[str, Changing], query: str) -> list[Counter[object]]:
    """What Spark gives after each epoch. A query that it refuses, or that fails, is none."""
    found = []
    for epoch in range(1, EPOCHS + 1):
        for name, table in world.items():
            spark.createDataFrame(table.rows(epoch), to_spark_schema(table.schema)).createOrReplaceTempView(name)
        try:
            found.append(bag(spark.sql(query).collect(), nine_digits))
        except (PySparkException, Py4JJavaError) as error:  # the latter where Spark's optimizer makes a wrong plan
            event(f"no query: {type(error).__name__}")
            assume(False)
    return found


def read(session: SparkSession, root: Path, world: Mapping[str, Changing]) -> Mapping[str, Stream]:
    """The tables as streams, a file of each in each epoch."""
    found = {}
    for name, table in world.items():
        folder = root / name
        if not folder.exists():
            folder.mkdir()
            for number, rows in enumerate(table.files()):
                drop(folder, number, rows)
        schema = to_spark_schema(table.files()[0].schema)
        frame = session.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
        upstream = Upstream(name, table.key, changes=True) if table.changes else None
        found[name] = Stream(frame, upstream=upstream)
    return found
