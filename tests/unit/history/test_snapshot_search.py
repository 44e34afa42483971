"""A snapshot of several streams: which epochs it shows, what is left out, and the error where there is none."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.history import CheckpointStore, Snapshot, StreamHistory
from dagster_ckpt.history.snapshot_search import Choosing, take_snapshot
from dagster_ckpt.ids import Version
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.protocol.object_names import manifest_name
from dagster_ckpt.storage.stores.address import open_store
from dagster_ckpt.storage.stores.object_store import ObjectStore
from tests.unit.history.reading_streams import MadeStreams


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[MadeStreams]:
    made = MadeStreams(tmp_path)
    yield made
    made.close()


def aligned(streams: MadeStreams, *names: str, include_creating: bool = False) -> dict[str, int]:
    store = CheckpointStore(streams.url)
    return dict(store.snapshot(names, "aligned", include_creating=include_creating).epochs)


def refusal(streams: MadeStreams, *names: str) -> str:
    with pytest.raises(InvalidPipelineError) as refused:
        CheckpointStore(streams.url).snapshot(names, "aligned")
    return str(refused.value)


def test_each_is_at_what_the_next_has_consumed_of_it(streams: MadeStreams) -> None:
    a = streams.source("a", epochs=3)
    b = streams.reader("b", a)
    c = streams.reader("c", b)
    consumed = b.read(a)
    shown = c.read(b)
    streams.commit(a)
    b.read(a)
    streams.commit(a)
    assert aligned(streams, "a", "b", "c") == {"a": 4, "b": consumed, "c": shown}
    assert aligned(streams, "a", "b") == {"a": 5, "b": consumed + 1}
    # Only between those that are named.
    assert aligned(streams, "a", "c") == {"a": 6, "c": shown}
    latest = CheckpointStore(streams.url).snapshot(["c", "a"])
    assert list(latest.epochs.items()) == [("c", shown), ("a", 6)]


def test_two_that_read_one_meet_at_the_slower_ones_epoch(streams: MadeStreams) -> None:
    a = streams.source("a", epochs=1)
    quick, slow = streams.reader("quick", a), streams.reader("slow", a)
    slow.read(a)
    met = [quick.read(a), quick.read(a)]  # an epoch without news of the upstream
    for _ in range(9):
        streams.commit(a)
        quick.read(a)
    assert aligned(streams, "quick", "slow", "a") == {"quick": met[-1], "slow": 2, "a": 2}


def test_one_that_reads_two_goes_back_until_it_fits_both(streams: MadeStreams) -> None:
    a, b = streams.source("a", epochs=1), streams.source("b", epochs=1)
    middle = streams.reader("middle", a)
    both = streams.reader("both", b, middle)
    middle.read(a)
    fits = both.read(b, middle)
    streams.commit(a)
    middle.read(a)
    streams.commit(b)
    both.read(b, middle)
    slow = streams.reader("slow", a)
    slow.read(a, epoch=2)
    assert aligned(streams, "a", "b", "middle", "both", "slow") == {
        "a": 2,
        "b": 2,
        "middle": 2,
        "both": fits,
        "slow": 2,
    }


def test_what_is_still_being_created_is_left_out_unless_asked_for(streams: MadeStreams) -> None:
    a = streams.source("a", epochs=2)
    new, never = streams.reader("new", a), streams.reader("never", a)
    part = new.read(a, part=1, parts=3)
    streams.commit(a)
    snapshot = CheckpointStore(streams.url).snapshot(["a", "new", "never"], "aligned")
    assert (dict(snapshot.epochs), snapshot.left_out) == ({"a": 4}, ("new", "never"))
    with pytest.raises(InvalidPipelineError, match="still being created"):
        snapshot.read("never")
    assert CheckpointStore(streams.url).snapshot(["a", "new"]).left_out == ("new",)
    assert aligned(streams, "a", "new", "never", include_creating=True) == {"a": 3, "new": part, "never": 0}
    assert never.writer.manifest.epoch == 0
    whole = new.read(a, epoch=3)
    assert aligned(streams, "a", "new") == {"a": 3, "new": whole}


def test_a_snapshot_stays_what_it_is_while_its_streams_go_on(streams: MadeStreams) -> None:
    a = streams.source("a", retained=1, epochs=2)
    b = streams.reader("b", a, retained=1)
    b.read(a)
    snapshot = CheckpointStore(streams.url).snapshot(["a", "b"], "aligned")
    streams.commit(a, 3)
    assert (snapshot.read("a").num_rows, snapshot.read("b", columns=["carrier"]).column_names) == (2, ["carrier"])
    assert (snapshot.info("a").epoch, snapshot.info("a").current, snapshot.streams) == (3, False, ["a", "b"])
    for file in (streams.folder / "a" / "changes").iterdir():
        file.unlink()
    with pytest.raises(InvalidPipelineError, match=r"retired meanwhile.*epoch=3, stream='a'"):
        snapshot.read("a")


def test_the_past_is_aligned_too(streams: MadeStreams) -> None:
    a = streams.source("a", epochs=1)
    b = streams.reader("b", a)
    b.read(a)
    then = b.writer.manifest.time_ms / 1_000
    while SystemClock().now_ms() / 1_000 <= then:
        pass
    streams.commit(a)
    b.read(a)
    store, moment = CheckpointStore(streams.url), datetime.fromtimestamp(then, UTC)
    for consistency in ("latest", "aligned"):
        assert dict(store.snapshot(["b", "a"], consistency, moment).epochs) == {"b": 2, "a": 2}


def test_epochs_of_ones_own_choice_are_taken_as_they_are(streams: MadeStreams) -> None:
    a = streams.source("a", epochs=3)
    b = streams.reader("b", a)
    b.read(a)
    store = CheckpointStore(streams.url)
    assert dict(store.snapshot(["a", "b"], {"a": 2, "b": 2}).epochs) == {"a": 2, "b": 2}
    with pytest.raises(InvalidPipelineError, match="the epoch of each stream"):
        store.snapshot(["a", "b"], {"a": 2})
    with pytest.raises(InvalidPipelineError, match="no such epoch yet"):
        store.snapshot(["a"], {"a": 9})


def test_where_the_consumed_epoch_is_retired_the_edge_is_named_with_what_helps(streams: MadeStreams) -> None:
    a = streams.source("a", retained=2, epochs=1)
    b = streams.reader("b", a)
    b.read(a)
    CheckpointStore(streams.url).stream("a").pin(2, "before-migration")
    streams.commit(a, 4)
    # A pin keeps it.
    assert aligned(streams, "b", "a") == {"b": 2, "a": 2}
    CheckpointStore(streams.url).stream("a").unpin("before-migration")
    message = refusal(streams, "b", "a")
    assert "Epoch 2 of b has consumed epoch 2 of a, which is retired: a keeps none before 5" in message
    assert "run b once more" in message
    assert "reason='retired'" in message


def test_where_one_has_forgotten_how_it_was_the_slow_one_is_named(streams: MadeStreams) -> None:
    a = streams.source("a", epochs=1)
    slow, quick = streams.reader("slow", a), streams.reader("quick", a, retained=1)
    slow.read(a)
    streams.commit(a)
    quick.read(a)
    message = refusal(streams, "slow", "quick", "a")
    assert "of quick has consumed epoch 3 of a, while slow goes with epoch 2" in message
    assert "run slow once more" in message


def test_an_upstream_that_was_rolled_back_takes_those_that_read_it_with_it(streams: MadeStreams) -> None:
    a = streams.source("a", epochs=1)
    b = streams.reader("b", a, retained=2)
    b.read(a)
    streams.commit(a)
    b.read(a)
    a.open(from_epoch=2)
    streams.commit(a)
    assert aligned(streams, "a", "b") == {"a": 2, "b": 2}
    b.commit()
    assert "which a rollback left behind" in refusal(streams, "a", "b")


def test_an_unknown_stream_is_reported_with_the_known_ones(streams: MadeStreams) -> None:
    streams.source("delays", epochs=1)
    store = CheckpointStore(streams.url)
    for consistency in ("latest", "aligned"):
        with pytest.raises(InvalidPipelineError, match="Did you mean 'delays'"):
            store.snapshot(["delays", "delay"], consistency)
    with pytest.raises(InvalidPipelineError, match="list of names"):
        store.snapshot("delays")
    with pytest.raises(InvalidPipelineError, match="consistency='newest'"):
        store.snapshot(["delays"], "newest")  # type: ignore[arg-type]
    with pytest.raises(InvalidPipelineError, match=r"does not show this stream.*streams=\['delays'\]"):
        store.snapshot(["delays"]).read("late")


class InterruptedStore:
    """Does something before a certain object is asked for the first time; else it is the store within."""

    def __init__(self, within: ObjectStore, name: str, interruption: Callable[[], None]) -> None:
        self._within = within
        self._name = name
        self._interruption: Callable[[], None] | None = interruption

    def __getattr__(self, name: str) -> object:
        return getattr(self._within, name)

    def get(self, name: str) -> bytes:
        if name == self._name and self._interruption is not None:
            interruption, self._interruption = self._interruption, None
            interruption()
        return self._within.get(name)


class LateHistory(StreamHistory):
    """Answers the first time with what the stream was when this was made."""

    def __init__(self, store: ObjectStore, name: str) -> None:
        super().__init__(store, name, SystemClock())
        self._before: Manifest | None = super().manifest()

    def manifest(self, epoch: int | None = None, as_of: datetime | str | None = None) -> Manifest:
        before, self._before = self._before, None
        return before or super().manifest(epoch, as_of)


def test_what_an_upstream_has_committed_since_it_was_looked_at_is_seen(streams: MadeStreams) -> None:
    a = streams.source("a", epochs=1)
    b = streams.reader("b", a, retained=1)
    b.read(a)
    store = open_store(streams.url)
    late = LateHistory(store, "a")
    streams.commit(a)
    b.read(a)
    snapshot = take_snapshot({"a": late, "b": StreamHistory(store, "b", SystemClock())}, Choosing("aligned"))
    assert dict(snapshot.epochs) == {"a": 3, "b": 3}


def test_an_epoch_retired_during_the_search_is_chosen_again(streams: MadeStreams) -> None:
    a = streams.source("a", epochs=2)
    b = streams.reader("b", a)
    b.read(a, epoch=2)
    gone = f"a/{manifest_name(Version(2))}"

    def retire_and_go_on() -> None:
        a.retained = 1
        a.open()
        streams.commit(a)
        b.read(a)
        for version in (1, 2):
            (streams.folder / "a" / manifest_name(Version(version))).unlink()

    store: ObjectStore = InterruptedStore(open_store(streams.url), gone, retire_and_go_on)  # type: ignore[assignment]
    named = {name: StreamHistory(store, name, SystemClock()) for name in ("a", "b")}
    snapshot: Snapshot = take_snapshot(named, Choosing("aligned"))
    assert dict(snapshot.epochs) == {"a": a.writer.manifest.epoch, "b": 3}


def test_a_cut_has_no_epoch_that_a_restored_stream_does_not_have(streams: MadeStreams) -> None:
    a = streams.source("a", epochs=1)
    b = streams.reader("b", a)
    fits = b.read(a)
    backup = streams.back_up(a)
    streams.commit(a, 2)
    b.read(a)
    streams.restore(a, backup)
    streams.commit(a)
    assert a.writer.manifest.epoch == 4, "the number that b has read up to"
    assert aligned(streams, "a", "b") == {"a": 2, "b": fits}


def test_streams_without_a_common_history_are_refused(streams: MadeStreams) -> None:
    a = streams.source("a", epochs=1)
    backup = streams.back_up(a)
    streams.commit(a, 2)
    b = streams.reader("b", a)
    b.read(a)
    streams.restore(a, backup)
    streams.commit(a)
    error = refusal(streams, "a", "b")
    assert "which a does not have since it was restored" in error
    assert "reason='diverged'" in error
