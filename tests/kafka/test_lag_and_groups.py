"""How far a stream is behind its topics, in rows and seconds; and committed offsets in a consumer group."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from dagster_ckpt.ids import EMPTY
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.runtime.driver.stream_job import JobHooks
from dagster_ckpt.runtime.lag.lag import Lag
from dagster_ckpt.runtime.run_mode import Mode
from tests.kafka.cluster import Cluster, totals_of
from tests.spark.streams import FAST, StreamUnderTest

pytestmark = pytest.mark.timeout(300)

HOUR_MS = 3_600_000
CONTINUOUS = replace(FAST, mode=Mode.CONTINUOUS, lag_interval_ms=300)


def all_is_read(lag: Lag) -> bool:
    return lag.waiting.rows == 0


def measured(
    stream: StreamUnderTest, cluster: Cluster, topic: str, is_enough: Callable[[Lag], bool], **options: object
) -> list[Lag]:
    """What a run of the stream measures until it is enough."""
    lags: list[Lag] = []
    end_s = time.monotonic() + 120

    def stop() -> str | None:
        assert time.monotonic() < end_s, lags
        return "enough" if lags and is_enough(lags[-1]) else None

    def on_lag(lag: Lag | None) -> None:
        if lag is not None:
            lags.append(lag)

    totals = cluster.totals(subscribe=topic, startingOffsets="earliest", **options)
    stream.run(totals, CONTINUOUS, JobHooks(stream.epochs.append, stop, on_lag=on_lag))
    return lags


def test_unread_records_wait_since_their_timestamps_and_none_wait_when_all_are_read(
    cluster: Cluster, stream: StreamUnderTest
) -> None:
    """Also records that came while no run was there to look: three hours ago."""
    cluster.create("waiting", partitions=2)
    now_ms = time.time_ns() // 1_000_000
    for number in range(20):
        age_ms = 3 * HOUR_MS if number >= 10 else HOUR_MS
        cluster.send("waiting", number % 2, number, timestamp_ms=now_ms - age_ms)
    lags = measured(stream, cluster, "waiting", all_is_read, maxOffsetsPerTrigger=4)
    behind = [lag for lag in lags if lag.waiting.rows]
    assert behind, "measured while it read"
    assert [lag for lag in behind if not 3_500 < lag.seconds(now_ms) < 11_000] == []
    assert lags[-1].waiting.rows == 0
    assert lags[-1].seconds(now_ms) == 0
    assert stream.rows() == totals_of(range(20))


def test_a_committed_transaction_leaves_no_lag_behind(cluster: Cluster, stream: StreamUnderTest) -> None:
    """Its end marks are offsets without records; rows of an aborted one are never read."""
    cluster.create("transactions", partitions=1)
    cluster.transact("transactions", range(10), commit=True)
    cluster.transact("transactions", range(100, 110), commit=False)
    cluster.transact("transactions", range(10, 20), commit=True)
    lags = measured(stream, cluster, "transactions", all_is_read, **{"kafka.isolation.level": "read_committed"})
    assert lags[-1].waiting.rows == 0
    assert stream.rows() == totals_of(range(20))


def offsets_of_group(cluster: Cluster, group: str, topic: str) -> dict[int, int]:
    return {partition: at for (name, partition), at in cluster.group(group).items() if name == topic}


def test_committed_offsets_are_written_to_the_group_that_the_user_names(
    cluster: Cluster, stream: StreamUnderTest
) -> None:
    cluster.create("grouped", partitions=2)
    for number in range(30):
        cluster.send("grouped", number % 2, number)
    totals = cluster.totals(subscribe="grouped", startingOffsets="earliest", commitGroupId="delays")
    stream.run(totals)
    assert offsets_of_group(cluster, "delays", "grouped") == {0: 15, 1: 15}
    for number in range(30, 36):
        cluster.send("grouped", 0, number)
    stream.run(totals)
    assert offsets_of_group(cluster, "delays", "grouped") == {0: 21, 1: 15}
    # It goes back with the stream, which itself never reads the group's offsets.
    opened: list[Manifest] = []
    stream.run(totals, hooks=JobHooks(on_open=opened.append), from_epoch=0)
    assert opened[0].epoch == EMPTY
    assert stream.rows() == totals_of(range(36))


def test_a_group_that_takes_no_offsets_is_logged_once_and_does_not_hinder_the_stream(
    cluster: Cluster, stream: StreamUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.create("refused", partitions=1)
    cluster.produce("refused", 0, 30)
    with cluster.member("busy", "refused"), caplog.at_level(logging.WARNING, "dagster_ckpt"):
        totals = cluster.totals(
            subscribe="refused", startingOffsets="earliest", maxOffsetsPerTrigger=10, commitGroupId="busy"
        )
        stream.run(totals)
    assert stream.rows() == totals_of(range(30))
    assert len(stream.epochs) == 3
    warnings = [record.getMessage() for record in caplog.records if "consumer group" in record.getMessage()]
    assert len(warnings) == 1
    assert "asset=flights/delays, group=busy" in warnings[0]
