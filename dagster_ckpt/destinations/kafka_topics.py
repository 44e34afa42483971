"""Topics of a Kafka cluster: made, described, and read as consumers with `read_committed` see them.

All offsets are below the last stable offset, where the oldest open transaction begins: no record after that is visible.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dagster_ckpt.clock import Clock
from dagster_ckpt.destinations.faults import Fault, destination_error
from dagster_ckpt.destinations.secrets import without_secrets
from dagster_ckpt.errors import CheckpointError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

_OF_CONNECTIONS = ("client.id", "https.", "sasl.", "security.", "socket.", "ssl.", "enable.ssl", "broker.address")
"""The settings of connections, which the consumer needs too. All others are for the producer."""

_OWN = ("bootstrap.servers", "transactional.id")

_MESSAGES = 10_000
_WINDOW = 64
_PAUSE_MS = 50
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic that is deleted and created again gets a new `id`."""

    id: str
    partitions: int


class KafkaTopics:
    """Connections that create and read topics. Errors name `address`. Closed by `close`."""

    def __init__(self, address: str, settings: Mapping[str, Any], timeout_s: int, clock: Clock) -> None:
        from confluent_kafka import Consumer
        from confluent_kafka.admin import AdminClient

        own = {name: value for name, value in settings.items() if name.startswith(_OF_CONNECTIONS)}
        own |= {"bootstrap.servers": settings["bootstrap.servers"], "log_level": 0}
        self._address, self._settings, self._timeout_s, self._clock = address, settings, timeout_s, clock
        self.last_error, self._connecting, self.last_code = "none", Fault.NO_ANSWER, 0
        self._admin = AdminClient(own | {"error_cb": self.note})
        self._consumer = Consumer(
            own
            | {
                "group.id": settings["transactional.id"],
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,  # the end of a partition is reported by an empty fetch
            }
        )

    def close(self) -> None:
        self._consumer.close()

    def describe(self, topic: str) -> TopicFacts | None:
        """None if there is no such topic."""
        from confluent_kafka import KafkaError, KafkaException, TopicCollection

        asked = self._admin.describe_topics(TopicCollection([topic]), request_timeout=self._timeout_s)
        try:
            found = asked[topic].result()
        except KafkaException as error:
            [what] = error.args
            if what.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise self._silent(topic, what) from error
        return TopicFacts(str(found.topic_id), len(found.partitions))

    def make(self, topic: str, partitions: int, config: Mapping[str, str]) -> TopicFacts:
        """Make a topic if it is missing. With -1 partitions it has as many as the brokers have by default."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewTopic

        deadline_ms = self._deadline_ms()
        while (found := self.describe(topic)) is None:
            asked = self._admin.create_topics(
                [NewTopic(topic, partitions, config=dict(config))], request_timeout=self._timeout_s
            )
            try:
                asked[topic].result()
            except KafkaException as error:
                # It is made, and not every broker knows it yet.
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS or self._clock.monotonic_ms() > deadline_ms:
                    raise self._silent(topic, error.args[0]) from error
            self._clock.sleep_ms(_PAUSE_MS)
        return found

    def last_value(self, topic: str) -> bytes | None:
        """The value of the last record in partition 0; None if it has none."""
        begin, end = self._bounds(topic, 0)
        window = _WINDOW
        while True:
            # The last offsets may be aborted records and transaction markers, so the window grows.
            last = None
            for messages in self._read(topic, 0, max(begin, end - window)):
                last = messages[-1]
            if last is not None or window >= end - begin:
                return None if last is None else last.value()
            window *= 16

    def has_records(self, topic: str, partitions: int) -> bool:
        """Whether a consumer sees any."""
        return next(self.records(topic, partitions), None) is not None

    def records(self, topic: str, partitions: int) -> Iterator[list["Message"]]:
        """Every visible record, partition by partition; those of a partition in order. No list is empty."""
        for partition in range(partitions):
            begin, end = self._bounds(topic, partition)
            if begin < end:
                yield from self._read(topic, partition, begin)

    def _bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset that is kept, and the last stable offset."""
        from confluent_kafka import TopicPartition

        found = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), self._timeout_s, cached=False)
        if found is None:
            raise self._silent(topic, "no reply")
        begin, end = found
        return begin, end

    def _read(self, topic: str, partition: int, begin: int) -> Iterator[list["Message"]]:
        """The visible records from this offset to the partition's end."""
        from confluent_kafka import KafkaError, TopicPartition

        self._consumer.assign([TopicPartition(topic, partition, begin)])
        ended, deadline_ms = False, self._deadline_ms()
        try:
            while not ended:
                records: list[Message] = []
                for message in self._consumer.consume(_MESSAGES, _POLL_S):
                    error = message.error()
                    if error is None:
                        records.append(message)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        ended = True
                    else:
                        raise self._silent(topic, error)
                if records:
                    deadline_ms = self._deadline_ms()
                    yield records
                elif not ended and self._clock.monotonic_ms() > deadline_ms:
                    raise self._silent(topic, "no reply")
        finally:
            self._consumer.unassign()

    def _deadline_ms(self) -> int:
        return self._clock.monotonic_ms() + 1000 * self._timeout_s

    def note(self, error: "KafkaError") -> None:
        """Keep the reason of an error: a time-out does not have it, and neither has one that is fatal."""
        self.last_error, self._connecting = shown_error(error, self._settings), kafka_fault(error)
        self.last_code = error.code()

    def fault(self, error: object) -> Fault:
        """Whose fault an error is. A time-out is that of what has kept the connection from being made."""
        found = kafka_fault(error)
        return self._connecting if found is Fault.NO_ANSWER else found

    def _silent(self, topic: str, reason: object) -> CheckpointError:
        with suppress(Exception):
            self._admin.poll(0)  # runs the call-back with the reason of a time-out
        return destination_error(
            self.fault(reason),
            "the topic cannot be read or created: check that its brokers can be reached.",
            destination=self._address,
            topic=topic,
            reason=shown_error(reason, self._settings),
            last_error=self.last_error,
        )


def kafka_fault(error: object) -> Fault:
    """Whose fault an error of librdkafka is."""
    from confluent_kafka import KafkaError

    faults = {
        KafkaError.INVALID_MSG: Fault.ROWS,
        KafkaError.INVALID_RECORD: Fault.ROWS,
        KafkaError.MSG_SIZE_TOO_LARGE: Fault.ROWS,
        KafkaError._AUTHENTICATION: Fault.PERSON,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED: Fault.PERSON,
        KafkaError.GROUP_AUTHORIZATION_FAILED: Fault.PERSON,
        KafkaError.INVALID_TRANSACTION_TIMEOUT: Fault.PERSON,
        KafkaError.POLICY_VIOLATION: Fault.PERSON,
        KafkaError.SASL_AUTHENTICATION_FAILED: Fault.PERSON,
        KafkaError.TOPIC_AUTHORIZATION_FAILED: Fault.PERSON,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Fault.PERSON,
    }
    return faults.get(error.code(), Fault.NO_ANSWER) if isinstance(error, KafkaError) else Fault.NO_ANSWER


def shown_error(error: object, settings: Mapping[str, Any]) -> str:
    """An error's text without the values of the user's settings."""
    return without_secrets(str(error), {name: settings[name] for name in settings if name not in _OWN})
