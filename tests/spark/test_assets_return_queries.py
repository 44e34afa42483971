"""What a streaming function may return besides a `Stream`: a DataFrame with any operation, or a query in SQL."""

from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_ckpt import CheckpointStore, explain, source, streaming_asset
from dagster_ckpt.errors import IncompatibleStateError, InvalidPipelineError
from dagster_ckpt.operators import agg
from dagster_ckpt.protocol.manifest.manifest import Pipeline
from dagster_ckpt.protocol.transitions.compatibility import breaking_changes
from dagster_ckpt.runtime.declared.step_parts import Upstream
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.stream_checks import plan_stream
from dagster_ckpt.runtime.plans.compiler import stream_of_sql
from dagster_ckpt.runtime.plans.returned import stream_returned
from dagster_ckpt.runtime.spark.session import open_session
from dagster_ckpt.testing import run_batches
from tests.spark.input_files import drop
from tests.spark.streams import Function, StreamUnderTest
from tests.unit.history.made_streams import MadeStream

FLIGHTS = pa.schema([("carrier", pa.string()), ("origin", pa.string()), ("delay", pa.int32())])


def flights(*rows: tuple[str, str, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(FLIGHTS.names, row, strict=True)) for row in rows], schema=FLIGHTS)


def of_text(folder: Path, text: str) -> Function:
    """A function that returns the text, over the flights of a folder."""

    def function(session: SparkSession) -> Stream:
        rows = session.readStream.schema("carrier string, origin string, delay int").parquet(str(folder))
        return stream_returned("flights", text, session, {"flights": rows})

    return function


def test_names_and_their_order_need_no_other_state(stream: StreamUnderTest, tmp_path: Path) -> None:
    folder = tmp_path / "flights"
    folder.mkdir()
    drop(folder, 0, flights(("UA", "JFK", 5), ("UA", "EWR", 7), ("AA", "JFK", 1)))
    first = "SELECT carrier, count(*) AS flights, max(delay) AS worst FROM flights WHERE delay > 0 GROUP BY carrier"
    stream.run(of_text(folder, first))
    assert len(stream.history().manifest().pipeline.steps) == 1
    drop(folder, 1, flights(("UA", "JFK", 9), ("DL", "JFK", 3)))
    again = """
        -- other names, another order, another spelling
        SELECT max(f.delay) AS longest, f.carrier AS airline,
               count(*) AS n
        FROM flights f GROUP BY f.carrier
    """
    with pytest.raises(IncompatibleStateError, match=r"what Spark does with the rows of the input was .*delay > 0"):
        stream.run(of_text(folder, again))
    again = again.replace("GROUP BY", "WHERE (f.delay) > 0 GROUP BY")
    stream.run(of_text(folder, again))
    assert stream.table().column_names == ["longest", "airline", "n"]
    assert sorted(stream.table().to_pylist(), key=lambda row: row["airline"]) == [
        {"longest": 1, "airline": "AA", "n": 1},
        {"longest": 3, "airline": "DL", "n": 1},
        {"longest": 9, "airline": "UA", "n": 3},
    ]
    history = stream.history()
    assert history.get({"airline": ["UA"]}).to_pylist() == [{"longest": 9, "airline": "UA", "n": 3}]
    newest = history.info().epoch
    changes = history.changes(newest - 1, newest).to_pylist()
    assert {(row["airline"], row["n"], row["_change_type"]) for row in changes} == {
        ("UA", 2, "update_preimage"),
        ("UA", 3, "update_postimage"),
        ("DL", 1, "insert"),
    }


def test_a_filter_or_an_expression_above_the_groups_keeps_their_state(stream: StreamUnderTest, tmp_path: Path) -> None:
    folder = tmp_path / "flights"
    folder.mkdir()
    groups = "SELECT carrier, count(*) AS n, max(delay) AS worst FROM flights GROUP BY carrier"
    rows = [("UA", 5), ("UA", 7), ("AA", 1), ("DL", 3), ("DL", 9), ("DL", 4)]
    worst: dict[str, int] = {}
    for number, (text, (carrier, delay)) in enumerate(
        zip(
            (
                groups,
                f"{groups} HAVING n > 1",
                f"{groups} HAVING n > 1 AND worst < 8",
                f"SELECT carrier, n, worst * 10 AS worst FROM ({groups})",
                f"SELECT upper(carrier) AS carrier, n, worst FROM ({groups}) WHERE worst > 3",
                groups,
            ),
            rows,
            strict=True,
        )
    ):
        for old in folder.iterdir():
            old.unlink()  # what was read is gone: only the state has it
        drop(folder, number, flights((carrier, "JFK", delay)))
        stream.run(of_text(folder, text))
        worst[carrier] = max(delay, worst.get(carrier, 0))
        counted = {carrier: sum(row[0] == carrier for row in rows[: number + 1]) for carrier in worst}
        found = {row["carrier"]: (row["n"], row["worst"]) for row in stream.rows()}
        of_all = {carrier: (counted[carrier], worst[carrier]) for carrier in worst}
        assert found == {
            carrier: (n, most * (10 if number == 3 else 1))
            for carrier, (n, most) in of_all.items()
            if (n > 1 or number not in (1, 2)) and (most < 8 or number != 2) and (most > 3 or number != 4)
        }
        assert stream.history().manifest().table_rows == len(found)


def test_a_dataframe_with_groups_is_returned_or_worked_on() -> None:
    def averages(flights: Stream) -> DataFrame:
        return flights.frame.groupBy("carrier", "origin").agg(F.avg("delay").alias("delay"), F.count("*").alias("n"))

    def of_carriers(flights: Stream) -> Stream:
        return Stream(averages(flights)).where("n > 1").key_by("carrier").aggregate(worst=agg.max("delay"))

    batches = {"flights": [flights(("UA", "JFK", 1), ("UA", "EWR", 8)), flights(("UA", "JFK", 5), ("UA", "EWR", 0))]}
    table = run_batches(averages, batches)
    assert sorted(table.to_pylist(), key=repr) == [
        {"carrier": "UA", "origin": "EWR", "delay": 4.0, "n": 2},
        {"carrier": "UA", "origin": "JFK", "delay": 3.0, "n": 2},
    ]
    assert run_batches(of_carriers, batches).to_pylist() == [{"carrier": "UA", "worst": 4.0}]


def test_a_dataframe_of_a_table_that_changes() -> None:
    def late(flights: Stream) -> DataFrame:
        return flights.to_df().where("delay > 2").select("carrier", F.upper("origin").alias("at"))

    def counted(flights: Stream) -> DataFrame:
        return flights.to_df().groupBy("origin").count()

    first = flights(("UA", "JFK", 5), ("AA", "JFK", 1))
    kinds = pa.array(["insert", "insert"])
    then = flights(("UA", "JFK", 5), ("UA", "EWR", 6))
    batches = {
        "flights": [
            first.append_column("_change_type", kinds),
            then.append_column("_change_type", pa.array(["update_preimage", "update_postimage"])),
        ]
    }
    assert run_batches(late, batches, keys={"flights": ["carrier"]}).to_pylist() == [{"carrier": "UA", "at": "EWR"}]
    assert sorted(run_batches(counted, batches, keys={"flights": ["carrier"]}).to_pylist(), key=repr) == [
        {"origin": "EWR", "count": 1},
        {"origin": "JFK", "count": 1},
    ]


@pytest.mark.parametrize("kinds", ["", ", _change_type string"])
def test_a_column_that_a_query_does_not_read_is_not_in_its_state(
    spark: SparkSession, tmp_path: Path, kinds: str
) -> None:
    query = """
        SELECT f.origin, max(n) AS most FROM (
            SELECT carrier, origin, count(*) AS n FROM flights WHERE delay > 0 GROUP BY carrier, origin
        ) f JOIN carriers c ON c.carrier = f.carrier AND c.name > 'A' GROUP BY f.origin HAVING most > 1
    """

    def compiled(more: str) -> Pipeline:
        session = open_session(spark)

        def rows(columns: str) -> Stream:
            frame = session.readStream.schema(columns + more + kinds).parquet(str(tmp_path))
            return Stream(frame, upstream=Upstream("up", None, changes=True) if kinds else None)

        tables = {
            "flights": rows("delay int, carrier string, origin string"),
            "carriers": rows("name string, carrier string"),
        }
        return plan_stream("queries", stream_of_sql(session, query, tables)).dataflow.pipeline

    before, after = compiled(""), compiled(", more string")
    assert len(before.steps) > 3
    assert breaking_changes(before, after) == ()


@pytest.mark.parametrize("idle", ["flights", "carriers"])
def test_a_step_whose_source_has_nothing_new_replies_too(idle: str) -> None:
    def late(flights: Stream, carriers: Stream) -> str:
        return """
            SELECT name, n FROM (SELECT carrier, count(*) AS n FROM flights WHERE delay > 2 GROUP BY carrier) f
            JOIN (SELECT DISTINCT carrier, name FROM carriers WHERE name <> '') c ON c.carrier = f.carrier
        """

    batches = {
        "flights": [flights(("UA", "JFK", 5), ("AA", "JFK", 1)), flights(("AA", "JFK", 7))],
        "carriers": [pa.table({"carrier": ["UA"], "name": ["United"]}), pa.table({"carrier": ["AA"], "name": ["Am"]})],
    }
    batches[idle] = batches[idle][:1]
    left = {"flights": [{"name": "United", "n": 1}], "carriers": [{"name": "United", "n": 1}]}
    assert run_batches(late, batches).to_pylist() == left[idle]


def test_a_query_reads_its_parameters_by_their_names() -> None:
    def top(flights: Stream, carriers: Stream) -> str:
        return """
            SELECT name, sum(delay) AS delay FROM flights JOIN carriers USING (carrier)
            GROUP BY name ORDER BY delay DESC LIMIT 1
        """

    batches = {
        "flights": [flights(("UA", "JFK", 5), ("AA", "JFK", 7)), flights(("UA", "JFK", 4))],
        "carriers": [
            pa.table({"carrier": ["UA", "AA"], "name": ["United", "American"], "_change_type": ["insert", "insert"]}),
            pa.table({"carrier": ["UA", "AA"], "name": ["United", "American"], "_change_type": ["delete", "delete"]}),
        ],
    }
    gone = run_batches(top, batches, keys={"carriers": ["carrier"]})
    assert gone.to_pylist() == []
    batches["carriers"][1] = batches["carriers"][1].slice(0, 0)
    assert run_batches(top, batches, keys={"carriers": ["carrier"]}).to_pylist() == [{"name": "United", "delay": 9}]


AIRLINES = pa.schema([("carrier", pa.string()), ("name", pa.string()), ("_change_type", pa.string())])


def longest_by_airline(flights: Stream, airlines: Stream) -> str:
    return """
        SELECT name, sum(delay) AS delay FROM flights JOIN airlines USING (carrier)
        WHERE delay > 0 GROUP BY name ORDER BY delay DESC LIMIT 2
    """


def test_a_query_is_explained_before_it_runs(spark_of_all: SparkSession) -> None:
    schemas = {"flights": FLIGHTS, "airlines": AIRLINES}
    explanation = explain(longest_by_airline, schemas=schemas, keys={"airlines": ["carrier"]}, spark=spark_of_all)
    join, sums, top, _ = explanation.steps
    assert [(each.reads, each.changes) for each in join.inputs] == [
        ("stream flights", False),
        ("stream airlines", True),
    ]
    assert [line for line in join.inputs[0].work if line.startswith("WHERE") and "> 0" in line]
    assert [each.inputs[0].work for each in (sums, top)] == [(), ()], "no other rows: columns have their names"
    assert sums.operator.startswith("aggregate sum(`l.delay`)") or "sum(" in sums.operator
    assert [each.limit and each.limit.text for each in (join, sums, top)] == [
        "none: grows with the rows",
        "the keys that have rows now",
        "the rows that the input has now",
    ]
    text = str(explanation)
    assert "\n  keeps       all rows: the first 2 and, behind them, all others\n" in text
    assert "dagster-ckpt-explain" not in text, "the folders that stand for upstreams are gone"
    with pytest.raises(InvalidPipelineError, match=r"columns of an upstream are unknown.*parameter=airlines"):
        explain(longest_by_airline, schemas={"flights": FLIGHTS}, spark=spark_of_all)
    with pytest.raises(
        InvalidPipelineError, match=r"neither a source nor an upstream of the asset\. names=\['fligths'\]"
    ):
        explain(longest_by_airline, schemas={**schemas, "fligths": FLIGHTS}, keys={"airlines": ["carrier"]})
    with pytest.raises(InvalidPipelineError, match="give a streaming asset"):
        explain("SELECT 1")


def test_an_asset_is_explained_with_the_streams_of_a_store(spark_of_all: SparkSession, tmp_path: Path) -> None:
    made = MadeStream(tmp_path.as_uri(), "flights/delays")
    made.close()
    before = sorted(tmp_path.rglob("*"))

    @streaming_asset(ins={"delays": dg.AssetIn(key=["flights", "delays"])})
    def worst(delays: Stream) -> str:
        return "SELECT max(mean_delay) AS worst FROM delays"

    [step] = explain(worst, store=CheckpointStore(tmp_path.as_uri()), spark=spark_of_all).steps
    assert (step.inputs[0].reads, step.inputs[0].changes) == ("stream flights/delays", True)
    assert step.operator.startswith("aggregate worst=max(")
    assert [each.table for each in step.lasting] == ["groups", "values_0"]
    assert sorted(tmp_path.rglob("*")) == before, "nothing is written"


def test_a_declared_source_is_read_or_has_given_columns(spark_of_all: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "flights"
    folder.mkdir()
    schema = "carrier string, delay int"
    there = source("there", lambda spark: spark.readStream.schema(schema).parquet(str(folder)))
    missing = source("missing", lambda spark: spark.readStream.schema(schema).parquet(str(tmp_path / "none")))

    def both(spark: SparkSession) -> Stream:
        return Stream(there(spark).union(missing(spark))).key_by("carrier").top(3, by="delay desc")

    columns = pa.schema([("carrier", pa.string()), ("delay", pa.int32())])
    [step] = explain(both, schemas={"missing": columns}, spark=spark_of_all).steps
    assert step.inputs[0].reads == f"parquet file:{folder} and source missing"
    assert step.limit is not None
    assert step.limit.text == "3 for each key"
