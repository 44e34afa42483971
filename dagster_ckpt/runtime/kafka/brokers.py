"""One Kafka cluster, through Kafka's Java client in Spark's JVM; no Python package is needed.

Thread-safe, except `oldest_ms`, which one thread may call at a time. All methods raise `Py4JError` if the cluster does
not answer in time.
"""

import threading
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from dagster_ckpt.protocol.epochs.topic_offsets import Offsets, Partition, TopicsNow

_ANSWER_S_MAX = 10
_POLLS_MAX = 5
_POLL_MS = 1_000
_FETCH_BYTES = 65_536
"""Per partition and fetch: only the first record is needed. Kafka sends a larger one all the same."""

_BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The id that brokers before 2.8 send."""


class Brokers:
    """The brokers of one cluster. `connection` are the user's options without `kafka.`."""

    def __init__(self, session: SparkSession, connection: Iterable[tuple[str, str]]) -> None:
        self._jvm: Any = session._jvm  # noqa: SLF001  (Spark exposes it nowhere else)
        self._connection = dict(connection)
        self._opening = threading.Lock()
        self._open_admin: Any = None
        self._open_consumer: Any = None

    def ask(self) -> None:
        """Return once the cluster answers."""
        self._answer(self._admin.describeCluster().nodes())

    def ids(self, names: Collection[str]) -> Mapping[str, str]:
        """The id of each topic that exists; brokers before 2.8 have none."""
        return _ids(self._descriptions(names))

    def topics(self, names: Collection[str]) -> TopicsNow:
        """The ids of these topics now, and the offsets that they have."""
        there = self._descriptions(names)
        partitions = [
            self._partition((name, info.partition())) for name, topic in there.items() for info in topic.partitions()
        ]
        spec = self._jvm.org.apache.kafka.clients.admin.OffsetSpec
        begins, ends = (
            self._admin.listOffsets(self._by_partition(partitions, which)) for which in (spec.earliest(), spec.latest())
        )
        return TopicsNow(
            ids=_ids(there),
            begins=self._offsets(begins, partitions),
            ends=self._offsets(ends, partitions),
        )

    def commit(self, group: str, offsets: Offsets) -> None:
        """Set the committed offsets of a consumer group, which may have no live member."""
        value = self._jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata
        committed = self._jvm.java.util.HashMap()
        for partition, at in offsets.items():
            committed.put(self._partition(partition), value(at))
        self._answer(self._admin.alterConsumerGroupOffsets(group, committed).all())

    def oldest_ms(self, offsets: Offsets) -> int | None:
        """The least timestamp, in ms since the Unix epoch, of the first record of each partition from its offset on.

        None where no record came within 5 s, or they have no timestamps.
        """
        consumer = self._consumer
        consumer.unsubscribe()  # a partition that stays assigned would stay paused
        consumer.assign([self._partition(partition) for partition in offsets])
        for partition, at in offsets.items():
            consumer.seek(self._partition(partition), at)
        times_ms: list[int] = []
        for _ in range(_POLLS_MAX):
            records = consumer.poll(self._jvm.java.time.Duration.ofMillis(_POLL_MS))
            for partition in records.partitions():
                times_ms.append(int(records.records(partition).get(0).timestamp()))
                consumer.pause([partition])
            if len(times_ms) >= len(offsets):
                break
        return min((time_ms for time_ms in times_ms if time_ms >= 0), default=None)

    def close(self) -> None:
        """Close the connections, without waiting for what is under way."""
        for client in (self._open_admin, self._open_consumer):
            # A consumer that another thread uses right now refuses; the JVM may be gone.
            with suppress(Py4JError, OSError):
                if client is not None:
                    client.close(self._jvm.java.time.Duration.ZERO)
        self._open_admin = self._open_consumer = None

    @property
    def _admin(self) -> Any:
        with self._opening:
            if self._open_admin is None:
                self._open_admin = self._jvm.org.apache.kafka.clients.admin.Admin.create(self._settings({}))
            return self._open_admin

    @property
    def _consumer(self) -> Any:
        if self._open_consumer is None:
            settings = {
                "key.deserializer": _BYTES,
                "value.deserializer": _BYTES,
                "enable.auto.commit": "false",
                "auto.offset.reset": "earliest",
                "max.partition.fetch.bytes": str(_FETCH_BYTES),
            }
            self._open_consumer = self._jvm.org.apache.kafka.clients.consumer.KafkaConsumer(self._settings(settings))
        return self._open_consumer

    def _settings(self, ours: Mapping[str, str]) -> Any:
        """The settings of a client: the user's, ours, and delegation tokens where Spark has some."""
        given = self._jvm.PythonUtils.toScalaMap({**self._connection, **ours})
        updater = self._jvm.org.apache.spark.kafka010.KafkaConfigUpdater("dagster-ckpt", given)
        return updater.setAuthenticationConfigIfNeeded().build()

    def _descriptions(self, names: Collection[str]) -> Mapping[str, Any]:
        """The description of each topic that exists."""
        answers, found = self._admin.describeTopics(list(names)).topicNameValues(), {}
        for name in names:
            try:
                found[name] = self._answer(answers.get(name))
            except Py4JJavaError as error:
                if "UnknownTopicOrPartitionException" not in str(error.java_exception):
                    raise
        return found

    def _answer(self, future: Any) -> Any:
        return future.get(_ANSWER_S_MAX, self._jvm.java.util.concurrent.TimeUnit.SECONDS)

    def _partition(self, partition: Partition) -> Any:
        return self._jvm.org.apache.kafka.common.TopicPartition(*partition)

    def _by_partition(self, partitions: Iterable[Any], value: Any) -> Any:
        found = self._jvm.java.util.HashMap()
        for partition in partitions:
            found.put(partition, value)
        return found

    def _offsets(self, listed: Any, partitions: Iterable[Any]) -> Offsets:
        answer = self._answer(listed.all())
        return {(str(each.topic()), int(each.partition())): int(answer.get(each).offset()) for each in partitions}


def reason_text(error: Exception) -> str:
    """The error of the cluster, in one line without Java's stack."""
    if not isinstance(error, Py4JJavaError):
        return type(error).__name__
    thrown = error.java_exception
    return str(thrown.getCause() or thrown).splitlines()[0]


def _ids(topics: Mapping[str, Any]) -> Mapping[str, str]:
    found = {name: str(topic.topicId().toString()) for name, topic in topics.items()}
    return {name: topic_id for name, topic_id in found.items() if topic_id != _NO_ID}
