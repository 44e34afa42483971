"""What identifies a row of a query's table is found where the query keeps what determines it."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from dagster_ckpt import explain, streaming_asset
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.protocol.manifest.row_key import row_key
from dagster_ckpt.runtime.declared.step_parts import Upstream
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.stream_checks import plan_stream
from dagster_ckpt.runtime.plans.compiler import stream_of_sql
from dagster_ckpt.runtime.spark.session import open_session
from dagster_ckpt.testing import run_batches

HOURLY = "FROM trips GROUP BY station, window(at, '1 hour')"
SLIDING = "FROM trips GROUP BY station, window(at, '1 hour', '10 minutes')"
SESSIONS = "FROM trips GROUP BY station, session_window(at, '1 hour')"
KEYS: dict[str, tuple[str, ...] | None] = {
    f"SELECT station, window.start AS hour, count(*) AS trips {HOURLY}": ("station", "hour"),
    f"SELECT count(*) AS trips, window(at, '1 hour').start AS hour, station {HOURLY}": ("hour", "station"),
    f"SELECT station, window.end AS hour, sum(n) * 2 AS s {HOURLY}": ("station", "hour"),
    f"SELECT station, window.start, window.end, count(*) AS trips {HOURLY}": ("station", "start"),
    f"SELECT window.end, window.start, station AS place, count(*) AS n {SLIDING}": ("end", "place"),
    f"SELECT station, window.start AS hour, count(*) AS n {HOURLY} HAVING n > 1": ("station", "hour"),
    f"SELECT hour, station FROM (SELECT station, window.start AS hour, max(n) AS m {HOURLY}) WHERE m > 1": (
        "hour",
        "station",
    ),
    f"SELECT station, session_window.start AS since, session_window.end AS till, count(*) AS n {SESSIONS}": (
        "station",
        "since",
    ),
    "SELECT x.window.start, count(*) + 1 AS n FROM (SELECT id, name FROM stations) y "
    f"LEFT JOIN (SELECT station, window {HOURLY}) x ON id = x.station GROUP BY x.window": None,
    "SELECT window.start AS hour, count(*) AS n FROM trips GROUP BY window(at, '1 hour')": ("hour",),
    "SELECT station AS place, count(*) + 1 AS n FROM trips GROUP BY station": ("place",),
    "SELECT station, upper(station) AS big, count(*) AS n FROM trips GROUP BY station": ("station",),
    "SELECT upper(station) AS big, station, count(*) * 2 AS n FROM trips GROUP BY station, upper(station)": (
        "station",
    ),
    "SELECT day, station, count(*) - 1 AS n FROM (SELECT *, date(at) AS day FROM trips) GROUP BY day, station": (
        "day",
        "station",
    ),
    "SELECT station, station AS again, max(n) + 1 AS m FROM trips GROUP BY station": ("station",),
    "SELECT sum(n) + 1 AS s FROM trips": (),
    "SELECT x.station AS place, x.n, name FROM (SELECT station, count(*) AS n FROM trips GROUP BY station) x "
    "JOIN stations s ON x.station = s.id": ("place",),
    "SELECT name, x.n, s.id FROM (SELECT station, count(*) AS n FROM trips GROUP BY station) x "
    "LEFT JOIN stations s ON x.station = s.id": None,  # the station without a name is gone
    "SELECT s.name, s.id AS place, t.id AS other FROM stations s JOIN stations t ON s.name = t.name": (
        "name",
        "place",
        "other",
    ),
    "SELECT id AS station, name FROM stations WHERE name > 'A'": ("station",),
    "SELECT id, explode(split(name, ' ')) AS word FROM stations": None,
    f"SELECT station, count(*) AS trips {HOURLY}": None,
    f"SELECT station, date_trunc('day', window.start) AS day, count(*) AS trips {HOURLY}": None,
    "SELECT station, explode(sequence(1, count(*))) AS i FROM trips GROUP BY station": None,
    "SELECT upper(station) AS big, count(*) AS n FROM trips GROUP BY station": None,
}


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> SparkSession:
    made = open_session(spark)
    for name, columns in (("trips", "station string, at timestamp, n int"), ("names", "id string, name string")):
        made.readStream.schema(columns).parquet(str(tmp_path)).createOrReplaceTempView(name)
    return made


def test_a_table_has_the_key_that_its_query_keeps(session: SparkSession) -> None:
    names = session.table("names").withColumn("_change_type", F.lit("insert"))
    stations = Stream(names, upstream=Upstream("stations", ("id",)))
    found = {}
    for query in KEYS:
        pipeline = plan_stream("q", stream_of_sql(session, query, {"stations": stations})).dataflow.pipeline
        found[query] = None if pipeline.appends else row_key(pipeline)
    assert found == KEYS


STATIONS = pa.table(
    {"id": ["a", "b"], "name": ["North Bridge", "South"], "_change_type": ["insert", "insert"]},
)


def test_rows_that_become_several_have_no_key() -> None:
    def words(stations: Stream) -> Stream:
        return stations.select("id", "explode(split(name, ' ')) AS word")

    gone = pa.table({"id": ["a"], "name": ["North Bridge"], "_change_type": ["delete"]})
    keys = {"stations": ["id"]}
    found = run_batches(words, {"stations": [STATIONS]}, keys=keys).to_pylist()
    assert sorted(row["word"] for row in found) == ["Bridge", "North", "South"]
    assert run_batches(words, {"stations": [STATIONS, gone]}, keys=keys).to_pylist() == [{"id": "b", "word": "South"}]


def test_a_renamed_key_is_the_key() -> None:
    def renamed(stations: Stream) -> Stream:
        return stations.select("name", "id AS station")

    then = pa.table(
        {
            "id": ["a", "a", "b"],
            "name": ["North Bridge", "Bridge", "South"],
            "_change_type": ["update_preimage", "update_postimage", "delete"],
        }
    )
    rows = run_batches(renamed, {"stations": [STATIONS, then]}, keys={"stations": ["id"]}).to_pylist()
    assert rows == [{"name": "Bridge", "station": "a"}]


@streaming_asset(primary_key=["Name"])
def by_name(stations: Stream) -> str:
    return "SELECT upper(name) AS name, count(*) AS n FROM stations GROUP BY upper(name), id"


@streaming_asset(primary_key="id")
def as_it_is(stations: Stream) -> Stream:
    return stations.select("id", "name")


def changes(*rows: tuple[str, str, str]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(STATIONS.schema.names, row, strict=True)) for row in rows])


def test_a_declared_key_is_the_tables_key_as_long_as_it_is_one(spark_of_all: SparkSession) -> None:
    schemas, keys = {"stations": STATIONS.schema}, {"stations": ["id"]}
    assert explain(by_name, schemas=schemas, keys=keys, spark=spark_of_all).steps[-1].keys == ("name",)
    moved = changes(("a", "North Bridge", "delete"), ("c", "North Bridge", "insert"))
    batches = [STATIONS, moved]
    table = run_batches(by_name, {"stations": batches}, keys=keys).to_pylist()
    assert sorted(row["name"] for row in table) == ["NORTH BRIDGE", "SOUTH"]
    with pytest.raises(InvalidPipelineError, match=r"several rows have one primary key.*\{'name': 'SOUTH'\}"):
        run_batches(by_name, {"stations": [*batches, changes(("d", "South", "insert"))]}, keys=keys)


def test_a_declared_key_that_follows_anyway_is_no_more_work_and_others_are_refused(spark_of_all: SparkSession) -> None:
    schemas, keys = {"stations": STATIONS.schema}, {"stations": ["id"]}
    declared, plain = (
        explain(each, schemas=schemas, keys=keys, spark=spark_of_all) for each in (as_it_is, as_it_is_undeclared)
    )
    assert declared == plain

    @streaming_asset(primary_key=["nmae"])
    def wrong(stations: Stream) -> Stream:
        return stations

    with pytest.raises(InvalidPipelineError, match=r"Did you mean 'name'\? column=nmae.*asset=wrong"):
        explain(wrong, schemas=schemas, keys=keys, spark=spark_of_all)
    with pytest.raises(InvalidPipelineError, match=r"rows of this table only come.*primary_key=id, asset=as_it_is"):
        explain(as_it_is, schemas={"stations": pa.schema([("id", pa.string()), ("name", pa.string())])})


def as_it_is_undeclared(stations: Stream) -> Stream:
    return stations.select("id", "name")
