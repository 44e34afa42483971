"""What a driver writes to its upstreams before a query, and its errors where nothing can follow."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count

import pytest

from dagster_ckpt.errors import (
    CheckpointError,
    CorruptStateError,
    FencedError,
    IncompatibleStateError,
    InvalidPipelineError,
)
from dagster_ckpt.ids import Epoch, Version
from dagster_ckpt.protocol.epochs.upstream import (
    FORMAT,
    NO_TERM,
    Trouble,
    UpstreamPosition,
    backfill_pin,
    backfill_pins,
    consumption,
)
from dagster_ckpt.protocol.manifest.manifest import Manifest, SourceIdentity, SourcePosition
from dagster_ckpt.protocol.object_names import manifest_name, pin_name
from dagster_ckpt.runtime.declared.sources import StreamSource
from dagster_ckpt.runtime.upstreams.upstreams import Upstreams
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.retention_refs.pins import read_pins, remove_pin, write_pin
from dagster_ckpt.storage.retention_refs.subscribers import find_progress, read_subscribers
from dagster_ckpt.storage.retention_refs.upstream_log import NothingFollowsError
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from dagster_ckpt.storage.writer.opening import Takeover
from dagster_ckpt.storage.writer.stream_writer import StreamWriter, open_stream
from tests.worlds.clock import StillClock
from tests.worlds.faulty_store import Call, Fault, FaultyStore
from tests.worlds.streams import a_store, an_edit, an_opening

IDENTITY = SourceIdentity(FORMAT, "up", (("read", "table"),))


class DiedError(Exception):
    """The process is gone."""


@dataclass
class Pair:
    """A stream `up` and one that reads it, `down`. Version 1 opens `up`: its first epoch is 2.

    `down` retains as many epochs as `retained` was when it was opened.
    """

    retained: int = 20
    root: MemoryObjectStore = field(default_factory=a_store)
    clock: StillClock = field(default_factory=StillClock)
    up: StreamWriter = field(init=False)
    down: StreamWriter = field(init=False)

    def __post_init__(self) -> None:
        self.up, self.down = self.opened("up"), self.opened("down")

    def opened(self, name: str, from_epoch: int | None = None) -> StreamWriter:
        epoch = None if from_epoch is None else Epoch(from_epoch)
        run = f"run-{self.clock.unique()}"
        opening = an_opening(run, stream=name, retained=self.retained, take_over=Takeover.ALWAYS, from_epoch=epoch)
        return open_stream(folder_store(self.root, name), opening, self.clock)

    def feed(self, epochs: int = 1) -> None:
        for _ in range(epochs):
            self.up.commit(an_edit(self.up.manifest))

    def read(self, epoch: int, part: int = 0, parts: int = 0) -> None:
        """Commit an epoch of the downstream that has read up to there."""
        manifest = self.down.manifest
        before = manifest.sources[0].current if manifest.sources else None
        at = UpstreamPosition(self.up.manifest.uuid, Epoch(epoch), part, parts, manifest.term if parts else NO_TERM)
        position = SourcePosition(IDENTITY, at.encode(), before)
        self.down.commit(an_edit(manifest, sources=(position,)))

    def chain(self, name: str) -> ManifestChain:
        return ManifestChain(folder_store(self.root, name), self.clock)

    def upstreams(self, root: object = None) -> Upstreams:
        source = StreamSource(IDENTITY, number=0, lines=(0,), reads_files=False)
        return Upstreams("down", [source], root or self.root, self.chain("down"))  # type: ignore[arg-type]

    def prepare(self) -> Upstreams:
        upstreams = self.upstreams()
        upstreams.prepare(self.down.manifest)
        return upstreams

    def pinned(self) -> list[tuple[str, int]]:
        chain = self.chain("up")
        return [(pin.name, pin.manifest.epoch) for pin in read_pins(chain)]

    def subscribed(self) -> list[tuple[str, int]]:
        chain = self.chain("up")
        return [(each.stream, each.epoch) for each in read_subscribers(chain)]

    @property
    def pin(self) -> str:
        return backfill_pin(self.down.manifest.uuid, self.down.manifest.term)


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.up.close("done")
    made.down.close("done")


def test_a_new_downstream_pins_the_newest_epoch_and_subscribes_from_there(pair: Pair) -> None:
    pair.feed(3)
    pair.prepare()
    assert pair.pinned() == [(pair.pin, 4)]
    assert pair.subscribed() == [("down", 4)]


def test_a_return_to_a_recreated_upstream_subscribes_from_its_newest_epoch(pair: Pair) -> None:
    pair.feed(5)
    pair.read(6)
    for name in list(pair.root.list("up")):
        pair.root.delete(name)
    pair.up = pair.opened("up")
    pair.feed(1)
    with pytest.raises(IncompatibleStateError, match="created again"):
        pair.prepare()
    assert pair.subscribed() == [("down", 2)]


def test_an_empty_upstream_is_not_pinned_and_its_whole_log_is_kept(pair: Pair) -> None:
    pair.prepare()
    assert pair.pinned() == []
    assert pair.subscribed() == [("down", 0)]


def test_a_pin_of_this_term_stays_while_it_can_be_followed(pair: Pair) -> None:
    pair.feed(2)
    pair.prepare()
    pair.feed(2)
    pair.prepare()
    assert pair.pinned() == [(pair.pin, 3)]
    pair.up = pair.opened("up", from_epoch=2)
    pair.feed()
    pair.prepare()
    assert pair.pinned() == [(pair.pin, 7)]


def test_a_downstream_that_has_read_nothing_replaces_its_pin_in_each_term(pair: Pair) -> None:
    pair.feed(2)
    pair.prepare()
    pair.down = pair.opened("down")
    pair.feed(2)
    pair.prepare()
    assert pair.pinned() == [(pair.pin, 5)]


def test_a_later_term_continues_the_same_snapshot(pair: Pair) -> None:
    pair.feed(2)
    pair.prepare()
    pair.read(3, 1, 3)
    pin = pair.pin
    pair.feed(2)
    pair.down = pair.opened("down")
    upstreams = pair.prepare()
    assert pair.pinned() == [(pin, 3)]
    pair.read(3, 2, 3)
    upstreams.on_commit(pair.down.manifest)
    assert pair.pinned() == [(pin, 3)]
    pair.read(3, 3, 3)
    upstreams.on_commit(pair.down.manifest)
    assert pair.pinned() == [(pin, 3)]


def test_a_fenced_start_that_wakes_up_keeps_the_live_writers_pin(pair: Pair) -> None:
    pair.feed(2)
    fenced, asleep = pair.down.manifest, pair.prepare()
    pair.down = pair.opened("down")
    pair.feed(1)
    pair.prepare()
    pair.up = pair.opened("up", from_epoch=2)  # abandons what both have pinned
    with suppress(IncompatibleStateError):
        asleep.prepare(fenced)
    assert (pair.pin, 4) in pair.pinned()


def test_a_pin_with_a_similar_name_stays(pair: Pair) -> None:
    pair.feed(2)
    name = f"{backfill_pins(pair.down.manifest.uuid)}kept"
    write_pin(pair.chain("up"), name, pair.up.manifest.retained[0])
    pair.prepare()
    assert sorted(pair.pinned()) == [(pair.pin, 3), (name, 2)]
    root = pair.root
    [progress] = find_progress(
        read_subscribers(pair.chain("up")),
        root,
        pair.chain("up"),
        pair.up.manifest.uuid,
    )
    assert progress.consumed == 3


@pytest.mark.parametrize("restarted", [False, True])
def test_the_pin_stays_while_an_epoch_within_the_snapshot_is_retained(pair: Pair, restarted: bool) -> None:
    pair.feed(2)
    pair.retained = 3
    pair.down = pair.opened("down")
    upstreams, pin = pair.prepare(), pair.pin
    for part in (1, 2, 3):
        pair.read(3, part, 3)
        upstreams.on_commit(pair.down.manifest)
    for epoch in (4, 5):
        pair.feed()
        assert pair.pinned() == [(pin, 3)]
        if restarted:
            pair.down = pair.opened("down")
            upstreams = pair.prepare()
            assert pair.pinned() == [(pin, 3)], "the midst is retained"
        pair.read(epoch)
        upstreams.on_commit(pair.down.manifest)
    assert pair.pinned() == []


def test_a_rollback_into_a_snapshot_resumes_it(pair: Pair) -> None:
    pair.feed(2)
    upstreams, pin = pair.prepare(), pair.pin
    for part in (1, 2, 3):
        pair.read(3, part, 3)
        upstreams.on_commit(pair.down.manifest)
    midst = pair.down.manifest.retained[0].epoch
    pair.feed()
    pair.read(4)
    upstreams.on_commit(pair.down.manifest)
    pair.down = pair.opened("down", from_epoch=midst)
    upstreams = pair.prepare()
    assert pair.pinned() == [(pin, 3)]
    pair.read(3, 2, 3)
    upstreams.on_commit(pair.down.manifest)
    assert pair.pinned() == [(pin, 3)]


def test_the_next_start_removes_a_pin_that_a_crash_left(pair: Pair) -> None:
    pair.feed(2)
    pair.prepare()
    pair.read(3, 1, 1)
    pair.prepare()
    assert pair.pinned() == []


def test_an_overtaken_writer_removes_no_pin(pair: Pair) -> None:
    pair.feed(2)
    pair.prepare()
    pair.read(3, 1, 1)
    overtaken, pin = pair.down.manifest, pair.pin
    pair.down = pair.opened("down")
    pair.upstreams().prepare(overtaken)
    assert pair.pinned() == [(pin, 3)]
    pair.prepare()
    assert pair.pinned() == []


def test_a_damaged_retained_epoch_does_not_keep_the_pin(pair: Pair) -> None:
    pair.feed(2)
    pair.prepare()
    for part in (1, 2):
        pair.read(3, part, 2)
    first, store = pair.down.manifest.retained[0], pair.chain("down").store
    store.delete(manifest_name(first.version))
    store.put(manifest_name(first.version), b"damaged")
    pair.prepare()
    assert pair.pinned() == []


def test_a_start_resumes_after_one_that_died_at_any_call(pair: Pair) -> None:
    pair.feed(2)
    for call in count():

        def dies(_: Call, left: Iterator[int] = iter(range(call))) -> Fault:  # noqa: B008  (one for each round)
            if next(left, None) is None:
                raise DiedError
            return Fault.NONE

        died = False
        try:
            pair.upstreams(FaultyStore(pair.root, dies)).prepare(pair.down.manifest)
        except DiedError:
            died = True
        pair.prepare()
        assert pair.pinned() == [(pair.pin, 3)]
        assert pair.subscribed() == [("down", 3)]
        if not died:
            break
        for name in (pin_name(pair.pin), *list(pair.chain("up").store.list("subscribers"))):
            pair.chain("up").store.delete(name)
    assert call > 3


def test_an_upstream_rollback_below_the_position_names_both_commands(pair: Pair) -> None:
    pair.feed(2)
    pair.read(2)
    pair.read(3)
    good = _epoch_that_read(pair, 2)
    pair.up = pair.opened("up", from_epoch=2)
    with pytest.raises(
        IncompatibleStateError, match=rf"rollback down --epoch {good}`.* --epoch 0`.*then materialize it. .*consumed=3"
    ):
        pair.prepare()
    with pytest.raises(IncompatibleStateError, match="rolled back"):
        pair.upstreams().check(pair.down.manifest)


def test_a_cut_off_downstream_gets_the_command_to_start_over(pair: Pair) -> None:
    pair.feed(4)
    pair.read(2)
    for version in (1, 2, 3):
        pair.chain("up").store.delete(manifest_name(Version(version)))
    with pytest.raises(IncompatibleStateError, match=r"max_lag\): `.* rollback down --epoch 0` reads"):
        pair.prepare()


def test_a_first_snapshot_that_was_cut_off_while_it_was_read_is_pinned_again(pair: Pair) -> None:
    pair.feed(4)
    upstreams = pair.prepare()
    upstream = pair.chain("up")
    remove_pin(upstream, pair.pin)
    for version in (1, 2, 3):
        upstream.store.delete(manifest_name(Version(version)))
    upstreams.diagnose(pair.down.manifest, "CorruptStateError: a file is missing")
    pair.feed()
    pair.down = pair.opened("down")
    pair.prepare()
    assert pair.pinned() == [(pair.pin, 6)]


def test_an_overtaken_writer_is_fenced_though_what_it_read_was_released(pair: Pair) -> None:
    pair.feed()
    upstreams, overtaken = pair.prepare(), pair.down
    pair.read(2, part=1, parts=2)
    asleep = overtaken.manifest
    pair.down = pair.opened("down")
    pair.read(2)
    remove_pin(pair.chain("up"), backfill_pin(asleep.uuid, asleep.term))
    with pytest.raises(FencedError, match=f"another writer took over.*upstream=up, version={asleep.version}"):
        upstreams.check(asleep)
    overtaken.heartbeat.stop()


def test_an_unpinned_snapshot_is_reported(pair: Pair) -> None:
    pair.feed(2)
    pair.prepare()
    pair.read(3, 1, 2)
    pair.chain("up").store.delete(pin_name(pair.pin))
    with pytest.raises(IncompatibleStateError, match=r"it was unpinned.* --epoch 0`"):
        pair.prepare()


def test_a_damaged_upstream_is_named_with_the_rollback_that_helps(pair: Pair) -> None:
    pair.feed(2)
    pair.read(2)
    store = pair.chain("up").store
    store.delete(manifest_name(pair.up.manifest.version))
    store.put(manifest_name(pair.up.manifest.version), b"damaged")
    with pytest.raises(CorruptStateError, match=r"rollback up --epoch 2"):
        pair.prepare()


def test_a_missing_upstream_is_named(pair: Pair) -> None:
    empty = a_store()
    with pytest.raises(InvalidPipelineError, match="materialize it first"):
        pair.upstreams(empty).prepare(pair.down.manifest)


def test_an_upstream_recreated_before_anything_was_read_is_reported(pair: Pair) -> None:
    position = SourcePosition(IDENTITY, UpstreamPosition(pair.up.manifest.uuid).encode())
    pair.down.commit(an_edit(pair.down.manifest, sources=(position,)))
    pair.feed(2)
    pair.prepare()
    pair.up.close("removed")
    for name in list(pair.chain("up").store.list("")):
        pair.chain("up").store.delete(name)
    pair.up = pair.opened("up")
    pair.feed(2)
    with pytest.raises(IncompatibleStateError, match=r"removed and created again: `.* rollback down --epoch 0` reads"):
        pair.prepare()


def test_an_upstream_with_another_pipeline_than_planned_is_reported(pair: Pair) -> None:
    text = str(NothingFollowsError(Trouble.PLANNED_OTHERWISE, UpstreamPosition(pair.up.manifest.uuid)))
    with pytest.raises(
        CheckpointError, match=r"another pipeline since .*: start this .*upstream=up, consumed=0"
    ) as raised:
        pair.upstreams().diagnose(pair.down.manifest, f"in the process that plans: NothingFollowsError: {text}")
    assert type(raised.value) is CheckpointError, (
        "no person is needed: the sensor starts the next run, which plans again"
    )


def test_a_damaged_file_of_the_log_is_named_with_its_epoch_and_what_helps(pair: Pair) -> None:
    pair.feed(3)
    pair.read(2)
    file = pair.chain("up").read(Version(4)).changes[0].name  # this test writes no such file
    upstreams = pair.upstreams()
    upstreams.diagnose(pair.down.manifest, f"another error with {file}")
    upstreams.diagnose(pair.down.manifest, "CorruptStateError: a file of no upstream. file=state/x")
    message = (
        r"nothing of this stream is damaged.*table again, which is undamaged, by `.* rollback down --epoch 0`\. "
        rf"upstream=up, good_epoch=4, asset=down, consumed=2, reason=missing\. file={file}, epoch=4, store=.*/up$"
    )
    with pytest.raises(CorruptStateError, match=message):
        upstreams.diagnose(pair.down.manifest, f"in a task of Spark's: CorruptStateError: file={file}")


def test_a_damaged_manifest_in_the_log_is_named_with_what_helps(pair: Pair) -> None:
    pair.feed(3)
    pair.read(2)
    name = manifest_name(Version(3))
    pair.chain("up").store.put(name, b"damaged")
    with pytest.raises(CorruptStateError, match=rf"rollback down --epoch 0`\. upstream=up, good_epoch=4.*{name}"):
        pair.upstreams().diagnose(pair.down.manifest, "in the process that plans: CorruptStateError")


def test_a_damaged_snapshot_is_replaced_or_the_upstream_rolled_back(pair: Pair) -> None:
    pair.feed(2)
    upstreams = pair.prepare()
    [shards] = pair.chain("up").read(Version(3)).runs.values()
    newest, oldest = (run.name for run in shards[0])
    pair.feed(3)
    again = (
        r"start this stream again: it then begins with the newest table, which is undamaged\. upstream=up, good_epoch=6"
    )
    with pytest.raises(CorruptStateError, match=rf"{again}, .*file={oldest}, epoch=3"):
        upstreams.diagnose(pair.down.manifest, f"CorruptStateError {oldest}")
    pair.read(3, 1, 2)
    with pytest.raises(
        CorruptStateError, match=r"newest table, which is undamaged, by `.* rollback down --epoch 0`\. upstream=up"
    ):
        upstreams.diagnose(pair.down.manifest, f"CorruptStateError {oldest}")
    with pytest.raises(CorruptStateError, match=r"take the upstream back .* rollback up --epoch 2` and start both"):
        upstreams.diagnose(pair.down.manifest, f"CorruptStateError {newest}")


def _epoch_that_read(pair: Pair, epoch: int) -> int:
    def consumed(manifest: Manifest) -> int:
        return consumption(manifest.sources)[0].epoch

    shown = [pair.chain("down").read(entry.version) for entry in pair.down.manifest.retained]
    return next(manifest.epoch for manifest in shown if consumed(manifest) == epoch)


def test_an_upstream_rolled_back_to_between_two_positions_is_reported(pair: Pair) -> None:
    pair.feed(4)
    other = replace(IDENTITY, options=(("read", "changes"),))
    at = [UpstreamPosition(pair.up.manifest.uuid, Epoch(epoch)) for epoch in (4, 5)]
    sources = [SourcePosition(which, one.encode()) for which, one in zip((IDENTITY, other), at, strict=True)]
    pair.down.commit(an_edit(pair.down.manifest, sources=tuple(sources)))
    pair.up = pair.opened("up", from_epoch=4)
    with pytest.raises(IncompatibleStateError, match=r"rolled back.*consumed=5, newest=4") as raised:
        pair.upstreams().check(pair.down.manifest)
    assert "goes back as well" not in str(raised.value), "no epoch has read only the upstream's lineage in both ways"


def test_an_upstream_restored_from_a_backup_is_reported_with_both_epochs(pair: Pair) -> None:
    pair.feed(1)
    backup = {name: pair.root.get(name) for name in pair.root.list("up")}
    pair.feed(2)
    for version in (2, 3):
        shown = pair.chain("up").read(Version(version))
        position = SourcePosition(
            IDENTITY,
            UpstreamPosition.after(shown).encode(),
            pair.down.manifest.sources[0].current if pair.down.manifest.sources else None,
        )
        pair.down.commit(an_edit(pair.down.manifest, sources=(position,)))
    pair.up.close("done")
    for name in list(pair.root.list("up")):
        pair.root.delete(name)
        if name in backup:
            pair.root.put_if_absent(name, backup[name])
    lost = UpstreamPosition.from_consumed(pair.down.manifest.consumed[0]).nonce
    pair.up = pair.opened("up")
    pair.feed(2)
    newest = pair.up.manifest
    both = rf"consumed=3 \({lost}\), there={newest.epoch} \({newest.nonce}\)"
    error = rf"restored from a backup: .*rollback down --epoch 2` goes back as well.*{both}"
    with pytest.raises(IncompatibleStateError, match=error):
        pair.prepare()
