"""What the tests do to a broker: topics made, filled, cut and removed; and streams that count them."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_ckpt import agg
from dagster_ckpt.runtime.declared.stream import Stream
from tests.servers.kafka import Broker

KEYS = 10
_SERIALIZATION = "org.apache.kafka.common.serialization"


class Cluster:
    """A broker, and Kafka's own client for it in Spark's JVM."""

    def __init__(self, spark: SparkSession, broker: Broker, connection: Mapping[str, str] | None = None) -> None:
        self.spark = spark
        self.broker = broker
        self.connection = {"kafka.bootstrap.servers": broker.address, **(connection or {})}
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._settings = {name.removeprefix("kafka."): value for name, value in self.connection.items()}
        self._plain: Any = None
        self.admin = jvm.org.apache.kafka.clients.admin.Admin.create(self._settings)

    def close(self) -> None:
        if self._plain is not None:
            self._plain.close()
        self.admin.close(self._jvm.java.time.Duration.ZERO)

    def create(self, topic: str, partitions: int = 3) -> None:
        new = self._jvm.org.apache.kafka.clients.admin.NewTopic(topic, partitions, 1)
        self.admin.createTopics([new]).all().get()

    def delete(self, topic: str) -> None:
        self.admin.deleteTopics([topic]).all().get()

    def create_again(self, topic: str, partitions: int = 3) -> None:
        """Delete it and create it; a broker needs a moment in between."""
        self.delete(topic)
        for _ in range(50):
            try:
                return self.create(topic, partitions)
            except Py4JJavaError as error:
                if "TopicExists" not in str(error):
                    raise
                time.sleep(0.1)
        raise AssertionError("the topic is not deleted")

    def add_partitions(self, topic: str, partitions: int) -> None:
        new = self._jvm.org.apache.kafka.clients.admin.NewPartitions.increaseTo(partitions)
        self.admin.createPartitions({topic: new}).all().get()

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """As retention does: the partition begins at offset `before` then."""
        found = self._jvm.java.util.HashMap()
        found.put(self.partition(topic, partition), self._records_before(before))
        self.admin.deleteRecords(found).all().get()

    def _records_before(self, offset: int) -> Any:
        """`RecordsToDelete.beforeOffset(offset)`: py4j does not find it, as instances have a method of that name."""
        gateway: Any = self.spark.sparkContext._gateway
        kinds = gateway.new_array(self._jvm.java.lang.Class, 1)
        kinds[0] = self._jvm.java.lang.Long.TYPE
        values = gateway.new_array(self._jvm.java.lang.Object, 1)
        values[0] = offset
        loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        kind = loader.loadClass("org.apache.kafka.clients.admin.RecordsToDelete")
        return kind.getMethod("beforeOffset", kinds).invoke(None, values)

    def partition(self, topic: str, partition: int) -> Any:
        return self._jvm.org.apache.kafka.common.TopicPartition(topic, partition)

    def group(self, group: str) -> dict[tuple[str, int], int]:
        """The committed offsets of a consumer group."""
        found = self.admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
        return {(each.topic(), each.partition()): found.get(each).offset() for each in found}

    def produce(self, topic: str, begin: int, end: int, **columns: Any) -> None:
        """A record for each number, in this order, of ten keys: `{"k": 3, "v": 13}`.

        `columns` are Kafka's, such as `partition`.
        """
        number = F.col("id")
        value = F.to_json(F.struct((number % KEYS).alias("k"), number.alias("v")))
        more = [column.alias(name) for name, column in columns.items()]
        rows = self.spark.range(begin, end, 1, 1).select(value.alias("value"), *more)
        rows.write.format("kafka").options(**self.connection).option("topic", topic).save()

    def send(self, topic: str, partition: int, number: int, timestamp_ms: int | None = None) -> None:
        """One record of `produce`'s, with a timestamp of its own."""
        self._producer({}).send(self._record(topic, partition, number, timestamp_ms)).get()

    def transact(self, topic: str, numbers: Iterable[int], *, commit: bool) -> None:
        """Records in one transaction, which is committed or aborted."""
        producer = self._producer({"transactional.id": f"{topic}-tests"})
        producer.initTransactions()
        producer.beginTransaction()
        for number in numbers:
            producer.send(self._record(topic, 0, number, None))
        producer.flush()
        producer.commitTransaction() if commit else producer.abortTransaction()
        producer.close()

    @contextmanager
    def member(self, group: str, topic: str) -> Iterator[None]:
        """Within it the group has a live member, which reads the topic."""
        names = ("key.deserializer", "value.deserializer")
        settings = {**self._settings, **dict.fromkeys(names, f"{_SERIALIZATION}.StringDeserializer"), "group.id": group}
        consumer = self._jvm.org.apache.kafka.clients.consumer.KafkaConsumer(settings)
        consumer.subscribe([topic])
        while consumer.assignment().isEmpty():
            consumer.poll(self._jvm.java.time.Duration.ofMillis(500))
        try:
            yield
        finally:
            consumer.close()

    def _producer(self, settings: dict[str, str]) -> Any:
        if settings:
            return self._new_producer(settings)
        if self._plain is None:
            self._plain = self._new_producer({})
        return self._plain

    def _new_producer(self, settings: dict[str, str]) -> Any:
        names = ("key.serializer", "value.serializer")
        strings = dict.fromkeys(names, f"{_SERIALIZATION}.StringSerializer")
        return self._jvm.org.apache.kafka.clients.producer.KafkaProducer({**self._settings, **strings, **settings})

    def _record(self, topic: str, partition: int, number: int, timestamp_ms: int | None) -> Any:
        value = json.dumps({"k": number % KEYS, "v": number})
        record = self._jvm.org.apache.kafka.clients.producer.ProducerRecord
        return record(topic, partition, timestamp_ms, None, value)

    def read(self, spark: SparkSession, **options: object) -> DataFrame:
        """The records as a stream."""
        given = {name: str(value) for name, value in options.items()}
        return spark.readStream.format("kafka").options(**{**self.connection, **given}).load()

    def totals(self, **options: object) -> Callable[[SparkSession], Stream]:
        """A stream that counts and sums the records by key."""

        def function(spark: SparkSession) -> Stream:
            rows = self.read(spark, **options).select(parsed()).select("d.*")
            return Stream(rows).key_by("k").aggregate(rows=agg.count(), total=agg.sum("v"))

        return function


def parsed() -> Any:
    return F.from_json(F.col("value").cast("string"), "k long, v long").alias("d")


def totals_of(*ranges: range) -> list[dict[str, object]]:
    """What `Cluster.totals` makes of records with these numbers."""
    numbers = [number for each in ranges for number in each]
    by_key = {k: [number for number in numbers if number % KEYS == k] for k in range(KEYS)}
    return [{"k": k, "rows": len(each), "total": sum(each)} for k, each in by_key.items() if each]


def position(current: str | None) -> dict[str, dict[str, int]]:
    assert current is not None
    found: dict[str, dict[str, int]] = json.loads(current)
    return found
