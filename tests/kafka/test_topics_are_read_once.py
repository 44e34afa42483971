"""What Spark offers to read Kafka with, through epochs, crashes and rollbacks: the result equals a batch's."""

import json
import time
from dataclasses import replace

import pytest
from click.testing import CliRunner
from pyspark.sql import functions as F

from dagster_ckpt.cli.command import main
from dagster_ckpt.runtime.driver.stream_job import JobHooks
from dagster_ckpt.runtime.micro_batch.epoch_driver import CommittedEpoch
from dagster_ckpt.runtime.run_mode import Mode
from tests.kafka.cluster import Cluster, position, totals_of
from tests.spark.streams import FAST, StreamUnderTest

pytestmark = pytest.mark.timeout(300)


CONTINUOUS = replace(FAST, mode=Mode.CONTINUOUS)


class Crash(BaseException):
    """What a process would die of."""


def crashing_after(stream: StreamUnderTest, epochs: int) -> JobHooks:
    def dies(epoch: CommittedEpoch) -> None:
        stream.epochs.append(epoch)
        if len(stream.epochs) == epochs:
            raise Crash

    return JobHooks(on_commit=dies)


def shown(stream: StreamUnderTest, *options: str) -> str:
    done = CliRunner().invoke(main, ["--store", stream.address.url, *options, "show", stream.name])
    assert done.exit_code == 0, done.output
    return str(done.output)


def test_a_topic_is_counted_once_across_a_crash_a_rollback_and_other_brokers(
    cluster: Cluster, stream: StreamUnderTest
) -> None:
    cluster.create("departures")
    cluster.produce("departures", 0, 1_000)
    totals = cluster.totals(subscribe="departures", startingOffsets="earliest", maxOffsetsPerTrigger=100)
    with pytest.raises(Crash):
        stream.run(totals, FAST, crashing_after(stream, 2))
    assert 0 < sum(int(str(row["rows"])) for row in stream.rows()) <= 200
    stream.run(totals)
    assert stream.rows() == totals_of(range(1_000))
    assert 10 <= len(stream.epochs) <= 12  # Spark rounds each partition's share of the hundred down

    [source] = json.loads(shown(stream, "--json"))["sources"]
    offsets = position(source["current"])["departures"]
    assert sum(offsets.values()) == 1_000
    words = ", ".join(f"{partition}: {offsets[partition]}" for partition in "012")
    assert f"kafka, next offset by partition: departures {words}" in " ".join(shown(stream).split())

    # The same topic by another address, then from its beginning again.
    by_name = f"localhost:{cluster.broker.address.rpartition(':')[2]}"
    elsewhere = cluster.totals(
        subscribe="departures", startingOffsets="earliest", **{"kafka.bootstrap.servers": by_name}
    )
    cluster.produce("departures", 1_000, 1_500)
    stream.run(elsewhere)
    assert stream.rows() == totals_of(range(1_500))
    stream.run(elsewhere, from_epoch=0)
    assert stream.rows() == totals_of(range(1_500))


def test_a_stream_begins_at_the_newest_records_and_goes_back_there(cluster: Cluster, stream: StreamUnderTest) -> None:
    cluster.create("newest")
    cluster.produce("newest", 0, 100)
    totals = cluster.totals(subscribe="newest", startingOffsets="latest")
    stream.run(totals)
    cluster.produce("newest", 100, 150)
    stream.run(totals)
    assert stream.rows() == totals_of(range(100, 150))
    cluster.produce("newest", 150, 160)
    stream.run(totals, from_epoch=0)
    assert stream.rows() == totals_of(range(100, 160))


def test_a_stream_begins_at_a_time(cluster: Cluster, stream: StreamUnderTest) -> None:
    cluster.create("times")
    cluster.produce("times", 0, 100)
    time.sleep(0.1)
    between_ms = time.time_ns() // 1_000_000
    cluster.produce("times", 100, 130)
    # Of a partition without a record from then on Spark has to know where to begin.
    options = {"startingTimestamp": between_ms, "startingOffsetsByTimestampStrategy": "latest"}
    stream.run(cluster.totals(subscribe="times", **options))
    assert stream.rows() == totals_of(range(100, 130))


def test_several_topics_a_pattern_and_chosen_partitions(cluster: Cluster, stream: StreamUnderTest) -> None:
    for number, topic in enumerate(["trips_a", "trips_b"]):
        cluster.create(topic)
        cluster.produce(topic, number * 100, number * 100 + 100)
    both = StreamUnderTest(stream.spark, stream.root, "both")
    both.run(cluster.totals(subscribe="trips_a,trips_b", startingOffsets="earliest"))
    assert both.rows() == totals_of(range(200))

    pattern = cluster.totals(subscribePattern="trips_.*", startingOffsets="earliest")
    like = StreamUnderTest(stream.spark, stream.root, "like")
    like.run(pattern)
    assert like.rows() == totals_of(range(200))
    cluster.create("trips_c")
    cluster.produce("trips_c", 200, 260)
    like.run(pattern)
    assert like.rows() == totals_of(range(260)), "a topic that was not there is read from its beginning"

    cluster.produce("trips_a", 1_000, 1_030, partition=F.lit(1))
    cluster.produce("trips_a", 2_000, 2_030, partition=F.lit(2))
    assigned = cluster.totals(assign=json.dumps({"trips_a": [1]}), startingOffsets=json.dumps({"trips_a": {"1": 0}}))
    stream.run(assigned)
    assert {row["k"]: row["rows"] for row in stream.rows()}.keys() == set(range(10))
    assert set(position(stream.epochs[-1].manifest.sources[0].current)["trips_a"]) == {"1"}


def test_partitions_that_are_added_while_a_stream_runs_are_read_from_their_beginning(
    cluster: Cluster, stream: StreamUnderTest
) -> None:
    cluster.create("grows", partitions=1)
    cluster.produce("grows", 0, 100)
    begun_s, produced = time.monotonic(), [100]

    def read_all() -> str | None:
        assert time.monotonic() - begun_s < 120
        read = stream.epochs[-1].manifest.statistics.total_rows_in if stream.epochs else 0
        if read == 300:
            return "all is read"
        if read == produced[-1]:
            cluster.add_partitions("grows", len(produced) + 1)
            cluster.produce("grows", read, read + 100, partition=F.lit(len(produced)))
            produced.append(read + 100)
        return None

    totals = cluster.totals(subscribe="grows", startingOffsets="earliest", **{"kafka.metadata.max.age.ms": 500})
    stream.run(totals, CONTINUOUS, JobHooks(on_commit=stream.epochs.append, stop_reason=read_all))
    assert stream.rows() == totals_of(range(300))
    assert position(stream.epochs[-1].manifest.sources[0].current)["grows"] == {"0": 100, "1": 100, "2": 100}
