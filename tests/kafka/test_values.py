"""How values are decoded: the functions of the page on Kafka, run as they are."""

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro

from dagster_ckpt import Stream, agg
from dagster_ckpt.integration.declared.streaming_function import of_asset
from tests.docs import shop_store
from tests.kafka.cluster import Cluster
from tests.spark.streams import StreamUnderTest

pytestmark = pytest.mark.timeout(300)

PAGE = (Path(__file__).parents[2] / "docs/how-to/sources/kafka.md").read_text()
ROWS = [("UA", 5.0), ("AA", 7.0), ("UA", 11.0)]
FIELDS = [{"name": "carrier", "type": "string"}, {"name": "dep_delay", "type": "double"}]
FIRST = {"type": "record", "name": "Departure", "fields": FIELDS}
SECOND = {**FIRST, "fields": [*FIELDS, {"name": "distance", "type": "double", "default": 0.0}]}
SCHEMAS = {7: json.dumps(FIRST), 300: json.dumps(SECOND)}
"""The schemas of the subject `departures-value` by their ids, the oldest first."""


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    """The part of a schema registry's API that the page uses."""
    versions = "/subjects/departures-value/versions"
    answers: dict[str, object] = {versions: list(range(1, len(SCHEMAS) + 1))}
    for version, (schema_id, schema) in enumerate(SCHEMAS.items(), 1):
        answers[f"{versions}/{version}"] = {"id": schema_id, "version": version, "schema": schema}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.get(self.path)
            self.send_response(404 if found is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def page(cluster: Cluster, registry: str) -> dict[str, Any]:
    """What the page defines, with the servers of the test."""
    text = PAGE.replace("broker:9092", cluster.broker.address).replace("http://registry:8081", registry)
    assert text.count(cluster.broker.address) == 2
    assert text.count(registry) == 1
    names: dict[str, Any] = {}
    for block in shop_store.python_of(text):
        exec(block, names)
    return names


def departures(spark: SparkSession, *more: float) -> DataFrame:
    columns = "carrier string, dep_delay double" + ", distance double" * bool(more)
    return spark.createDataFrame([(*row, *more) for row in ROWS], columns)


def produce(cluster: Cluster, topic: str, rows: DataFrame) -> None:
    rows.write.format("kafka").options(**cluster.connection).option("topic", topic).save()


def delays(stream: StreamUnderTest) -> dict[object, object]:
    return {row["carrier"]: row["mean_delay"] for row in stream.rows()}


def test_json(cluster: Cluster, stream: StreamUnderTest, spark: SparkSession, page: dict[str, Any]) -> None:
    produce(cluster, "departures", departures(spark).select(F.to_json(F.struct("*")).alias("value")))
    streaming = of_asset(page["delay_by_carrier"])
    assert streaming is not None

    def function(spark: SparkSession) -> Stream:
        made = streaming.function(spark=spark)
        assert isinstance(made, Stream)
        return made

    stream.run(function)
    assert delays(stream) == {"UA": 8.0, "AA": 7.0}


def test_avro(cluster: Cluster, stream: StreamUnderTest, spark: SparkSession, page: dict[str, Any]) -> None:
    cluster.create("avro")
    produce(cluster, "avro", departures(spark).select(to_avro(F.struct("*"), page["DEPARTURE"]).alias("value")))

    def function(spark: SparkSession) -> Stream:
        rows = page["avro_departures"](cluster.read(spark, subscribe="avro", startingOffsets="earliest"))
        return Stream(rows).key_by("carrier").aggregate(mean_delay=agg.avg("dep_delay"))

    stream.run(function)
    assert delays(stream) == {"UA": 8.0, "AA": 7.0}


def registered(rows: DataFrame, schema_id: int, schema: str) -> DataFrame:
    """Values in Confluent's format."""
    head = F.lit(bytes([0, *schema_id.to_bytes(4, "big")]))
    return rows.select(F.concat(head, to_avro(F.struct("*"), schema)).alias("value"))


@pytest.fixture
def of_registry(cluster: Cluster, page: dict[str, Any]) -> Callable[[SparkSession], Stream]:
    def function(spark: SparkSession) -> Stream:
        records = cluster.read(spark, subscribe="registered", startingOffsets="earliest")
        rows = page["registered_departures"](records)
        return Stream(rows).key_by("carrier").aggregate(n=agg.count(), distance=agg.sum("distance"))

    return function


def test_avro_of_a_registry_is_decoded_with_the_schema_of_each_record(
    cluster: Cluster, stream: StreamUnderTest, spark: SparkSession, of_registry: Callable[[SparkSession], Stream]
) -> None:
    cluster.create("registered")
    produce(cluster, "registered", registered(departures(spark), 7, SCHEMAS[7]))
    produce(cluster, "registered", registered(departures(spark, 100.0), 300, SCHEMAS[300]))
    stream.run(of_registry)
    expected = [{"carrier": "AA", "n": 2, "distance": 100.0}, {"carrier": "UA", "n": 4, "distance": 200.0}]
    assert stream.rows() == expected
    produce(cluster, "registered", registered(departures(spark), 9, SCHEMAS[7]))
    with pytest.raises(Exception, match="restart the stream to read the schema 9"):
        stream.run(of_registry)
    assert stream.rows() == expected
