"""Records that a topic loses before a stream has read them, and topics that are deleted and created again."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest
from pyspark.sql import SparkSession

from dagster_ckpt import agg
from dagster_ckpt.errors import IncompatibleStateError, InvalidPipelineError
from dagster_ckpt.protocol.epochs.topic_offsets import LossReason, LostOffsets
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.rebuild import RebuildHooks
from dagster_ckpt.runtime.driver.stream_job import JobHooks
from dagster_ckpt.runtime.micro_batch.epoch_driver import CommittedEpoch
from dagster_ckpt.runtime.run_mode import Mode
from tests.kafka.cluster import Cluster, parsed, totals_of
from tests.spark.streams import FAST, Function, StreamUnderTest

pytestmark = pytest.mark.timeout(300)

GOES_ON = {"failOnDataLoss": "false"}


def begun(cluster: Cluster, stream: StreamUnderTest, topic: str) -> None:
    """The topic has one partition with 100 records, and the stream has read them."""
    cluster.create(topic, partitions=1)
    cluster.produce(topic, 0, 100)
    stream.run(cluster.totals(subscribe=topic, startingOffsets="earliest"))
    assert stream.rows() == totals_of(range(100))


def going_on(stream: StreamUnderTest, skipped: list[LostOffsets]) -> JobHooks:
    def on_skipped(lost: Sequence[LostOffsets]) -> None:
        skipped.extend(lost)

    return JobHooks(on_commit=stream.epochs.append, on_skipped=on_skipped)


def test_records_deleted_before_they_were_read_are_named_and_nothing_is_committed(
    cluster: Cluster, stream: StreamUnderTest
) -> None:
    begun(cluster, stream, "short")
    cluster.produce("short", 100, 150)
    cluster.delete_records("short", 0, before=120)
    with pytest.raises(IncompatibleStateError) as raised:
        stream.run(cluster.totals(subscribe="short"))
    text = str(raised.value)
    assert "asset=flights/delays, partitions=short-0 offsets 100 to 119" in text
    assert "failOnDataLoss=false" in text
    assert len(stream.epochs) == 1
    assert stream.rows() == totals_of(range(100))


def test_a_stream_that_may_go_on_without_them_says_what_it_skips(
    cluster: Cluster, stream: StreamUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    begun(cluster, stream, "skips")
    cluster.produce("skips", 100, 150)
    cluster.delete_records("skips", 0, before=120)
    skipped: list[LostOffsets] = []
    with caplog.at_level(logging.WARNING, "dagster_ckpt"):
        stream.run(cluster.totals(subscribe="skips", **GOES_ON), FAST, going_on(stream, skipped))
    assert skipped == [LostOffsets("skips", 0, LossReason.REMOVED, read_to=100, begin=100, end=120)]
    assert "asset=flights/delays, partitions=skips-0 offsets 100 to 119" in caplog.text
    assert stream.rows() == totals_of(range(100), range(120, 150))
    cluster.produce("skips", 150, 160)
    stream.run(cluster.totals(subscribe="skips"))
    assert stream.rows() == totals_of(range(100), range(120, 160))


def test_a_stream_is_not_rebuilt_without_records_that_it_has_read(cluster: Cluster, stream: StreamUnderTest) -> None:
    begun(cluster, stream, "rebuilt")
    cluster.delete_records("rebuilt", 0, before=60)
    before = stream.history().manifest()
    with pytest.raises(IncompatibleStateError, match=r"would lack them.*partitions=rebuilt-0 offsets 0 to 59$"):
        stream.rebuild(cluster.totals(subscribe="rebuilt", **GOES_ON))
    with pytest.raises(IncompatibleStateError, match="rebuilt-0 offsets 0 to 59"):  # Spark itself misses them
        stream.rebuild(cluster.totals(subscribe="rebuilt"))
    assert stream.history().manifest() == before


def test_a_topic_that_a_rebuild_reads_too_has_a_beginning(cluster: Cluster, stream: StreamUnderTest) -> None:
    begun(cluster, stream, "kept")
    cluster.create("more", partitions=1)
    cluster.produce("more", 100, 110)

    def both(**options: str) -> Function:
        def function(spark: SparkSession) -> Stream:
            frames = cluster.read(spark, subscribe="kept"), cluster.read(spark, subscribe="more", **options)
            rows = frames[0].union(frames[1]).select(parsed()).select("d.*")
            return Stream(rows).key_by("k").aggregate(rows=agg.count(), total=agg.sum("v"))

        return function

    with pytest.raises(InvalidPipelineError, match=r"set startingOffsets.*sources=\['kafka subscribe=more'\]"):
        stream.rebuild(both())
    with pytest.raises(InvalidPipelineError, match=r"gone=\['kafka subscribe=kept'\]"):
        stream.rebuild(cluster.totals(subscribe="kept,more", startingOffsets="earliest"))
    assert stream.rebuild(both(startingOffsets="earliest"))
    assert stream.rows() == totals_of(range(110))


def test_a_stream_is_rebuilt_without_records_that_it_has_not_read_either(
    cluster: Cluster, stream: StreamUnderTest
) -> None:
    begun(cluster, stream, "unread")
    cluster.produce("unread", 100, 150)
    in_two = cluster.totals(subscribe="unread", maxOffsetsPerTrigger=100, **GOES_ON)
    delete = partial(cluster.delete_records, "unread", 0, before=120)
    assert stream.rebuild(in_two, hooks=RebuildHooks(on_progress=lambda _: delete()))
    # The consumer may have fetched them with those before.
    assert stream.rows() in (totals_of(range(150)), totals_of(range(100), range(120, 150)))


def test_records_deleted_right_behind_a_stream_that_has_read_them_are_not_lost(
    cluster: Cluster, stream: StreamUnderTest
) -> None:
    cluster.create("behind", partitions=1)
    cluster.produce("behind", 0, 100)

    def delete(epoch: CommittedEpoch) -> None:
        stream.epochs.append(epoch)
        cluster.delete_records("behind", 0, before=60)

    totals = cluster.totals(subscribe="behind", startingOffsets="earliest", maxOffsetsPerTrigger=60)
    stream.run(totals, FAST, JobHooks(on_commit=delete))
    assert stream.rows() == totals_of(range(100))


@pytest.mark.parametrize("records", [20, 100, 300])
def test_a_topic_that_was_deleted_and_created_again_is_noticed_however_many_records_it_has(
    cluster: Cluster, stream: StreamUnderTest, records: int
) -> None:
    topic = f"again_{records}"
    begun(cluster, stream, topic)
    cluster.create_again(topic, partitions=1)
    cluster.produce(topic, 1_000, 1_000 + records)
    totals = cluster.totals(subscribe=topic, startingOffsets="earliest")
    if records == 100:
        # As many as were read: no record is new, until one more comes.
        stream.run(totals)
        cluster.produce(topic, 1_100, 1_101)
    with pytest.raises(IncompatibleStateError, match="deleted and created again") as raised:
        stream.run(totals)
    assert f"partitions={topic}-0 (read up to offset 100; offsets 0 to {min(records, 100) - 1}" in str(raised.value)
    assert stream.rows() == totals_of(range(100))
    # What the error says to do.
    stream.run(totals, from_epoch=0)
    assert stream.rows() == totals_of(range(1_000, 1_000 + records + (records == 100)))


def test_a_recreated_topic_goes_on_at_the_same_offset_where_the_user_says_so(
    cluster: Cluster, stream: StreamUnderTest
) -> None:
    begun(cluster, stream, "goes_on")
    cluster.create_again("goes_on", partitions=1)
    cluster.produce("goes_on", 1_000, 1_300)
    skipped: list[LostOffsets] = []
    stream.run(cluster.totals(subscribe="goes_on", **GOES_ON), FAST, going_on(stream, skipped))
    assert skipped == [LostOffsets("goes_on", 0, LossReason.RECREATED, read_to=100, begin=0, end=100)]
    assert stream.rows() == totals_of(range(100), range(1_100, 1_300))
    cluster.produce("goes_on", 1_300, 1_310)
    stream.run(cluster.totals(subscribe="goes_on"))
    assert stream.rows() == totals_of(range(100), range(1_100, 1_310))


def test_a_topic_that_is_gone_is_named(cluster: Cluster, stream: StreamUnderTest) -> None:
    begun(cluster, stream, "gone")
    cluster.delete("gone")
    with pytest.raises(IncompatibleStateError, match=r"partitions=gone-0 \(read up to offset 100\)"):
        # A client of Spark's would create it again.
        stream.run(cluster.totals(subscribe="gone", **{"kafka.allow.auto.create.topics": "false"}))


def test_a_topic_recreated_under_a_running_stream_is_noticed(cluster: Cluster, stream: StreamUnderTest) -> None:
    cluster.create("under", partitions=1)
    cluster.produce("under", 0, 100)

    def recreate(epoch: CommittedEpoch) -> None:
        stream.epochs.append(epoch)
        cluster.create_again("under", partitions=1)
        cluster.produce("under", 1_000, 1_300)

    continuous = replace(FAST, mode=Mode.CONTINUOUS)
    with pytest.raises(IncompatibleStateError, match="deleted and created again"):
        stream.run(
            cluster.totals(subscribe="under", startingOffsets="earliest"), continuous, JobHooks(on_commit=recreate)
        )
    assert stream.rows() == totals_of(range(100))
