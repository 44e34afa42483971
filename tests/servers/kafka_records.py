"""What a consumer sees of a topic."""

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.servers.processes import until

Record = tuple[int, bytes | None, bytes | None]


def records_of(address: str, topic: str) -> list[Record]:
    """All committed records, once no transaction is open: a commit returns a moment before its records are visible."""
    until(f"no transaction is open in {topic}", lambda: _is_settled(address, topic), 20)
    return visible_records(address, topic)


def visible_records(address: str, topic: str, isolation: str = "read_committed") -> list[Record]:
    """Partition, key and value of what a consumer sees now, partition by partition; nothing where there is no topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        records: list[Record] = []
        for partition in _partitions_of(consumer, topic):
            consumer.assign([TopicPartition(topic, partition, 0)])
            ended = False
            while not ended:
                for each in consumer.consume(10_000, 0.05):
                    error = each.error()
                    if error is None:
                        records.append((partition, each.key(), each.value()))
                    else:
                        assert error.code() == KafkaError._PARTITION_EOF, error
                        ended = True
        return records
    finally:
        consumer.close()


def table_of(address: str, topic: str) -> dict[bytes | None, bytes]:
    """The last value of each key, without tombstones: what compaction leaves in the end."""
    last = {key: value for _, key, value in records_of(address, topic)}
    return {key: value for key, value in last.items() if value is not None}


def _is_settled(address: str, topic: str) -> bool:
    ends = []
    for isolation in ("read_committed", "read_uncommitted"):
        consumer = Consumer({"bootstrap.servers": address, "group.id": "reader", "isolation.level": isolation})
        there = [TopicPartition(topic, partition) for partition in _partitions_of(consumer, topic)]
        ends.append([consumer.get_watermark_offsets(each, 10, cached=False) for each in there])
        consumer.close()
    return ends[0] == ends[1]


def _partitions_of(client: Consumer, topic: str) -> list[int]:
    found = client.list_topics(timeout=10).topics.get(topic)
    return [] if found is None else sorted(found.partitions)
