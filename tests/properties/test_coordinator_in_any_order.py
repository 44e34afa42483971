"""The coordinator under any order of any events, also ones that make no sense."""

from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.ids import Epoch, Shard
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.coordinator import Coordinator, Phase, step
from dagster_ckpt.protocol.coordinator_events import (
    Aborted,
    Begin,
    CommitFailed,
    CommitManifest,
    Committed,
    Event,
    GiveUp,
    JobEnded,
    ShardAcked,
    ShardDeclined,
    ShardsRegistered,
    TimedOut,
    Work,
)
from tests.worlds.examples import examples

SHARDS = frozenset(map(Shard, range(3)))
EPOCHS = st.integers(1, 5).map(Epoch)
SHARD = st.integers(0, 3).map(Shard)  # 3 is nobody's

events = st.one_of(
    st.builds(ShardsRegistered, st.just(SHARDS)),
    st.builds(Begin, EPOCHS),
    *[st.builds(ShardAcked, EPOCHS, st.builds(ShardAck, SHARD, rows_in=st.integers(0, 9)))] * 4,
    st.builds(ShardDeclined, EPOCHS, SHARD | st.none(), st.just("host"), st.just("no")),
    st.builds(TimedOut, EPOCHS),
    st.builds(Aborted, EPOCHS, st.just("stop")),
    *[st.builds(JobEnded, EPOCHS)] * 2,
    st.builds(Committed, EPOCHS),
    st.builds(CommitFailed, EPOCHS, st.just("fenced")),
)


@st.composite
def helpful(draw: st.DrawFn) -> list[Event]:
    """A plausible run of epochs, with noise in between and some words lost: so that deep states are reached."""
    script: list[Event] = []
    for number in range(1, draw(st.integers(1, 4)) + 1):
        epoch = Epoch(number)
        acks = [ShardAcked(epoch, ShardAck(shard, rows_in=1)) for shard in draw(st.permutations(sorted(SHARDS)))]
        outcomes: list[Event] = [Committed(epoch), CommitFailed(epoch, "x")]
        script += [Begin(epoch), *acks, JobEnded(epoch), draw(st.sampled_from(outcomes))]
    lost = draw(st.sets(st.integers(0, len(script) - 1), max_size=2))
    script = [event for at, event in enumerate(script) if at not in lost]
    for event in draw(st.lists(events, max_size=4)):
        script.insert(draw(st.integers(0, len(script))), event)
    return script


@examples(250)
@given(helpful() | st.lists(events, max_size=40))
def test_whatever_comes_an_epoch_is_committed_once_by_every_shard_or_not_at_all(script: list[Event]) -> None:
    state = Coordinator(SHARDS, retained=2)
    begun: list[Epoch] = []
    asked: set[Epoch] = set()
    ended: set[Epoch] = set()  # committed or given up
    acked: dict[Epoch, list[Shard]] = {}
    committed: list[Epoch] = []
    for event in script:
        before = state
        try:
            state, effects = step(state, event)
        except AssertionError:
            assert isinstance(event, Begin | Committed | CommitFailed | ShardsRegistered), "only these are ours"
            continue  # the mistake changed nothing: the state is a value
        if isinstance(event, ShardAcked) and before.phase is Phase.IN_PROGRESS and event.epoch == before.epoch:
            acked.setdefault(event.epoch, []).append(event.ack.shard)
        for effect in effects:
            match effect:
                case Work(epoch=epoch, shards=shards):
                    assert shards == SHARDS
                    assert epoch not in begun, "a number is begun once"
                    begun.append(epoch)
                case CommitManifest(epoch=epoch, acks=acks):
                    assert epoch not in asked | ended
                    asked.add(epoch)
                    assert sorted(acked[epoch]) == sorted(SHARDS), "each shard ACKed this very epoch exactly once"
                    assert [ack.shard for ack in acks] == sorted(SHARDS)
                case GiveUp(epoch=epoch, failures_in_a_row=failures):
                    assert epoch not in ended
                    assert epoch not in asked or isinstance(event, CommitFailed), "a create is never taken back"
                    ended.add(epoch)
                    assert failures == before.failures_in_a_row + 1
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
@given(st.permutations(sorted(SHARDS)), st.lists(st.builds(ShardAcked, st.just(Epoch(6)), st.builds(ShardAck, SHARD))))
def test_in_whatever_order_shards_ack_and_whatever_others_say_the_epoch_is_committed(
    order: list[Shard], noise: list[ShardAcked]
) -> None:
    state, _ = step(Coordinator(SHARDS, retained=2), Begin(Epoch(7)))
    words: list[Event] = [ShardAcked(Epoch(7), ShardAck(shard)) for shard in order]
    for event in [*noise, *words, *noise]:
        state, effects = step(state, event)
        assert effects == []
    state, effects = step(state, JobEnded(Epoch(7)))
    assert [type(effect) for effect in effects] == [CommitManifest]
