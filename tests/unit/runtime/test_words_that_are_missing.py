from dagster_ckpt.ids import Epoch, Shard
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.coordinator_events import JobEnded, ShardAcked
from dagster_ckpt.runtime.driver import events_of
from dagster_ckpt.runtime.epoch_job import JobOutcome
from dagster_ckpt.runtime.layout import Layout

EPOCH = Epoch(7)
ONE, OTHER = ShardAck(Shard(0), rows_in=3), ShardAck(Shard(1))


def test_a_shuffled_job_that_had_tasks_speaks_for_itself() -> None:
    layout = Layout.keyed(2, tasks_max=2)
    assert list(events_of(EPOCH, JobOutcome((ONE,)), layout)) == [ShardAcked(EPOCH, ONE), JobEnded(EPOCH)]
    assert list(events_of(EPOCH, JobOutcome(), layout)) == [JobEnded(EPOCH)]


def test_a_shuffled_job_without_tasks_has_nothing_to_say_about_any_shard() -> None:
    events = events_of(EPOCH, JobOutcome(had_tasks=False), Layout.keyed(2, tasks_max=2))
    nothing = [ShardAcked(EPOCH, ShardAck(Shard(shard))) for shard in range(2)]
    assert list(events) == [*nothing, JobEnded(EPOCH)]


def test_a_shard_that_no_partition_of_an_unkeyed_stream_went_to_has_nothing_to_say() -> None:
    events = events_of(EPOCH, JobOutcome((ONE,)), Layout.unkeyed(2))
    assert list(events) == [ShardAcked(EPOCH, ONE), ShardAcked(EPOCH, OTHER), JobEnded(EPOCH)]
