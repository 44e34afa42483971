"""A topic with flights as JSON, and how a query reads it."""

import time

import pyspark.sql.functions as F
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from benchmarks.delivery.written_stream import flights, records
from tests.servers.kafka import JARS

COLUMNS = "id long, at timestamp, carrier string, flight int, delay double"
CONNECTOR = {"spark.driver.extraClassPath": f"{JARS}/connector/*"}
"""What Spark needs to read Kafka."""


class Topic:
    """A topic of its own at this broker."""

    def __init__(self, broker: str, name: str, partitions: int) -> None:
        self._broker, self._name, self._partitions = broker, name, partitions
        admin = AdminClient({"bootstrap.servers": broker, "log_level": 4})
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result()
        self._producer = Producer(
            {"bootstrap.servers": broker, "linger.ms": 0, "queue.buffering.max.messages": 2_000_000}
        )

    def put(self, first: int, rows: int) -> None:
        """Rows with the ids from `first` on, all of them there when this returns."""
        # Evenly: Spark takes of each partition in proportion, and a remainder would be one more trigger.
        for number, record in enumerate(records(flights(first, rows))):
            self._producer.produce(self._name, record, partition=number % self._partitions)
        if left := self._producer.flush(60):
            raise RuntimeError(f"the broker has not taken all records. left={left}")

    def put_one(self, id_: int) -> float:
        """A row with this id, sent at once; when that was, on the monotonic clock."""
        [record] = records(flights(id_, 1))
        at_s = time.monotonic()
        self._producer.produce(self._name, record)
        self._producer.flush(10)
        return at_s

    def read(self, session: SparkSession, rows: int | None = None) -> DataFrame:
        """The flights, at most `rows` a trigger."""
        source = session.readStream.format("kafka").option("kafka.bootstrap.servers", self._broker)
        source = source.option("subscribe", self._name).option("startingOffsets", "earliest")
        if rows is not None:
            source = source.option("maxOffsetsPerTrigger", rows)
        flight = F.from_json(F.col("value").cast("string"), COLUMNS)
        return source.load().select(flight.alias("flight")).select("flight.*")
