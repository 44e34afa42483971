"""The coordinator under any order of any events, also ones that make no sense."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.errors import CheckpointError
from dagster_ckpt.ids import Epoch, Shard
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.coordinator.checkpoint_coordinator import CheckpointCoordinator, CoordinatorOptions
from dagster_ckpt.protocol.coordinator.coordinator import Coordinator, Phase, step
from dagster_ckpt.protocol.coordinator.coordinator_events import (
    Aborted,
    Begin,
    BeginWithoutWork,
    CommitFailed,
    CommitManifest,
    Committed,
    Event,
    GiveUp,
    JobEnded,
    Reset,
    ShardAcked,
    ShardDeclined,
    StartWork,
    TimedOut,
    TryFailed,
)
from tests.worlds.examples import examples

SHARDS = frozenset(map(Shard, range(3)))
EPOCHS = st.integers(1, 5).map(Epoch)
SHARD = st.integers(0, 3).map(Shard)  # 3 is unknown
STEPS = 2
STEP = st.integers(0, STEPS)  # the last is unknown
PARTS = [(step, shard) for step in range(STEPS) for shard in sorted(SHARDS)]
Part = tuple[int, Shard]

events = st.one_of(
    st.builds(Reset, st.just(SHARDS)),
    st.builds(TryFailed, st.just("the query has failed")),
    st.builds(Begin, EPOCHS),
    st.builds(BeginWithoutWork, EPOCHS),
    *[st.builds(ShardAcked, EPOCHS, st.builds(ShardAck, SHARD, rows_in=st.integers(0, 9), step=STEP))] * 4,
    st.builds(ShardDeclined, EPOCHS, SHARD | st.none(), st.just("host"), st.just("no")),
    st.builds(TimedOut, EPOCHS),
    st.builds(Aborted, EPOCHS, st.just("stop")),
    *[st.builds(JobEnded, EPOCHS)] * 2,
    st.builds(Committed, EPOCHS),
    st.builds(CommitFailed, EPOCHS, st.just("fenced")),
)


@st.composite
def helpful(draw: st.DrawFn) -> list[Event]:
    """A plausible run of epochs, with noise in between and some replies lost: it reaches deep states."""
    script: list[Event] = []
    for number in range(1, draw(st.integers(1, 4)) + 1):
        epoch = Epoch(number)
        acks = [
            ShardAcked(epoch, ShardAck(shard, rows_in=1, step=step)) for step, shard in draw(st.permutations(PARTS))
        ]
        outcomes: list[Event] = [Committed(epoch), CommitFailed(epoch, "x")]
        script += [Begin(epoch), *acks, JobEnded(epoch), draw(st.sampled_from(outcomes))]
    lost = draw(st.sets(st.integers(0, len(script) - 1), max_size=2))
    script = [event for at, event in enumerate(script) if at not in lost]
    for event in draw(st.lists(events, max_size=4)):
        script.insert(draw(st.integers(0, len(script))), event)
    return script


def acked_by(before: Coordinator, event: Event) -> list[Part]:
    """The steps and shards that this event ACKs the epoch in work for."""
    if isinstance(event, BeginWithoutWork):
        return PARTS
    counts = isinstance(event, ShardAcked) and before.phase is Phase.IN_PROGRESS and event.epoch == before.epoch
    return [(event.ack.step, event.ack.shard)] if counts and isinstance(event, ShardAcked) else []


def check_count_of_failures(before: Coordinator, event: Event, state: Coordinator) -> None:
    """Each try that fails counts once, and only a completed epoch forgets it."""
    if isinstance(event, TryFailed):
        assert state.phase is Phase.FAILED
        assert state.failures_in_a_row == before.failures_in_a_row + (before.phase is not Phase.FAILED)
    elif isinstance(event, Reset):
        assert (state.phase, state.failures_in_a_row) == (Phase.IDLE, before.failures_in_a_row)
    elif state.completed_count > before.completed_count:
        assert state.failures_in_a_row == 0


@examples(250)
@given(helpful() | st.lists(events, max_size=40))
def test_whatever_comes_an_epoch_is_committed_once_by_every_shard_or_not_at_all(script: list[Event]) -> None:
    state = Coordinator(SHARDS, retained=2, steps=STEPS)
    begun: list[Epoch] = []
    asked: set[Epoch] = set()
    ended: set[Epoch] = set()  # committed or given up
    acked: dict[Epoch, list[Part]] = {}
    committed: list[Epoch] = []
    for event in script:
        before = state
        try:
            state, effects = step(state, event)
        except AssertionError:
            assert isinstance(event, Begin | BeginWithoutWork | Committed | CommitFailed), "only these are ours"
            continue  # the mistake changed nothing: the state is a value
        for part in acked_by(before, event):
            acked.setdefault(state.epoch, []).append(part)
        for effect in effects:
            match effect:
                case StartWork(epoch=epoch, shards=shards):
                    assert shards == SHARDS
                    assert epoch not in begun, "a number is begun once"
                    begun.append(epoch)
                case CommitManifest(epoch=epoch, acks=acks):
                    assert epoch not in asked | ended
                    asked.add(epoch)
                    assert sorted(acked[epoch]) == PARTS, "each shard ACKed this very epoch exactly once in each step"
                    assert [(ack.step, ack.shard) for ack in acks] == PARTS
                case GiveUp(epoch=epoch, failures_in_a_row=failures):
                    assert epoch not in ended
                    assert epoch not in asked or isinstance(event, CommitFailed | TryFailed), (
                        "a create is never taken back"
                    )
                    ended.add(epoch)
                    assert failures == before.failures_in_a_row + 1
        check_count_of_failures(before, event, state)
        if isinstance(event, Reset):
            ended.add(before.epoch)
        if state.completed_count > before.completed_count:
            assert isinstance(event, Committed)
            assert event.epoch in asked
            committed.append(event.epoch)
            ended.add(event.epoch)
        assert [entry.epoch for entry in state.completed] == committed[-2:]
        assert state.completed_count == len(committed)
        assert state.pending <= SHARDS
        assert (state.failure is not None) == (state.phase is Phase.FAILED) or state.phase is Phase.IDLE
    assert begun == sorted(set(begun))


@examples(50)
@given(
    st.permutations(PARTS), st.lists(st.builds(ShardAcked, st.just(Epoch(6)), st.builds(ShardAck, SHARD, step=STEP)))
)
def test_the_epoch_is_committed_whatever_the_order_of_acks_and_other_events(
    order: list[Part], noise: list[ShardAcked]
) -> None:
    state, _ = step(Coordinator(SHARDS, retained=2, steps=STEPS), Begin(Epoch(7)))
    replies: list[Event] = [ShardAcked(Epoch(7), ShardAck(shard, step=number)) for number, shard in order]
    for event in [*noise, *replies, *noise]:
        state, effects = step(state, event)
        assert effects == []
    state, effects = step(state, JobEnded(Epoch(7)))
    assert [type(effect) for effect in effects] == [CommitManifest]


Call = tuple[str, Callable[[CheckpointCoordinator], object]]


def call(name: str, *arguments: st.SearchStrategy[object]) -> st.SearchStrategy[Call]:
    return st.tuples(*arguments).map(lambda given: (name, lambda coordinator: getattr(coordinator, name)(*given)))


TIMES_MS = st.integers(0, 100)
calls = st.one_of(
    call("reset", st.just(3), TIMES_MS),
    *[call("begin", EPOCHS)] * 3,
    call("begin_without_work", EPOCHS),
    *[call("ack", EPOCHS, st.builds(ShardAck, SHARD))] * 8,
    call("decline", EPOCHS, SHARD | st.none(), st.just("host"), st.just("no")),
    call("timeout", EPOCHS),
    call("abort", st.just("stop")),
    *[call("end_job", EPOCHS)] * 4,
    *[call("commit", EPOCHS, TIMES_MS)] * 2,
    call("fail_commit", EPOCHS, st.just("fenced")),
    call("fail_try", st.just("the query has failed")),
)


@examples(250)
@given(st.lists(calls, max_size=60))
def test_whatever_happens_a_coordinator_handles_one_epoch_at_a_time(script: list[Call]) -> None:
    options = CoordinatorOptions(interval_ms=10, timeout_ms=1_000, tolerable_failures=2, remembered=2)
    coordinator = CheckpointCoordinator(3, options, now_ms=0)
    handed_over = 0
    for name, act in script:
        phase, failures, completed = coordinator.phase, coordinator.failures_in_a_row, coordinator.completed_count
        try:
            acks = act(coordinator)
        except CheckpointError:
            assert name == "end_job"
            acks = None
        except AssertionError:
            assert name in {"begin", "begin_without_work", "commit", "fail_commit"}
            assert coordinator.phase is phase
            continue
        if isinstance(acks, tuple):
            handed_over += 1
            assert [ack.shard for ack in acks] == sorted(SHARDS)
        assert coordinator.completed_count - completed in ({0, 1} if name == "commit" else {0})
        assert coordinator.completed_count <= handed_over
        if coordinator.completed_count > completed:
            assert coordinator.failures_in_a_row == 0
            assert coordinator.latest is not None
            assert coordinator.get(coordinator.latest.epoch) == coordinator.latest == coordinator.completed_epochs[-1]
        else:
            assert coordinator.failures_in_a_row - failures in {0, 1}
        assert coordinator.may_try_again == (coordinator.failures_in_a_row <= 2)
        assert len(coordinator.completed_epochs) == min(2, coordinator.completed_count)
        in_work = coordinator.phase is Phase.IN_PROGRESS
        assert in_work or not coordinator.pending
        assert coordinator.should_checkpoint(now_ms=110) != in_work
