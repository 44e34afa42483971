"""Apache Kafka: one transaction of a producer holds the records and the position.

The position is the last record of a compacted topic with one partition, which each delivery has for itself: in a shared
one, another delivery's open transaction would hide it. Its name is also the delivery's `transactional.id`:

    <topic>.dagster-ckpt-<16 digits>     {"position": ..., "topic_id": ..., "partitions": ...}

`init_transactions` is the fence. It aborts or finishes the previous session's transaction, and every later commit of
that session fails. Only then is the position read, as a consumer with `read_committed` sees it. So only one session
can move the position, and it compares positions itself, which the brokers cannot.

In mode upsert the topic, compacted, is the table: the last record of a key is its row, and one without a value (a
tombstone) says that there is none.

A replacement must remove the keys that are gone, and only the topic has them. The new rows are sent first, and their
keys kept as an Arrow array. Then the topic is read, piece by piece, and each key that is not among the new ones gets a
tombstone: memory holds the keys of the new table and one piece.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.clock import Clock, SystemClock
from dagster_ckpt.delivery.destination import (
    DeliveredTable,
    DeliveryMode,
    PositionMovedError,
    RowsRefusedError,
    Transaction,
    deleted_keys,
    start_over,
    upserted,
)
from dagster_ckpt.destinations.faults import destination_error
from dagster_ckpt.destinations.json_rows import check_json, in_pieces, json_rows
from dagster_ckpt.destinations.kafka_topics import KafkaTopics, TopicFacts, shown_error
from dagster_ckpt.destinations.secrets import public_address, resolve, secrets_hidden
from dagster_ckpt.errors import (
    CheckpointError,
    IncompatibleStateError,
    InvalidPipelineError,
    OutsideCodeError,
    did_you_mean,
)

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,200}")
_COMPACTED = {"cleanup.policy": "compact"}

_QUEUE_KB = 64 << 10
_QUEUE_RECORDS = 1_000_000
_PIECE_ROWS = 100_000
_WAIT_S = 0.01
_ABORT_S = 10
_KEY_LENGTH_MAX = 200

_OWN = frozenset({"bootstrap.servers", "metadata.broker.list", "group.id", "isolation.level", "partitioner"})
_OWN_PREFIXES = ("transaction", "delivery.report.", "enable.idempotence", "error_cb")


@dataclass(frozen=True)
class Kafka:
    """A topic of a Kafka cluster, whose records are JSON.

        deliver(delay_by_carrier, to=Kafka("broker:9092", "delays"))

    `topic` is made if it is missing, compacted in mode upsert. `key` names the columns of a record's key in mode
    append; in mode upsert that is the table's. `config` are settings of librdkafka, such as `security.protocol`,
    `sasl.password` or `compression.type`; each value may be a `dg.EnvVar`, and none is shown. The brokers abort a
    transaction that takes longer than `transaction_timeout_s`. `timeout_s` is how long a call waits for them.
    """

    bootstrap_servers: str
    topic: str
    key: Sequence[str] = ()
    config: Mapping[str, str] = field(default_factory=dict, repr=False)
    transaction_timeout_s: int = 900
    timeout_s: int = 60

    def __post_init__(self) -> None:
        if not _TOPIC.fullmatch(self.topic):
            raise InvalidPipelineError(
                f"a topic's name is 1 to 200 letters, digits, dots, hyphens and underscores: rename it. "
                f"topic={self.topic!r}"
            )
        if isinstance(self.key, str):
            raise InvalidPipelineError(
                f"key is a list of columns: give key=[{self.key!r}]. key={self.key!r}, topic={self.topic}"
            )
        for name in self.config:
            if name in _OWN or name.startswith(_OWN_PREFIXES):
                raise InvalidPipelineError(
                    f"this setting belongs to the delivery, on which exactly once depends: remove it. "
                    f"config={name}, topic={self.topic}"
                )
        if self.transaction_timeout_s < 1 or self.timeout_s < 1:
            raise InvalidPipelineError(
                f"time-outs are 1 second or more. transaction_timeout_s={self.transaction_timeout_s}, "
                f"timeout_s={self.timeout_s}, topic={self.topic}"
            )

    @property
    def kind(self) -> str:
        return "kafka"

    @property
    def address(self) -> str:
        return public_address(f"kafka://{resolve(self.bootstrap_servers)}/{self.topic}")

    @property
    def table_name(self) -> str:
        return self.topic

    def check_mode(self, mode: DeliveryMode) -> None:
        if self.key and mode is DeliveryMode.UPSERT:
            raise InvalidPipelineError(
                f"in mode upsert a record's key is the table's key: remove key=. topic={self.topic}, "
                f"key={', '.join(self.key)}"
            )

    def check(self, table: DeliveredTable) -> None:
        for name in self.key:
            if name not in table.columns.names:
                raise InvalidPipelineError(
                    f"the stream's table has no such column for the key.{did_you_mean(name, table.columns.names)} "
                    f"column={name}, topic={self.topic}, columns={', '.join(table.columns.names)}"
                )
        for column in table.columns:
            check_json(column.name, column.type, self.address)

    def open(self, delivery: str, table: DeliveredTable) -> "KafkaSession":
        return KafkaSession(self, delivery, table, SystemClock())

    def settings(self) -> dict[str, str]:
        """`config` with the values of its environment variables."""
        return {name: resolve(value) for name, value in self.config.items()}


class KafkaSession:
    """A producer with the newest epoch of its `transactional.id`."""

    def __init__(self, to: Kafka, delivery: str, table: DeliveredTable, clock: Clock) -> None:
        try:
            from confluent_kafka import Producer
        except ImportError as error:
            raise OutsideCodeError(
                "delivering to Kafka needs its library: pip install 'dagster-ckpt[kafka]'"
            ) from error
        self._to, self._delivery, self._table, self._clock = to, delivery, table, clock
        self._key = tuple(to.key) if table.mode is DeliveryMode.APPEND else table.key
        self._positions = f"{to.topic}.dagster-ckpt-{blake2b(delivery.encode(), digest_size=8).hexdigest()}"
        self._ends_ms: int | None = None
        self._settings = settings = {
            **to.settings(),
            "bootstrap.servers": resolve(to.bootstrap_servers),
            "transactional.id": self._positions,
        }
        with self._errors():
            self._topics = KafkaTopics(to.address, settings, to.timeout_s, clock)
            try:
                self._topics.make(self._positions, 1, _COMPACTED)
                self._producer = Producer(
                    {
                        "queue.buffering.max.kbytes": _QUEUE_KB,
                        "queue.buffering.max.messages": _QUEUE_RECORDS,
                        "log_level": 0,
                        **settings,
                        "transaction.timeout.ms": 1000 * to.transaction_timeout_s,
                        "partitioner": "murmur2_random",  # the Java client's: the same key, the same partition
                        "delivery.report.only.error": True,
                        "error_cb": self._topics.note,  # without it, calls raise an object that is no exception
                    }
                )
                self._producer.init_transactions(to.timeout_s)
                value = self._topics.last_value(self._positions)
                found = None if value is None else json.loads(value)
                self._topic = self._check_topic(found)
                self.position: str | None = None if found is None else found["position"]
            except BaseException:
                self._topics.close()
                raise

    def __enter__(self) -> "KafkaSession":
        return self

    def __exit__(self, *error: object) -> None:
        self._topics.close()

    def apply(self, transaction: Transaction) -> None:
        """See `Session.apply`."""
        if transaction.after != self.position:
            raise PositionMovedError(
                f"this transaction does not build on the destination's position. destination={self._to.address}, "
                f"after={transaction.after}, position={self.position}"
            )
        self._ends_ms = self._clock.monotonic_ms() + 1000 * self._to.transaction_timeout_s
        position = {"position": transaction.until, "topic_id": self._topic.id, "partitions": self._topic.partitions}
        with self._errors():
            self._producer.begin_transaction()
            try:
                # First: a replacement waits until the brokers have accepted a record of this transaction.
                self._producer.produce(self._positions, json.dumps(position).encode(), self._delivery.encode(), 0)
                if not self._upserts:
                    self._append(transaction.rows)
                elif transaction.replaces:
                    self._replace(transaction.rows)
                else:
                    self._upsert(transaction.rows)
                self._wait_until(0)
                self._producer.commit_transaction(self._to.timeout_s)
            except BaseException:
                with suppress(Exception):  # the next opening aborts it, or the brokers do
                    self._producer.abort_transaction(min(self._to.timeout_s, _ABORT_S))
                raise
        self.position = transaction.until

    @property
    def _upserts(self) -> bool:
        return self._table.mode is DeliveryMode.UPSERT

    def _append(self, rows: Iterator[pa.RecordBatch]) -> None:
        for batch in in_pieces(rows):
            self._send(self._keys(batch), json_rows(batch))

    def _upsert(self, changes: Iterator[pa.RecordBatch]) -> None:
        for batch in in_pieces(changes):
            rows = upserted(batch)
            self._send(self._keys(rows), json_rows(rows))
            self._send_tombstones(json_rows(deleted_keys(batch, self._key)))

    def _replace(self, rows: Iterator[pa.RecordBatch]) -> None:
        sent = [pa.array([], pa.string())]
        for batch in in_pieces(rows):
            there = upserted(batch)
            sent.append(json_rows(there.select(self._key)))
            self._send(sent[-1], json_rows(there))
        # The previous commit returned before it reached all partitions, and its records are hidden until then. Brokers
        # accept no record of this transaction before that.
        self._wait_until(0)
        kept = pa.chunked_array(sent).cast(pa.large_binary()).combine_chunks()
        for keys in self._keys_there(max(_PIECE_ROWS, len(kept))):
            self._send_tombstones(keys.filter(pc.invert(pc.is_in(keys, value_set=kept))))

    def _keys_there(self, piece_rows: int) -> Iterator[pa.Array]:
        """The keys in the topic; no piece has a key twice."""
        if not self._key:  # a table of one row, which each transaction replaces: no need to read the topic
            yield pa.array([b"{}"], pa.large_binary())
            return
        keys: list[bytes] = []
        for records in self._topics.records(self._to.topic, self._topic.partitions):
            keys += [key for each in records if (key := each.key()) is not None and each.value() is not None]
            if len(keys) >= piece_rows:
                yield pc.unique(pa.array(keys, pa.large_binary()))
                keys = []
        yield pc.unique(pa.array(keys, pa.large_binary()))

    def _keys(self, batch: pa.RecordBatch) -> pa.Array:
        has_keys = self._upserts or self._key
        return json_rows(batch.select(self._key)) if has_keys else pa.nulls(batch.num_rows, pa.string())

    def _send_tombstones(self, keys: pa.Array) -> None:
        self._send(keys, pa.nulls(len(keys), pa.string()))

    def _send(self, keys: pa.Array, values: pa.Array) -> None:
        from confluent_kafka import KafkaException

        produce, topic = self._producer.produce, self._to.topic
        for key, value in zip(_as_bytes(keys), _as_bytes(values), strict=True):
            try:
                produce(topic, value, key)
            except BufferError:
                self._wait_until(len(self._producer) // 2)
                produce(topic, value, key)
            except KafkaException as error:
                raise self._of(error.args[0], None if key is None else key.decode()[:_KEY_LENGTH_MAX]) from error
        self._check_time()

    def _wait_until(self, left: int) -> None:
        """Wait until at most `left` records are queued."""
        waiting, since_ms = len(self._producer), self._clock.monotonic_ms()
        while waiting > left:
            self._producer.flush(_WAIT_S)
            self._check_time()
            now_ms = self._clock.monotonic_ms()
            if len(self._producer) < waiting:
                waiting, since_ms = len(self._producer), now_ms
            elif now_ms - since_ms > 1000 * self._to.timeout_s:
                raise self._error(f"{waiting} records could not be sent")

    def _check_topic(self, found: Mapping[str, Any] | None) -> TopicFacts:
        """The topic, which is made if there is none; `found` is the record of the position."""
        there = self._topics.describe(self._to.topic)
        if found is None:
            if there is None:
                return self._topics.make(self._to.topic, -1, _COMPACTED if self._upserts else {})
            if self._topics.has_records(self._to.topic, there.partitions):
                raise InvalidPipelineError(
                    "a delivery begins with an empty topic, and this one has records that it has not written: name "
                    f"another. destination={self._to.address}, delivery={self._delivery}"
                )
            return there
        if there is None or there.id != found["topic_id"]:
            raise IncompatibleStateError(
                "the topic was deleted after records were delivered, and the position stayed: nothing was written. "
                f"To start over, {start_over(self._delivery, self._table, 'delete the topic')}. "
                f"destination={self._to.address}, topic_of_position={self._positions}"
            )
        if self._upserts and there.partitions != found["partitions"]:
            raise IncompatibleStateError(
                "the topic has more partitions than before, so the records of a key would be in two of them, and "
                "compaction would keep both: nothing was written. To start over, "
                f"{start_over(self._delivery, self._table, 'delete the topic')}. "
                f"destination={self._to.address}, partitions={there.partitions}, before={found['partitions']}"
            )
        return there

    def _is_late(self) -> bool:
        """Whether the brokers may have ended the transaction."""
        return self._ends_ms is not None and self._clock.monotonic_ms() >= self._ends_ms

    def _check_time(self) -> None:
        if self._is_late():
            raise self._error(
                "the transaction took longer than the brokers allow. Lower max_epochs of deliver, or raise "
                f"transaction_timeout_s. transaction_timeout_s={self._to.transaction_timeout_s}"
            )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        from confluent_kafka import KafkaException

        with secrets_hidden(self._to.config):
            try:
                yield
            except KafkaException as error:
                raise self._of(error.args[0]) from error

    def _of(self, error: "KafkaError", key: str | None = None) -> CheckpointError:
        from confluent_kafka import KafkaError

        reason = shown_error(error, self._settings)
        fenced, code = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}, error.code()
        if code == KafkaError._FATAL:
            self._producer.poll(0)  # runs the call-back, which alone is told what was fatal
            code = self._topics.last_code
        if code in fenced and not self._is_late():
            return PositionMovedError(
                "another delivery has taken over: this one has written nothing. "
                f"destination={self._to.address}, delivery={self._delivery}"
            )
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return RowsRefusedError(
                "a record is larger than the topic allows: raise max.message.bytes of the topic and message.max.bytes "
                "in config, or make the row's columns smaller in the stream. Nothing was written. "
                f"destination={self._to.address}, reason={reason}{'' if key is None else f', key={key}'}"
            )
        if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            return OutsideCodeError(
                "the brokers do not allow a transaction this long: lower transaction_timeout_s, or raise their "
                f"transaction.max.timeout.ms. destination={self._to.address}, "
                f"transaction_timeout_s={self._to.transaction_timeout_s}"
            )
        if error.code() == KafkaError._INVALID_ARG:
            return InvalidPipelineError(
                f"a setting in config is wrong: correct it. destination={self._to.address}, reason={reason}"
            )
        return self._error(reason, error)

    def _error(self, reason: str, error: "KafkaError | None" = None) -> CheckpointError:
        return destination_error(
            self._topics.fault(error),
            "the request to Kafka failed, or its reply was lost: check that the brokers can be reached.",
            destination=self._to.address,
            reason=reason,
            last_error=self._topics.last_error,
        )


def _as_bytes(text: pa.Array) -> list[bytes | None]:
    there: list[bytes | None] = text.cast(pa.large_binary()).to_numpy(zero_copy_only=False).tolist()
    return there
