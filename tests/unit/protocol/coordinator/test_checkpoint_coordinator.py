import pytest

from dagster_ckpt.errors import CheckpointDeclinedError, CheckpointTimeoutError
from dagster_ckpt.ids import Epoch, Shard
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.coordinator.checkpoint_coordinator import CheckpointCoordinator, CoordinatorOptions
from dagster_ckpt.protocol.coordinator.coordinator import Phase
from dagster_ckpt.protocol.coordinator.coordinator_events import Failure, FailureKind
from tests.worlds.manifests import a_change

E = Epoch(5)


def a_coordinator(interval_ms: int | None = 100) -> CheckpointCoordinator:
    return CheckpointCoordinator(
        2, CoordinatorOptions(interval_ms, 5_000, tolerable_failures=1, remembered=2), now_ms=0
    )


def complete(coordinator: CheckpointCoordinator, epoch: int, now_ms: int) -> None:
    coordinator.begin(Epoch(epoch))
    for shard in range(2):
        change = a_change(1, epoch, shard)
        coordinator.ack(Epoch(epoch), ShardAck(Shard(shard), changes=(change,), rows_in=3, rows_out=2))
    coordinator.end_job(Epoch(epoch))
    coordinator.commit(Epoch(epoch), now_ms)


def test_an_epoch_is_pending_until_each_shard_has_acked() -> None:
    coordinator = a_coordinator()
    assert (coordinator.phase, coordinator.pending, coordinator.latest) == (Phase.IDLE, frozenset(), None)
    coordinator.begin(E)
    assert (coordinator.phase, coordinator.pending) == (Phase.IN_PROGRESS, frozenset({Shard(0), Shard(1)}))
    coordinator.ack(E, ShardAck(Shard(1), changes=(a_change(1, 5, 1),)))
    assert (coordinator.pending, coordinator.total_bytes) == (frozenset({Shard(0)}), a_change(1, 5, 1).bytes)
    coordinator.ack(E, ShardAck(Shard(0)))
    assert [ack.shard for ack in coordinator.end_job(E)] == [0, 1]
    coordinator.commit(E, now_ms=50)
    assert (coordinator.phase, coordinator.completed_count) == (Phase.COMPLETED, 1)
    assert coordinator.get(E) == coordinator.latest


def test_the_newest_completed_epochs_are_available() -> None:
    coordinator = a_coordinator()
    for epoch in (2, 4, 7):
        complete(coordinator, epoch, now_ms=epoch)
    assert [each.epoch for each in coordinator.completed_epochs] == [4, 7]
    assert coordinator.get(Epoch(2)) is None
    found = coordinator.get(Epoch(4))
    assert found is not None
    assert (found.rows_in, found.rows_out, found.bytes) == (6, 4, 2 * a_change(1, 4, 0).bytes)


def test_an_epoch_is_due_once_an_interval_has_gone_without_one() -> None:
    coordinator = a_coordinator()
    assert [coordinator.should_checkpoint(now_ms) for now_ms in (0, 99, 100)] == [False, False, True]
    coordinator.begin(E)
    assert not coordinator.should_checkpoint(now_ms=1_000)
    coordinator.abort("stop")
    complete(coordinator, 6, now_ms=1_000)
    assert [coordinator.should_checkpoint(now_ms) for now_ms in (1_099, 1_100)] == [False, True]
    assert [coordinator.should_checkpoint(now_ms, intervals=2) for now_ms in (1_199, 1_200)] == [False, True]
    assert coordinator.quiet_ms(now_ms=1_030) == 30


def test_the_first_interval_begins_with_the_coordinator_not_with_the_clock() -> None:
    coordinator = CheckpointCoordinator(2, CoordinatorOptions(100, 5_000), now_ms=1_000)
    assert [coordinator.should_checkpoint(now_ms) for now_ms in (1_000, 1_099, 1_100)] == [False, False, True]
    assert coordinator.quiet_ms(now_ms=1_000) == 0


def test_a_second_epoch_is_not_begun_while_one_is_in_work() -> None:
    coordinator = a_coordinator()
    coordinator.begin(E)
    coordinator.ack(E, ShardAck(Shard(0)))
    for begin in (coordinator.begin, coordinator.begin_without_work):
        with pytest.raises(AssertionError, match=r"one epoch at a time\. in_work=5, asked=6"):
            begin(Epoch(6))
    coordinator.ack(E, ShardAck(Shard(1)))
    assert [ack.shard for ack in coordinator.end_job(E)] == [0, 1], "the one in work goes on"


def test_an_epoch_with_an_ack_of_one_never_begun_is_not_committed() -> None:
    coordinator = a_coordinator()
    coordinator.begin(E)
    for shard in range(2):
        coordinator.ack(Epoch(6), ShardAck(Shard(shard), host="host-9"))
        coordinator.ack(E, ShardAck(Shard(shard)))
    with pytest.raises(CheckpointDeclinedError, match=r"never begun, epoch=5, shards=\[0\], hosts=\['host-9'\]"):
        coordinator.end_job(E)
    assert coordinator.failures_in_a_row == 1


def test_each_step_of_a_shard_must_be_acked() -> None:
    one, two = a_coordinator(), CheckpointCoordinator(2, CoordinatorOptions(100, 5_000), now_ms=0, steps=2)
    for coordinator in (one, two):
        coordinator.begin(E)
        for shard in range(2):
            coordinator.ack(E, ShardAck(Shard(shard)))
    assert (one.pending, two.pending) == (frozenset(), frozenset({Shard(0), Shard(1)}))


def test_why_an_epoch_was_given_up_is_kept() -> None:
    coordinator = a_coordinator()
    coordinator.begin(Epoch(1))
    coordinator.decline(Epoch(1), Shard(1), "host-1", "disk full")
    assert coordinator.failure == Failure(FailureKind.DECLINED, "disk full", (Shard(1),), ("host-1",))
    coordinator.begin(Epoch(2))
    coordinator.abort("the Dagster run ends")
    assert coordinator.failure == Failure(FailureKind.ABORTED, "the Dagster run ends")
    coordinator.begin_without_work(Epoch(3))
    coordinator.fail_commit(Epoch(3), "fenced")
    assert coordinator.failure == Failure(FailureKind.NOT_COMMITTED, "fenced")
    coordinator.begin(Epoch(4))
    coordinator.fail_try("the query has failed")
    assert coordinator.failure == Failure(FailureKind.ABORTED, "the query has failed")


def test_an_epoch_without_work_does_not_put_off_the_next() -> None:
    coordinator = a_coordinator()
    acks = coordinator.begin_without_work(E)
    assert acks == (ShardAck(Shard(0)), ShardAck(Shard(1)))
    coordinator.commit(E, now_ms=90)
    assert coordinator.completed_count == 1
    assert coordinator.should_checkpoint(now_ms=100)


def test_a_new_term_begins_an_interval_and_keeps_what_has_completed() -> None:
    coordinator = a_coordinator()
    complete(coordinator, 5, now_ms=0)
    coordinator.begin(Epoch(6))
    coordinator.reset(shards=4, now_ms=500)
    assert (coordinator.phase, coordinator.pending, coordinator.failures_in_a_row) == (Phase.IDLE, frozenset(), 0)
    assert coordinator.latest is not None
    assert [coordinator.should_checkpoint(now_ms) for now_ms in (599, 600)] == [False, True]
    coordinator.begin(Epoch(8))
    assert coordinator.pending == {0, 1, 2, 3}


def test_without_an_interval_no_epoch_is_due_for_the_time_alone() -> None:
    assert not a_coordinator(interval_ms=None).should_checkpoint(now_ms=10**9)


def test_the_options_are_available() -> None:
    coordinator = a_coordinator()
    assert (coordinator.interval_ms, coordinator.timeout_ms, coordinator.tolerable_failures) == (100, 5_000, 1)


def test_an_epoch_that_takes_too_long_is_a_timeout_that_names_hosts() -> None:
    coordinator = a_coordinator()
    coordinator.begin(E)
    coordinator.timeout(E, ("host-9",), (Shard(1),))
    with pytest.raises(CheckpointTimeoutError, match=r"epoch=5, shards=\[1\], hosts=\['host-9'\]"):
        coordinator.end_job(E)
    assert (coordinator.phase, coordinator.failures_in_a_row) == (Phase.FAILED, 1)


@pytest.mark.parametrize("given_up", ["decline", "abort", "nothing", "reset"])
def test_an_epoch_that_was_given_up_has_no_acks_to_commit(given_up: str) -> None:
    coordinator = a_coordinator()
    coordinator.begin(E)
    coordinator.ack(E, ShardAck(Shard(0)))
    match given_up:
        case "decline":
            coordinator.decline(E, Shard(1), "host", "disk full")
        case "abort":
            coordinator.abort("the Dagster run ends")
        case "reset":
            coordinator.reset(2, now_ms=0)
    reasons = {"decline": "disk full", "abort": "the Dagster run ends", "reset": "the stream was opened again"}
    reason = reasons.get(given_up, "the job ended without a reply from them")
    with pytest.raises(CheckpointDeclinedError, match=f"reason={reason}, epoch=5"):
        coordinator.end_job(E)


def test_failures_in_a_row_are_counted_once_each_until_an_epoch_completes() -> None:
    coordinator = a_coordinator()
    coordinator.fail_try("no epoch had begun")
    assert (coordinator.failures_in_a_row, coordinator.may_try_again) == (1, True)
    coordinator.reset(2, now_ms=0)
    coordinator.begin(E)
    coordinator.decline(E, None, "", "the job died")
    coordinator.fail_try("the job died")
    assert (coordinator.failures_in_a_row, coordinator.may_try_again) == (2, False)
    coordinator.reset(2, now_ms=0)
    complete(coordinator, 7, now_ms=0)
    assert (coordinator.failures_in_a_row, coordinator.may_try_again) == (0, True)
    coordinator.fail_try("after a committed epoch it is the first again")
    assert coordinator.failures_in_a_row == 1
