"""Kafka on a real broker: what every destination must do, and what is its own."""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from dagster_ckpt.delivery.destination import (
    DeliveryMode,
    Destination,
    DestinationUnavailableError,
    RowsRefusedError,
    Transaction,
)
from dagster_ckpt.destinations import Kafka
from dagster_ckpt.destinations import kafka as module
from dagster_ckpt.errors import CheckpointError, IncompatibleStateError, InvalidPipelineError, OutsideCodeError
from dagster_ckpt.testing.destination_suite import APPENDED, COLUMNS, UPSERTED, DestinationSuite, Row, added, changed
from tests.destinations import kafka_writer
from tests.servers.kafka import JARS, Broker, kafka
from tests.servers.kafka_records import records_of, table_of, visible_records
from tests.servers.processes import HOST, free_port, until
from tests.unit.delivery.delivering import Delivering
from tests.unit.delivery.delivery_runs import DeliveryRuns
from tests.unit.history.made_streams import departures

pytestmark = [
    pytest.mark.skipif(not JARS, reason="there is no Maven that fetches the jars of a broker"),
    pytest.mark.timeout(300),
]

KILLS = 20
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with kafka(tmp_path_factory.mktemp("kafka"), {"log.cleaner.backoff.ms": "200"}) as broker:
        yield broker


@pytest.fixture
def to(broker: Broker) -> Kafka:
    return Kafka(broker.address, f"shop-{next(NUMBERS)}")


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.address})


def rows_in(to: Kafka) -> list[Row]:
    """As a reader of a topic of changes sees them, in no order."""
    values = [json.loads(value) for _, _, value in records_of(to.bootstrap_servers, to.topic) if value is not None]
    return [(row["carrier"], row["flights"]) for row in values]


class TestKafka(DestinationSuite, DeliveryRuns):
    # Not flush: how often it is called depends on how fast the broker is.
    outside: ClassVar = tuple(
        f"confluent_kafka:Producer().{name}"
        for name in ("init_transactions", "begin_transaction", "produce", "commit_transaction", "abort_transaction")
    )
    address: ClassVar[str]

    def no_reply(self) -> Exception:
        error: Exception = KafkaException(KafkaError(KafkaError._TIMED_OUT, "no reply"))
        return error

    @pytest.fixture(autouse=True)
    def server(self, broker: Broker) -> None:
        type(self).address = broker.address

    def make(self, folder: Path) -> Destination:
        return Kafka(self.address, f"shop-{next(NUMBERS)}")

    def maintain(self, destination: Destination) -> None:
        """Compaction; the broker cleans what is not in the newest segment."""
        assert isinstance(destination, Kafka)
        admin = AdminClient({"bootstrap.servers": self.address})
        for topic in (destination.topic, position_topic(destination, admin)):
            configure(admin, topic, segment_ms="50", min_cleanable_dirty_ratio="0.001", delete_retention_ms="0")
        time.sleep(0.5)

    def rows(self, destination: Destination) -> Iterable[Row]:
        assert isinstance(destination, Kafka)
        records = records_of(self.address, destination.topic)
        if all(key is None for _, key, _ in records):
            return rows_in(destination)
        rows = [json.loads(value) for value in table_of(self.address, destination.topic).values()]
        return [(row["carrier"], row["flights"]) for row in rows]


def start_writer(to: Kafka, last: int, *stops: int) -> subprocess.Popen[bytes]:
    arguments = [to.bootstrap_servers, to.topic, *map(str, (last, *stops))]
    return subprocess.Popen([sys.executable, kafka_writer.__file__, *arguments])


def expected_of(transactions: int) -> list[Row]:
    return [("UA", flights) for flights in range(kafka_writer.ROWS, kafka_writer.ROWS * (transactions + 1))]


def test_a_writer_that_is_killed_at_any_time_loses_and_doubles_nothing(to: Kafka) -> None:
    chance, found = random.Random(17), 0
    for _ in range(KILLS):
        writer = start_writer(to, last=1_000_000)
        # From when it has delivered something: most kills hit a transaction at work.
        until("it delivers", partial(delivers_more, to, found), 60)
        time.sleep(chance.random() / 5)
        writer.kill()
        writer.wait()
        found = delivered(to)
    with to.open("one", APPENDED) as session:
        assert session.position is not None
        last = int(session.position)
    assert last >= KILLS
    assert sorted(rows_in(to)) == expected_of(last)
    aborted = len(visible_records(to.bootstrap_servers, to.topic, "read_uncommitted")) - last * kafka_writer.ROWS
    assert aborted > 0, "no kill hit a transaction"


def delivered(to: Kafka) -> int:
    """How many transactions are visible."""
    return len(visible_records(to.bootstrap_servers, to.topic)) // kafka_writer.ROWS


def delivers_more(to: Kafka, than: int) -> bool:
    return delivered(to) > than


@pytest.mark.parametrize("waits_s", [0, 2], ids=["before", "after"])
def test_a_zombie_that_wakes_up_within_its_transaction_writes_nothing(to: Kafka, waits_s: int) -> None:
    """Its library learns that it has been fenced after it sends the next record, or before."""
    zombie = start_writer(to, 9, 3, waits_s)
    _, status = os.waitpid(zombie.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    with to.open("one", APPENDED) as session:
        assert session.position == "2"
        for number in (3, 4):
            session.apply(Transaction(str(number - 1), str(number), kafka_writer.rows_of(number)))
        os.kill(zombie.pid, signal.SIGCONT)
        assert zombie.wait(60) == kafka_writer.MOVED
        session.apply(Transaction("4", "5", kafka_writer.rows_of(5)))
    assert sorted(rows_in(to)) == expected_of(5)


def test_rows_of_an_aborted_transaction_are_never_visible(to: Kafka) -> None:
    seen: list[int] = []

    def broken() -> Iterator[pa.RecordBatch]:
        yield from kafka_writer.rows_of(1)
        session._producer.flush()
        seen.append(len(visible_records(to.bootstrap_servers, to.topic)))
        seen.append(len(visible_records(to.bootstrap_servers, to.topic, "read_uncommitted")))
        raise CheckpointError("a file of the stream is damaged")

    with to.open("one", APPENDED) as session, pytest.raises(CheckpointError, match="damaged"):
        session.apply(Transaction(None, "1", broken()))
    assert seen == [0, kafka_writer.ROWS]
    assert rows_in(to) == []
    with to.open("one", APPENDED) as session:
        assert session.position is None
        session.apply(Transaction(None, "1", kafka_writer.rows_of(1)))
    assert sorted(rows_in(to)) == expected_of(1)


def position_topic(to: Kafka, admin: AdminClient) -> str:
    [found] = [each for each in admin.list_topics(timeout=10).topics if each.startswith(f"{to.topic}.dagster-ckpt-")]
    return str(found)


def configure(admin: AdminClient, topic: str, **config: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in config.items()
    ]
    [done] = admin.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)]
    ).values()
    done.result(10)


def test_the_position_survives_compaction(to: Kafka, admin: AdminClient) -> None:
    with to.open("one", APPENDED) as session:
        session.apply(Transaction(None, "0", iter(())))
        topic = position_topic(to, admin)
        configure(admin, topic, segment_ms="100", min_cleanable_dirty_ratio="0.001", delete_retention_ms="0")
        for number in range(20):
            time.sleep(0.02)
            session.apply(Transaction(str(number), str(number + 1), iter(())))

        def compacted() -> bool:
            before = session.position
            session.apply(Transaction(before, f"{before}+", iter(())))  # the segment at work is never compacted
            return len(records_of(to.bootstrap_servers, topic)) < 10

        until("the topic is compacted", compacted, 60)
        last = session.position
    with to.open("one", APPENDED) as session:
        assert session.position == last


def test_the_position_is_found_behind_many_aborted_ones(to: Kafka, admin: AdminClient) -> None:
    with to.open("one", APPENDED) as session:
        session.apply(Transaction(None, "1", added(("UA", 1))))
    topic = position_topic(to, admin)
    other = Producer({"bootstrap.servers": to.bootstrap_servers, "transactional.id": "other", "linger.ms": 0})
    other.init_transactions(10)
    for _ in range(10):
        other.begin_transaction()
        for _ in range(20):
            other.produce(topic, b"{}", b"one", 0)
        other.flush(10)
        other.abort_transaction(10)
    with to.open("one", APPENDED) as session:
        assert session.position == "1"


def test_a_replacement_removes_the_keys_that_are_gone_and_no_other(to: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PIECE_ROWS", 50)
    carriers = [f"c{number}" for number in range(300)]
    with to.open("one", UPSERTED) as session:
        session.apply(Transaction(None, "1", changed(*(("insert", (each, 1)) for each in carriers))))
        session.apply(Transaction("1", "2", changed(*(("delete", (each, 1)) for each in carriers[200:]))))
        before = len(records_of(to.bootstrap_servers, to.topic))
        session.apply(
            Transaction("2", "3", changed(*(("insert", (each, 2)) for each in carriers[:150])), replaces=True)
        )
    records = records_of(to.bootstrap_servers, to.topic)
    kept = {json.dumps({"carrier": each}, separators=(",", ":")).encode() for each in carriers[:150]}
    assert set(table_of(to.bootstrap_servers, to.topic)) == kept
    assert len(records) - before == 150 + 150
    assert not kept & {key for _, key, value in records if value is None}


def test_a_replacement_reads_the_topic_when_the_transaction_before_is_visible(
    to: Kafka, admin: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers take a record of the next transaction only then."""
    sent: list[int] = []
    with to.open("one", UPSERTED) as session:
        read = session._topics.records

        def watched(topic: str, partitions: int) -> Iterator[list[Any]]:
            sent.append(len(visible_records(to.bootstrap_servers, position_topic(to, admin), "read_uncommitted")))
            return read(topic, partitions)

        monkeypatch.setattr(session._topics, "records", watched)
        session.apply(Transaction(None, "1", changed(("insert", ("UA", 1)))))
        session.apply(Transaction("1", "2", iter(()), replaces=True))
    assert sent == [2]
    assert table_of(to.bootstrap_servers, to.topic) == {}


def test_a_table_of_one_row_is_one_key_that_each_transaction_replaces(to: Kafka) -> None:
    with to.open("one", replace(UPSERTED, key=())) as session:
        session.apply(Transaction(None, "1", changed(("insert", ("UA", 1))), replaces=True))
        session.apply(Transaction("1", "2", changed(("insert", ("UA", 2))), replaces=True))
    row = b'{"carrier":"UA","flights":2}'
    assert table_of(to.bootstrap_servers, to.topic) == {b"{}": row}
    with to.open("one", replace(UPSERTED, key=())) as session:
        session.apply(Transaction("2", "3", iter(()), replaces=True))
    assert table_of(to.bootstrap_servers, to.topic) == {}
    assert len(records_of(to.bootstrap_servers, to.topic)) == 3


def test_a_topic_of_upserts_is_compacted_and_of_changes_is_not(to: Kafka, admin: AdminClient, broker: Broker) -> None:
    changes = Kafka(broker.address, f"{to.topic}-changes")
    with to.open("one", UPSERTED), changes.open("one", APPENDED):
        pass
    policies = {topic: cleanup_policy(admin, topic) for topic in (to.topic, changes.topic, position_topic(to, admin))}
    assert policies == {to.topic: "compact", changes.topic: "delete", position_topic(to, admin): "compact"}


def cleanup_policy(admin: AdminClient, topic: str) -> str:
    [found] = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return str(found.result(10)["cleanup.policy"].value)


def test_a_record_is_in_the_partition_that_java_chooses(to: Kafka) -> None:
    carriers = [f"c{number}" for number in range(100)]
    with to.open("one", UPSERTED) as session:
        session.apply(Transaction(None, "1", changed(*(("insert", (each, 1)) for each in carriers))))
    records = records_of(to.bootstrap_servers, to.topic)
    assert len(records) == 100
    assert [partition for partition, _, _ in records] == [murmur2(key or b"") % 3 for _, key, _ in records]


def murmur2(data: bytes) -> int:
    """Kafka's `Utils.toPositive(Utils.murmur2(data))`."""
    mixer, mask = 0x5BD1E995, 0xFFFFFFFF
    found = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for begin in range(0, whole, 4):
        word = int.from_bytes(data[begin : begin + 4], "little") * mixer & mask
        word = (word ^ word >> 24) * mixer & mask
        found = found * mixer & mask ^ word
    if data[whole:]:
        found = (found ^ int.from_bytes(data[whole:], "little")) * mixer & mask
    found = (found ^ found >> 13) * mixer & mask
    return (found ^ found >> 15) & 0x7FFFFFFF


def test_the_key_of_a_change_is_of_the_columns_that_are_named(broker: Broker) -> None:
    to = Kafka(broker.address, f"shop-{next(NUMBERS)}", key=["carrier"])
    to.check(APPENDED)
    with to.open("one", APPENDED) as session:
        session.apply(Transaction(None, "1", added(("UA", 1), (None, 2))))
    records = {(key, value) for _, key, value in records_of(broker.address, to.topic)}
    assert records == {
        (b'{"carrier":"UA"}', b'{"carrier":"UA","flights":1}'),
        (b'{"carrier":null}', b'{"carrier":null,"flights":2}'),
    }


@pytest.mark.parametrize("where", ["in the client", "in the broker"])
def test_a_record_that_is_too_large_is_named_and_nothing_is_written(where: str, to: Kafka, admin: AdminClient) -> None:
    with to.open("one", APPENDED) as session:
        session.apply(Transaction(None, "1", added(("UA", 1))))
        if where == "in the broker":
            configure(admin, to.topic, max_message_bytes="2000")
            time.sleep(1)
        large = "A" * (3_000 if where == "in the broker" else 2_000_000)
        with pytest.raises(RowsRefusedError, match=rf"max.message.bytes.*/{to.topic}"):
            session.apply(Transaction("1", "2", added(("AA", 1), (large, 2))))
    assert rows_in(to) == [("UA", 1)]
    with to.open("one", APPENDED) as session:
        assert session.position == "1"
        session.apply(Transaction("1", "2", added(("AA", 1))))
    assert sorted(rows_in(to)) == [("AA", 1), ("UA", 1)]


def test_more_rows_than_the_queue_holds_are_all_sent(to: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_QUEUE_KB", 64)
    rows = pa.RecordBatch.from_pydict({"carrier": ["A" * 1000] * 2000, "flights": range(2000)}, COLUMNS)
    with to.open("one", APPENDED) as session:
        session.apply(Transaction(None, "1", iter([rows])))
    assert sorted(flights or 0 for _, flights in rows_in(to)) == list(range(2000))


def test_a_transaction_that_takes_too_long_writes_nothing_and_says_what_to_do(broker: Broker) -> None:
    to = Kafka(broker.address, f"shop-{next(NUMBERS)}", transaction_timeout_s=1)

    def slow() -> Iterator[pa.RecordBatch]:
        yield from added(("UA", 1))
        time.sleep(1.5)
        yield from added(("AA", 1))

    with to.open("one", APPENDED) as session, pytest.raises(DestinationUnavailableError, match="max_epochs"):
        session.apply(Transaction(None, "1", slow()))
    assert rows_in(to) == []


def test_a_longer_transaction_than_the_brokers_allow_is_refused(broker: Broker) -> None:
    to = Kafka(broker.address, f"shop-{next(NUMBERS)}", transaction_timeout_s=901)
    with pytest.raises(OutsideCodeError, match=r"transaction\.max\.timeout\.ms.*transaction_timeout_s=901"):
        to.open("one", APPENDED)


def test_a_broker_that_was_away_is_no_loss(tmp_path: Path) -> None:
    with kafka(tmp_path) as own:
        to = Kafka(own.address, "shop", timeout_s=5)
        with to.open("one", APPENDED) as session:
            session.apply(Transaction(None, "1", kafka_writer.rows_of(1)))
            own.kill()
            with pytest.raises(DestinationUnavailableError, match=f"kafka://{own.address}/shop"):
                session.apply(Transaction("1", "2", kafka_writer.rows_of(2)))
            with pytest.raises(DestinationUnavailableError, match=f"kafka://{own.address}/shop"):
                to.open("one", APPENDED)
        own.start()
        until("it answers", lambda: _opens(to), 60)
        with to.open("one", APPENDED) as session:
            assert session.position == "1"
            session.apply(Transaction("1", "2", kafka_writer.rows_of(2)))
        assert sorted(rows_in(to)) == expected_of(2)


def _opens(to: Kafka) -> bool:
    with suppress(DestinationUnavailableError), to.open("one", APPENDED):
        return True
    return False


def test_a_topic_that_was_made_again_is_noticed(to: Kafka, admin: AdminClient) -> None:
    with to.open("one", APPENDED) as session:
        session.apply(Transaction(None, "1", added(("UA", 1))))
    admin.delete_topics([to.topic])[to.topic].result(10)
    until("it is gone", lambda: visible_records(to.bootstrap_servers, to.topic) == [], 20)
    with pytest.raises(IncompatibleStateError, match=position_topic(to, admin)):
        to.open("one", APPENDED)
    admin.create_topics([NewTopic(to.topic, 3)])[to.topic].result(10)
    with pytest.raises(IncompatibleStateError, match=position_topic(to, admin)):
        to.open("one", APPENDED)
    assert rows_in(to) == []


def test_partitions_that_were_added_are_noticed_where_keys_would_move(to: Kafka, admin: AdminClient) -> None:
    changes = Kafka(to.bootstrap_servers, f"{to.topic}-changes")
    for each, table in ((to, UPSERTED), (changes, APPENDED)):
        with each.open("one", table) as session:
            session.apply(Transaction(None, "1", iter(())))
    for done in admin.create_partitions([NewPartitions(to.topic, 4), NewPartitions(changes.topic, 4)]).values():
        done.result(10)
    with pytest.raises(IncompatibleStateError, match="partitions=4, before=3"):
        to.open("one", UPSERTED)
    with changes.open("one", APPENDED) as session:
        assert session.position == "1"


def test_a_stream_and_its_rollback_are_delivered(to: Kafka, tmp_path: Path) -> None:
    delivering = Delivering(tmp_path)
    first = delivering.stream.commit(departures({"UA": [1.0, 5.0], None: [2.0]}))
    delivering.deliver(to)
    delivering.stream.commit(departures({"UA": [9.0], "DL": [4.0]}))
    delivering.deliver(to)
    assert delivered_table(to) == delivering.table()
    assert len(delivering.table()) == 3
    delivering.stream.open(from_epoch=first)
    delivering.deliver(to)
    assert delivered_table(to) == delivering.table()
    assert len(delivering.table()) == 2
    delivering.stream.commit(departures({"B6": [2.0]}))
    delivering.deliver(to)
    assert delivered_table(to) == delivering.table()


def delivered_table(to: Kafka) -> list[tuple[object, ...]]:
    """The rows as `Delivering.table` has them."""
    rows = [json.loads(value) for value in table_of(to.bootstrap_servers, to.topic).values()]
    return sorted((tuple(row.values()) for row in rows), key=repr)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"sasl.password": "secret", "security.protocol": "no such secret"}, "security.protocol"),
        ({"ssl.key.pem": "secret", "acks": "1"}, "acks"),
        ({"sasl.password": "secret", "no.such.setting": "1"}, "no.such.setting"),
    ],
)
def test_a_wrong_setting_is_named_and_no_password_is_shown(settings: dict[str, str], says: str, broker: Broker) -> None:
    to = Kafka(broker.address, "shop", config=settings)
    with pytest.raises(InvalidPipelineError, match=says) as error:
        to.open("one", APPENDED)
    assert "secret" not in f"{error.value}{to!r}{to.address}".replace("no such secret", "")


def test_a_user_needs_the_acls_that_the_docs_name_and_no_other(tmp_path: Path) -> None:
    port = free_port()
    login = "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",  # who comes without a password: the broker itself, and the test
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{login} required user_shop="s3cret";',
        "sasl.enabled.mechanisms": "PLAIN",
    }
    with kafka(tmp_path, settings, f"SASL_PLAINTEXT://{HOST}:{port}") as own:
        login_as = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "shop"}
        wrong = Kafka(f"{HOST}:{port}", "shop", config={**login_as, "sasl.password": "oth3r"}, timeout_s=3)
        with pytest.raises(OutsideCodeError, match="SASL authentication error") as error:
            wrong.open("one", APPENDED)
        assert "oth3r" not in str(error.value)
        to = Kafka(f"{HOST}:{port}", "shop", config={**login_as, "sasl.password": "s3cret"}, timeout_s=3)
        with pytest.raises(OutsideCodeError, match="authorization failed"):
            to.open("one", UPSERTED)
        allow(own, ResourceType.TOPIC, AclOperation.CREATE, AclOperation.READ, AclOperation.WRITE)
        allow(own, ResourceType.TRANSACTIONAL_ID, AclOperation.WRITE)
        allow(own, ResourceType.GROUP, AclOperation.READ)
        with to.open("one", UPSERTED) as session:
            session.apply(Transaction(None, "1", changed(("insert", ("UA", 1)))))
            session.apply(Transaction("1", "2", changed(("insert", ("AA", 1))), replaces=True))
        with to.open("one", UPSERTED) as session:
            assert session.position == "2"
        assert set(table_of(own.address, "shop")) == {b'{"carrier":"AA"}'}


def allow(broker: Broker, kind: ResourceType, *operations: AclOperation) -> None:
    """The operations on what begins with `shop`."""
    admin, prefixed, yes = AdminClient({"bootstrap.servers": broker.address}), ResourcePatternType.PREFIXED, "User:shop"
    acls = [AclBinding(kind, "shop", prefixed, yes, "*", each, AclPermissionType.ALLOW) for each in operations]
    for done in admin.create_acls(acls).values():
        done.result(10)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topic": "a topic"}, "topic='a topic'"),
        ({"topic": "shop", "key": "carrier"}, r"key=\['carrier'\]"),
        ({"topic": "shop", "config": {"transactional.id": "mine"}}, "config=transactional.id"),
        ({"topic": "shop", "config": {"metadata.broker.list": "elsewhere:9092"}}, r"config=metadata\.broker\.list"),
        ({"topic": "shop", "timeout_s": 0}, "timeout_s=0"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidPipelineError, match=says):
        Kafka("localhost:9092", **options)


def test_a_key_that_the_table_lacks_is_refused() -> None:
    with pytest.raises(InvalidPipelineError, match=r"Did you mean 'carrier'\? column=carier"):
        Kafka("localhost:9092", "shop", key=["carier"]).check(APPENDED)
    with pytest.raises(InvalidPipelineError, match="remove key="):
        Kafka("localhost:9092", "shop", key=["carrier"]).check_mode(DeliveryMode.UPSERT)
