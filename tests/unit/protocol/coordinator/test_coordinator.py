from dataclasses import replace

import pytest

from dagster_ckpt.errors import CheckpointDeclinedError, CheckpointTimeoutError
from dagster_ckpt.ids import Epoch, Shard
from dagster_ckpt.protocol.ack import ShardAck, ShardRuns
from dagster_ckpt.protocol.coordinator.coordinator import CompletedEpoch, Coordinator, Phase, failure_error, step
from dagster_ckpt.protocol.coordinator.coordinator_events import (
    Aborted,
    Begin,
    BeginWithoutWork,
    CommitFailed,
    CommitManifest,
    Committed,
    Effect,
    Event,
    Failure,
    FailureKind,
    GiveUp,
    JobEnded,
    Reset,
    ShardAcked,
    ShardDeclined,
    StartWork,
    TimedOut,
    TryFailed,
)
from tests.worlds.manifests import a_change, a_run

TWO = frozenset({Shard(0), Shard(1)})
E = Epoch(5)


def ack(shard: int, epoch: int = 5, host: str = "host-1") -> ShardAcked:
    runs = ShardRuns("total", (a_run(1, epoch, shard), a_run(1, 2, shard)))
    return ShardAcked(
        Epoch(epoch),
        ShardAck(Shard(shard), (runs,), (a_change(1, epoch, shard),), rows_in=3, rows_out=2, host=host),
    )


def whole(epoch: int) -> list[Event]:
    """All events of an epoch in which all goes well."""
    return [Begin(Epoch(epoch)), ack(0, epoch), ack(1, epoch), JobEnded(Epoch(epoch)), Committed(Epoch(epoch))]


def after(*events: Event) -> tuple[Coordinator, list[Effect]]:
    state, effects = Coordinator(TWO, retained=2), list[Effect]()
    for event in events:
        state, effects = step(state, event)
    return state, effects


def test_an_epoch_in_which_all_goes_well() -> None:
    state, effects = after()
    assert (state.phase, effects) == (Phase.IDLE, [])
    state, effects = after(Begin(E))
    assert (state.phase, state.pending, effects) == (Phase.IN_PROGRESS, TWO, [StartWork(E, TWO)])
    state, effects = after(Begin(E), ack(1))
    assert (state.pending, state.total_bytes, effects) == (frozenset({Shard(0)}), 1500, [])
    state, effects = after(Begin(E), ack(1), ack(0), JobEnded(E))
    assert (state.phase, effects) == (Phase.IN_PROGRESS, [CommitManifest(E, (ack(0).ack, ack(1).ack))])
    state, effects = after(Begin(E), ack(1), ack(0), JobEnded(E), Committed(E))
    assert (state.phase, effects) == (Phase.COMPLETED, [])
    assert state.completed == (CompletedEpoch(E, bytes=3000, rows_in=6, rows_out=4),)
    assert (state.completed_count, state.pending) == (1, frozenset())


def test_a_late_ack_of_an_earlier_epoch_is_ignored() -> None:
    state, effects = after(Begin(E), ack(0, epoch=4), ack(1, epoch=4))
    assert (state.phase, state.pending, effects) == (Phase.IN_PROGRESS, TWO, [])
    assert after(Begin(E), Aborted(E, ""), ack(1, epoch=6)) == after(Begin(E), Aborted(E, ""), ack(1))


def test_an_ack_of_an_epoch_that_was_never_begun_fails_the_one_in_work() -> None:
    state, effects = after(Begin(E), ack(0), ack(1, epoch=6))
    why = Failure(FailureKind.DECLINED, "an ACK of an epoch that was never begun", (Shard(1),), ("host-1",))
    assert (state.phase, effects) == (Phase.FAILED, [GiveUp(E, why, 1)])


def test_files_of_earlier_epochs_do_not_count_as_written() -> None:
    runs = ShardRuns("total", (a_run(1, 5, 0), a_run(1, 2, 0), a_run(1, 3, 0)))
    state, _ = after(Begin(E), ShardAcked(E, ShardAck(Shard(0), (runs,))))
    assert state.total_bytes == a_run(1, 5, 0).bytes


def test_a_shard_that_acks_twice_fails_the_epoch_and_both_hosts_are_named() -> None:
    state, effects = after(Begin(E), ack(0), ack(1), ack(0, host="host-2"))
    assert state.phase is Phase.FAILED
    assert effects == [
        GiveUp(E, Failure(FailureKind.DECLINED, "a shard ACKed twice", (Shard(0),), ("host-1", "host-2")), 1)
    ]


def test_an_unknown_shard_fails_the_epoch() -> None:
    state, effects = after(Begin(E), ack(2))
    why = Failure(FailureKind.DECLINED, "an unknown shard", (Shard(2),), ("host-1",))
    assert (state.phase, effects) == (Phase.FAILED, [GiveUp(E, why, 1)])


def test_a_job_that_ends_without_a_reply_of_some_shard_is_a_decline() -> None:
    _, effects = after(Begin(E), ack(0), JobEnded(E))
    assert effects == [
        GiveUp(E, Failure(FailureKind.DECLINED, "the job ended without a reply from them", (Shard(1),)), 1)
    ]


@pytest.mark.parametrize(
    ("event", "failure"),
    [
        (
            ShardDeclined(E, Shard(1), "host-1", "disk full"),
            Failure(FailureKind.DECLINED, "disk full", (Shard(1),), ("host-1",)),
        ),
        (ShardDeclined(E, None, "", "the job died"), Failure(FailureKind.DECLINED, "the job died")),
        (TimedOut(E, ("host-9",)), Failure(FailureKind.TIMED_OUT, "no reply in time", (Shard(1),), ("host-9",))),
        (
            TimedOut(E, ("host-9",), (Shard(0),)),
            Failure(FailureKind.TIMED_OUT, "no reply in time", (Shard(0),), ("host-9",)),
        ),
        (Aborted(E, "the Dagster run ends"), Failure(FailureKind.ABORTED, "the Dagster run ends")),
    ],
)
def test_what_goes_wrong_before_the_create_gives_the_epoch_up_at_once(event: Event, failure: Failure) -> None:
    state, effects = after(Begin(E), ack(0), event)
    assert state.phase is Phase.FAILED
    assert effects == [GiveUp(E, failure, 1)]
    replies: list[Event] = [ack(1), event, JobEnded(E), CommitFailed(E, "late")]
    for late in replies:
        assert step(state, late) == (state, []), "nothing that comes later changes it"


@pytest.mark.parametrize(
    "event", [ShardDeclined(E, Shard(1), "h", "r"), TimedOut(E), Aborted(E, "r"), JobEnded(E), ack(0), ack(0, epoch=6)]
)
def test_once_the_manifest_is_being_created_only_its_outcome_counts(event: Event) -> None:
    state, effects = after(Begin(E), ack(0), ack(1), JobEnded(E), event)
    assert (state.phase, effects) == (Phase.IN_PROGRESS, [])
    state, _ = step(state, Committed(E))
    assert state.phase is Phase.COMPLETED


def test_a_create_that_failed_gives_the_epoch_up() -> None:
    state, effects = after(Begin(E), ack(0), ack(1), JobEnded(E), CommitFailed(E, "fenced"))
    assert state.phase is Phase.FAILED
    assert effects == [GiveUp(E, Failure(FailureKind.NOT_COMMITTED, "fenced"), 1)]
    assert (state.completed_count, state.committing) == (0, False)


def test_failures_in_a_row_are_counted_until_an_epoch_completes() -> None:
    state, _ = after(Begin(Epoch(5)), Aborted(Epoch(5), ""), Begin(Epoch(7)), TimedOut(Epoch(7)))
    assert state.failures_in_a_row == 2
    for event in whole(9):
        state, _ = step(state, event)
    assert state.failures_in_a_row == 0


def test_only_so_many_completed_epochs_are_remembered_but_all_are_counted() -> None:
    state, _ = after()
    for number in [2, 3, 6]:
        for event in whole(number):
            state, _ = step(state, event)
    assert [entry.epoch for entry in state.completed] == [3, 6]
    assert state.completed_count == 3
    assert Epoch(2) not in {entry.epoch for entry in state.completed}


@pytest.mark.parametrize(
    "events",
    [
        (Begin(E), Begin(Epoch(6))),
        (Begin(E), Aborted(E, ""), Begin(E)),
        (Begin(E), Aborted(E, ""), Begin(Epoch(4))),
        (Committed(E),),
        (Begin(E), Committed(E)),
        (Begin(E), Aborted(E, ""), Committed(E)),
        (Begin(E), CommitFailed(E, "")),
        (Begin(E), BeginWithoutWork(Epoch(6))),
        (Begin(E), Reset(TWO), Begin(E)),
        (Begin(E), Reset(TWO), Committed(E)),
        (Reset(frozenset()),),
    ],
)
def test_our_own_mistakes_are_asserted(events: tuple[Event, ...]) -> None:
    with pytest.raises(AssertionError):
        after(*events)


@pytest.mark.parametrize("before", [(), (Begin(E),), (Begin(E), Aborted(E, "")), (BeginWithoutWork(E),)])
def test_a_new_term_drops_the_epoch_in_work_and_may_have_other_shards(before: tuple[Event, ...]) -> None:
    known, _ = after(*before)
    state, effects = step(known, Reset(frozenset({Shard(0)})))
    assert (state.phase, state.pending, state.failure, effects) == (Phase.IDLE, frozenset(), None, [])
    assert (state.acks, state.total_bytes, state.committing) == ({}, 0, False)
    assert state.failures_in_a_row == known.failures_in_a_row
    state, effects = step(state, Begin(Epoch(6)))
    assert effects == [StartWork(Epoch(6), frozenset({Shard(0)}))]


def test_an_epoch_without_work_is_committed_at_once_with_empty_acks() -> None:
    state, effects = after(Aborted(E, ""), BeginWithoutWork(E))
    assert effects == [CommitManifest(E, (ShardAck(Shard(0)), ShardAck(Shard(1))))]
    assert (state.pending, state.total_bytes, state.ran_tasks) == (frozenset(), 0, False)
    state, _ = step(state, Committed(E))
    assert (state.phase, state.completed_count, state.committing) == (Phase.COMPLETED, 1, False)
    state, _ = step(state, Begin(Epoch(6)))
    assert (state.pending, state.ran_tasks, state.committing) == (TWO, True, False)


@pytest.mark.parametrize(
    ("events", "failures"),
    [
        ((), 1),
        ((Begin(E),), 1),
        ((Begin(E), ShardDeclined(E, None, "", "no")), 1),
        ((Begin(E), ack(0), ack(1), JobEnded(E)), 1),
        ((Begin(E), ack(0), ack(1), JobEnded(E), CommitFailed(E, "503")), 1),
        (tuple(whole(5)), 1),
        ((Begin(E), Aborted(E, ""), Reset(TWO)), 2),
        ((Begin(E), Aborted(E, ""), Reset(TWO), Begin(Epoch(7)), Aborted(Epoch(7), "")), 2),
    ],
)
def test_a_failed_try_counts_once_in_whatever_phase_it_ends(events: tuple[Event, ...], failures: int) -> None:
    before, _ = after(*events)
    state, effects = step(before, TryFailed("the query has failed"))
    assert (state.phase, state.failures_in_a_row) == (Phase.FAILED, failures)
    why = Failure(FailureKind.ABORTED, "the query has failed")
    assert effects == ([GiveUp(E, why, failures)] if before.phase is Phase.IN_PROGRESS else [])
    assert before.phase is Phase.FAILED or state.failure == why
    assert step(state, TryFailed("again")) == (state, [])


def test_a_state_is_never_changed_by_what_follows_it() -> None:
    state, _ = after(Begin(E), ack(0))
    kept = replace(state, acks=dict(state.acks))
    step(state, ack(1))
    assert state == kept


def test_an_error_names_shard_host_and_reason() -> None:
    declined = failure_error(E, Failure(FailureKind.DECLINED, "disk full", (Shard(1),), ("host-1",)))
    silent = failure_error(E, Failure(FailureKind.TIMED_OUT, "no reply in time", (Shard(1),), ("host-1",)))
    assert isinstance(declined, CheckpointDeclinedError)
    assert isinstance(silent, CheckpointTimeoutError)
    assert str(declined).endswith("reason=disk full, epoch=5, shards=[1], hosts=['host-1']")
    assert str(silent).endswith("epoch=5, shards=[1], hosts=['host-1']")
