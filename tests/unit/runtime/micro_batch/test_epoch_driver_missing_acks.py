from dataclasses import replace

import pytest

from dagster_ckpt.errors import CheckpointDeclinedError, CheckpointTimeoutError
from dagster_ckpt.ids import Epoch, Shard
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.coordinator.checkpoint_coordinator import CheckpointCoordinator, CoordinatorOptions
from dagster_ckpt.runtime.micro_batch.epoch_driver import acks_of
from dagster_ckpt.runtime.micro_batch.epoch_job import JobOutcome, RunningTask
from dagster_ckpt.runtime.task.shard_assignment import ShardAssignment

EPOCH = Epoch(7)
ONE, OTHER = ShardAck(Shard(0), rows_in=3), ShardAck(Shard(1))
SHUFFLED = ShardAssignment.keyed(2, tasks_max=2)
UNKEYED = ShardAssignment.unkeyed(2)


def acks(outcome: JobOutcome, *assignments: ShardAssignment) -> tuple[ShardAck, ...]:
    options = CoordinatorOptions(interval_ms=None, timeout_ms=1_000)
    coordinator = CheckpointCoordinator(2, options, now_ms=0, steps=len(assignments))
    coordinator.begin(EPOCH)
    return acks_of(coordinator, EPOCH, outcome, assignments)


def test_a_shuffled_job_that_had_tasks_speaks_for_itself() -> None:
    assert acks(JobOutcome((OTHER, ONE)), SHUFFLED) == (ONE, OTHER)
    with pytest.raises(CheckpointDeclinedError, match=r"shards=\[1\]"):
        acks(JobOutcome((ONE,)), SHUFFLED)
    with pytest.raises(CheckpointDeclinedError, match=r"shards=\[0, 1\]"):
        acks(JobOutcome(), SHUFFLED)


def test_a_shuffled_job_without_tasks_acks_every_shard_empty() -> None:
    assert acks(JobOutcome(last_tasks=0), SHUFFLED) == (ShardAck(Shard(0)), OTHER)


def test_an_unkeyed_shard_without_a_partition_is_acked_empty() -> None:
    assert acks(JobOutcome((ONE,)), UNKEYED) == (ONE, OTHER)


def test_a_task_of_an_unkeyed_step_without_a_reply_gives_the_epoch_up() -> None:
    assert acks(JobOutcome((ONE,), last_tasks=1), UNKEYED) == (ONE, OTHER)
    with pytest.raises(CheckpointDeclinedError, match="tasks=2, replies=1"):
        acks(JobOutcome((ONE,), last_tasks=2), UNKEYED)
    with pytest.raises(CheckpointDeclinedError, match="tasks=2, replies=0"):
        acks(JobOutcome((), last_tasks=2), UNKEYED)
    with pytest.raises(CheckpointDeclinedError, match="tasks=1, replies=2"):
        acks(JobOutcome((ONE, ONE), last_tasks=1), UNKEYED)


def test_a_job_without_tasks_has_lost_none() -> None:
    assert acks(JobOutcome((), last_tasks=0), UNKEYED) == (ShardAck(Shard(0)), OTHER)


def test_each_step_speaks_for_itself() -> None:
    second = [replace(ack, step=1) for ack in (ONE, OTHER)]
    assert acks(JobOutcome((second[1], OTHER, second[0], ONE)), SHUFFLED, SHUFFLED) == (ONE, OTHER, *second)
    with pytest.raises(CheckpointDeclinedError, match=r"without a reply.*shards=\[1\]"):
        acks(JobOutcome((*second, ONE)), SHUFFLED, SHUFFLED)
    with pytest.raises(CheckpointDeclinedError, match=r"ACKed twice.*shards=\[0\]"):
        acks(JobOutcome((*second, ONE, ONE, OTHER)), SHUFFLED, SHUFFLED)


def test_partitions_of_an_unkeyed_step_before_a_shuffled_one_ack_together() -> None:
    second = tuple(replace(ack, step=1) for ack in (ONE, OTHER))
    assert acks(JobOutcome((*second, ONE, ONE)), UNKEYED, SHUFFLED) == (
        replace(ONE, rows_in=6),
        OTHER,
        *second,
    )


def test_a_job_that_timed_out_was_cancelled_or_failed_gives_the_epoch_up() -> None:
    silent = (RunningTask("host-9 (task 3)", (Shard(1),)),)
    with pytest.raises(CheckpointTimeoutError, match=r"shards=\[1\], hosts=\['host-9 \(task 3\)'\]"):
        acks(JobOutcome(silent=silent, error=OSError(), reason="cancelled"), SHUFFLED)
    with pytest.raises(CheckpointDeclinedError, match="reason=interrupted"):
        acks(JobOutcome(aborted="interrupted", error=OSError(), reason="cancelled"), SHUFFLED)
    with pytest.raises(CheckpointDeclinedError, match="reason=disk full"):
        acks(JobOutcome(error=OSError(), reason="disk full"), SHUFFLED)
