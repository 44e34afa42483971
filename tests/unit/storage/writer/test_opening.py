"""Who may open a stream, when, and what they find: the manners, the fence, the owner, the way back."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt.errors import CorruptStateError, FencedError, IncompatibleStateError, InvalidPipelineError
from dagster_ckpt.ids import Epoch, Term, Version
from dagster_ckpt.protocol.lease import Lease, encode_lease
from dagster_ckpt.protocol.manifest.manifest import (
    EpochRange,
    Manifest,
    ManifestKind,
    Owner,
    SourceIdentity,
    SourcePosition,
)
from dagster_ckpt.protocol.object_names import TRIMMED, lease_name, manifest_name
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.leases.process_identity import this_process
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.writer.opening import Opening, Takeover, open_manifest
from dagster_ckpt.storage.writer.stream_writer import StreamWriter
from tests.worlds.clock import StillClock
from tests.worlds.faulty_store import Call, Fault, FaultyStore
from tests.worlds.manifests import OWNER, PIPELINE, ROWS
from tests.worlds.streams import a_holder, a_store, an_edit, an_opening

TIMEOUT_MS = 30_000


class World(StillClock):
    """A stream's folder, and a clock whose passing lets things happen."""

    def __init__(self) -> None:
        super().__init__()
        self.store = FaultyStore(a_store())
        self.chain = ManifestChain(self.store, self)
        self.happens: Callable[[int], None] = lambda _: None
        self.began = self.monotonic_ms()

    @property
    def passed_ms(self) -> int:
        return self.monotonic_ms() - self.began

    def sleep_ms(self, duration_ms: int) -> None:
        super().sleep_ms(duration_ms)
        self.happens(self.passed_ms)

    def open(self, opening: Opening | None = None) -> StreamWriter:
        """A writer without a heartbeat: its lease says only what a test writes."""
        opening = opening or an_opening()
        return StreamWriter(self.chain, opening, open_manifest(self.chain, opening))

    def lease(self, manifest: Manifest, **fields: Any) -> Lease:
        lease = replace(Lease(manifest.term, a_holder(), TIMEOUT_MS, manifest.epoch), **fields)
        self.store.inner.put(lease_name(manifest.term), encode_lease(lease))
        return lease

    def beats(self, manifest: Manifest, until_ms: int = 10**9, every_ms: int = TIMEOUT_MS // 3) -> None:
        """Its writer beats as time passes, until then."""

        def happen(passed_ms: int) -> None:
            if passed_ms <= until_ms:
                self.lease(manifest, counter=1 + passed_ms // every_ms)

        happen(0)
        self.happens = happen


@pytest.fixture
def world() -> World:
    return World()


def test_a_live_writer_is_waited_for_and_then_left_alone(world: World) -> None:
    writer = world.open()
    world.beats(writer.manifest)
    with pytest.raises(FencedError) as caught:
        world.open(an_opening("run-2"))
    assert TIMEOUT_MS <= world.passed_ms < TIMEOUT_MS * 1.1
    for word in [
        "Wait for its end",
        "take_over",
        "dagster_run=run-1",
        "host=elsewhere",
        "instance=instance-1",
        "term=1",
    ]:
        assert word in str(caught.value)
    assert writer.commit(an_edit(writer.manifest)).epoch == 2, "the live one is unharmed"


@pytest.mark.parametrize("until_ms", [0, 1, 9_000, 15_000])
def test_a_writer_whose_beat_ends_while_we_watch_has_lapsed_one_time_out_later(world: World, until_ms: int) -> None:
    writer = world.open()
    world.beats(writer.manifest, until_ms)
    assert world.open(an_opening("run-2")).term == 2
    last_beat_ms = until_ms // 10_000 * 10_000
    assert last_beat_ms + TIMEOUT_MS <= world.passed_ms <= last_beat_ms + TIMEOUT_MS * 1.1
    with pytest.raises(FencedError):
        writer.commit(an_edit(writer.manifest))


def test_a_writer_that_beat_just_before_the_time_out_is_taken_to_live(world: World) -> None:
    world.beats(world.open().manifest, until_ms=29_000)
    with pytest.raises(FencedError):
        world.open(an_opening("run-2"))
    assert world.passed_ms < TIMEOUT_MS * 1.1


def test_a_writer_that_died_before_its_first_beat_is_waited_for_all_the_same(world: World) -> None:
    world.open()
    assert world.open(an_opening("run-2")).term == 2
    assert TIMEOUT_MS <= world.passed_ms < TIMEOUT_MS * 1.1


def test_the_longer_of_two_time_outs_counts(world: World) -> None:
    writer = world.open()
    world.lease(writer.manifest, timeout_ms=300_000)
    assert world.open(an_opening("run-2")).term == 2
    assert world.passed_ms >= 300_000


def test_a_closed_lease_is_not_waited_for(world: World) -> None:
    writer = world.open()
    world.lease(writer.manifest, closed="success")
    assert world.open(an_opening("run-2")).term == 2
    assert world.passed_ms == 0


def test_a_lease_that_is_closed_while_we_wait_lets_us_in_at_once(world: World) -> None:
    writer = world.open()
    world.beats(writer.manifest)
    beat = world.happens

    def close_after_five_seconds(passed_ms: int) -> None:
        if passed_ms < 5_000:
            beat(passed_ms)
        else:
            world.lease(writer.manifest, counter=9, closed="success")

    world.happens = close_after_five_seconds
    assert world.open(an_opening("run-2")).term == 2
    assert world.passed_ms < 7_000


def test_a_process_known_to_be_dead_is_not_waited_for(world: World) -> None:
    writer = world.open()
    dead = replace(this_process(), started_ticks=1)
    world.lease(writer.manifest, holder=replace(a_holder(), process=dead))
    assert world.open(an_opening("run-2")).term == 2
    assert world.passed_ms == 0


def test_a_live_process_on_this_host_is_waited_for(world: World) -> None:
    writer = world.open()
    world.lease(writer.manifest, holder=replace(a_holder(), process=this_process()))
    assert world.open(an_opening("run-2")).term == 2
    assert world.passed_ms >= TIMEOUT_MS


def test_an_opener_that_may_fence_exactly_this_term_does_not_wait(world: World) -> None:
    writer = world.open()
    world.beats(writer.manifest)
    assert world.open(an_opening("run-2", may_fence=Term(1))).term == 2
    assert world.passed_ms == 0


def test_the_right_to_fence_a_term_is_none_to_fence_a_newer_one(world: World) -> None:
    world.open()
    newer = world.open(an_opening("run-2", take_over=Takeover.ALWAYS))
    world.beats(newer.manifest)
    with pytest.raises(FencedError, match="goes on unharmed"):
        world.open(an_opening("run-3", may_fence=Term(1)))


def test_a_person_who_takes_over_does_not_wait(world: World) -> None:
    writer = world.open()
    world.beats(writer.manifest)
    assert world.open(an_opening("run-2", take_over=Takeover.ALWAYS)).term == 2
    with pytest.raises(FencedError):
        writer.commit(an_edit(writer.manifest))


def test_of_two_that_create_a_stream_one_wins_and_the_other_is_polite(world: World) -> None:
    created: list[Manifest] = []

    def somebody_is_quicker(call: Call) -> Fault:
        if call.verb == "put_if_absent" and not created:
            created.append(open_manifest(ManifestChain(world.store.inner, world), an_opening("run-1")))
            world.beats(created[0])
        return Fault.NONE

    world.store.decide = somebody_is_quicker
    with pytest.raises(FencedError, match="dagster_run=run-1"):
        world.open(an_opening("run-2"))
    assert world.chain.newest() == created[0]


def test_of_two_that_open_a_stream_one_wins_and_the_other_is_polite(world: World) -> None:
    world.lease(world.open().manifest, closed="success")
    opened: list[Manifest] = []

    def somebody_is_quicker(call: Call) -> Fault:
        if call.verb == "put_if_absent" and not opened:
            opened.append(open_manifest(ManifestChain(world.store.inner, world), an_opening("run-1")))
            world.beats(opened[0])
        return Fault.NONE

    world.store.decide = somebody_is_quicker
    with pytest.raises(FencedError, match="term=2"):
        world.open(an_opening("run-2"))


def test_a_live_writer_that_commits_as_it_is_taken_over_loses_nothing(world: World) -> None:
    writer = world.open()
    commits = 3

    def commits_in_between(call: Call) -> Fault:
        nonlocal commits
        if call.verb == "put_if_absent" and commits:
            commits -= 1
            decide, world.store.decide = world.store.decide, lambda _: Fault.NONE
            writer.commit(an_edit(writer.manifest))
            world.store.decide = decide
        return Fault.NONE

    world.store.decide = commits_in_between
    second = world.open(an_opening("run-2", take_over=Takeover.ALWAYS))
    assert (second.term, second.manifest.epoch) == (5, 4)


def test_the_folder_is_made_durable_before_anything_is_built_on_it(world: World) -> None:
    world.lease(world.open().manifest, closed="success")
    world.store.calls.clear()
    world.open(an_opening("run-2"))
    verbs = [call.verb for call in world.store.calls if call.name.startswith("manifest")]
    assert verbs.index("settle") < verbs.index("put_if_absent")


# The owner


@pytest.mark.parametrize(
    "owner",
    [Owner("instance-2", OWNER.asset_key), Owner(OWNER.instance, "flights/other"), Owner("instance-2", "other")],
)
def test_a_stream_of_another_owner_is_refused_at_once_unless_taken_over(world: World, owner: Owner) -> None:
    world.lease(world.open().manifest, closed="success")
    with pytest.raises(InvalidPipelineError, match=r"take_over: true.*owner='asset flights/delay_by"):
        world.open(an_opening("run-2", owner=owner))
    assert world.passed_ms == 0
    assert world.open(an_opening("run-2", owner=owner, take_over=Takeover.ALWAYS)).manifest.owner == owner
    with pytest.raises(InvalidPipelineError):
        world.open(an_opening("run-3"))


def test_the_code_location_is_only_information(world: World) -> None:
    world.lease(world.open().manifest, closed="success")
    moved = replace(OWNER, location="elsewhere")
    assert world.open(an_opening("run-2", owner=moved)).manifest.owner == moved


# The way back


def a_history(world: World, epochs: int = 4, **fields: Any) -> StreamWriter:
    """A stream with epochs 2, 3, ... whose writer has ended."""
    writer = world.open(an_opening("run-1", **fields))
    for _ in range(epochs):
        writer.commit(an_edit(writer.manifest))
    world.lease(writer.manifest, closed="success")
    return writer


def closed(world: World, writer: StreamWriter) -> StreamWriter:
    world.lease(writer.manifest, closed="success")
    return writer


def test_a_rollback_shows_the_older_epoch_and_abandons_what_came_after(world: World) -> None:
    a_history(world)
    older = world.chain.read(Version(3))
    back = world.open(an_opening("run-2", from_epoch=Epoch(3)))
    shown = back.manifest
    assert (shown.kind, shown.version, shown.term, shown.epoch, shown.parent) == (ManifestKind.ROLLBACK, 6, 6, 3, 5)
    assert (shown.runs, shown.changes, shown.sources) == (older.runs, older.changes, older.sources)
    assert (shown.batch_id, shown.watermark_us, shown.statistics) == (
        older.batch_id,
        older.watermark_us,
        older.statistics,
    )
    assert [entry.epoch for entry in shown.retained] == [2, 3, 4, 5], "what was left behind stays readable for a while"
    assert shown.abandoned == (EpochRange(Epoch(4), Epoch(5)),)
    assert back.commit(an_edit(shown)).epoch == 7, "no number is used again"


def test_what_a_rollback_left_behind_never_pushes_out_what_it_went_back_to(world: World) -> None:
    a_history(world)  # 2 3 4 5
    back = world.open(an_opening("run-2", from_epoch=Epoch(3)))
    kept = [[entry.epoch for entry in back.commit(an_edit(back.manifest)).retained] for _ in range(4)]
    assert kept == [[2, 3, 4, 5, 7], [2, 3, 5, 7, 8], [2, 3, 7, 8, 9], [3, 7, 8, 9, 10]]


def test_a_rollback_is_done_once_for_each_root_dagster_run(world: World) -> None:
    a_history(world)
    back = closed(world, world.open(an_opening("run-2", from_epoch=Epoch(3))))
    back.commit(an_edit(back.manifest))
    retried = closed(world, world.open(an_opening("run-3", root_run="run-2", from_epoch=Epoch(3))))
    assert (retried.manifest.kind, retried.manifest.epoch) == (ManifestKind.OPEN, 7)
    assert retried.reopen().manifest.epoch == 7
    other = world.open(an_opening("run-4", from_epoch=Epoch(3), take_over=Takeover.ALWAYS))
    assert (other.manifest.kind, other.manifest.epoch) == (ManifestKind.ROLLBACK, 3)
    assert other.manifest.abandoned == (EpochRange(Epoch(4), Epoch(7)),)
    assert other.manifest.rollbacks == ("run-2", "run-4")


def test_rollbacks_one_after_another_join_what_they_abandon(world: World) -> None:
    a_history(world, retained=9)  # 2 3 4 5
    back = closed(world, world.open(an_opening("run-2", retained=9, from_epoch=Epoch(4))))
    back.commit(an_edit(back.manifest))  # 7
    back.commit(an_edit(back.manifest))  # 8
    same = closed(world, world.open(an_opening("run-3", retained=9, from_epoch=Epoch(8))))
    assert same.manifest.abandoned == (EpochRange(Epoch(5), Epoch(5)),)
    later = closed(world, world.open(an_opening("run-4", retained=9, from_epoch=Epoch(7))))
    assert later.manifest.abandoned == (EpochRange(Epoch(5), Epoch(5)), EpochRange(Epoch(8), Epoch(8)))
    earlier = closed(world, world.open(an_opening("run-5", retained=9, from_epoch=Epoch(2))))
    assert earlier.manifest.abandoned == (EpochRange(Epoch(3), Epoch(8)),)
    nothing = world.open(an_opening("run-6", retained=9, from_epoch=Epoch(0)))
    assert nothing.manifest.abandoned == (EpochRange(Epoch(1), Epoch(8)),)


def test_epoch_0_is_the_empty_stream_and_fits_any_pipeline(world: World) -> None:
    a_history(world)
    other = replace(PIPELINE, keys=("origin",), parameters={})
    back = world.open(an_opening("run-2", from_epoch=Epoch(0), pipeline=other))
    shown = back.manifest
    assert (shown.epoch, shown.sources, shown.changes, shown.batch_id) == (0, (), (), None)
    assert [entry.epoch for entry in shown.retained] == [2, 3, 4, 5]
    assert shown.runs == {"total": ((), ())}
    assert (shown.watermark_us, shown.statistics.total_rows_in, shown.pipeline) == (None, 0, other)
    assert shown.uuid == world.chain.read(Version(1)).uuid
    assert back.commit(an_edit(shown)).epoch == 7


@pytest.mark.parametrize("epoch", [1, 2, 9])
def test_an_epoch_that_is_not_retained_is_refused_naming_those_that_are(world: World, epoch: int) -> None:
    a_history(world, retained=3)
    with pytest.raises(InvalidPipelineError, match=r"or 0 for the empty stream\. .*retained=3-5"):
        world.open(an_opening("run-2", from_epoch=Epoch(epoch)))


def test_an_epoch_retired_during_an_opening_is_damage_only_if_no_writer_went_on(world: World) -> None:
    writer = a_history(world, retained=3)  # 3, 4 and 5 are retained
    target = manifest_name(Version(3))
    retired = False

    def others_go_on(call: Call) -> Fault:
        nonlocal retired
        if (call.verb, call.name) == ("get", target) and not retired:
            retired = True
            writer.commit(an_edit(writer.manifest))
            writer.commit(an_edit(writer.manifest))
            world.store.inner.put(TRIMMED, b"")
            for version in [1, 2, 3]:
                world.store.inner.delete(manifest_name(Version(version)))
        return Fault.NONE

    world.store.decide = others_go_on
    with pytest.raises(InvalidPipelineError, match=r"retained=5-7"):
        world.open(an_opening("run-2", from_epoch=Epoch(3)))
    world.store.inner.delete(manifest_name(Version(5)))
    with pytest.raises(CorruptStateError, match="is missing"):
        world.open(an_opening("run-2", from_epoch=Epoch(5)))


def test_an_abandoned_epoch_cannot_be_gone_back_to(world: World) -> None:
    a_history(world)
    closed(world, world.open(an_opening("run-2", from_epoch=Epoch(3))))
    with pytest.raises(InvalidPipelineError, match=r"retained=2-3"):
        world.open(an_opening("run-3", from_epoch=Epoch(5)))


def test_a_new_stream_can_only_begin_at_epoch_0_and_remembers_that_it_was_asked_to(world: World) -> None:
    with pytest.raises(InvalidPipelineError, match="the stream is new"):
        world.open(an_opening(from_epoch=Epoch(3)))
    writer = world.open(an_opening(from_epoch=Epoch(0)))
    writer.commit(an_edit(writer.manifest))
    closed(world, writer)
    retried = world.open(an_opening("run-2", root_run="run-1", from_epoch=Epoch(0)))
    assert retried.manifest.epoch == 2


# The pipeline


def test_a_pipeline_that_does_not_fit_its_state_is_refused_with_what_changed_and_the_ways_out(world: World) -> None:
    closed(world, a_history(world))
    with pytest.raises(IncompatibleStateError) as caught:
        world.open(an_opening("run-2", pipeline=replace(PIPELINE, keys=("origin",))))
    for word in [
        "the key was carrier, now it is origin",
        "dagster-ckpt rebuild flights",
        "fork(..., epoch=0)",
        "from_epoch: 0",
    ]:
        assert word in str(caught.value)


def test_a_pipeline_that_fits_an_older_epoch_may_go_back_to_it(world: World) -> None:
    appending = replace(PIPELINE, operator="append", parameters={}, keys=(), tables=(), appends=True)
    wider = replace(appending, output=ROWS.append(pa.field("extra", pa.int64())))
    closed(world, a_history(world, 2, pipeline=appending))
    second = world.open(an_opening("run-2", pipeline=wider))
    assert second.manifest.pipeline == wider, "the newest is what readers see"
    second.commit(an_edit(second.manifest))
    closed(world, second)
    back = world.open(an_opening("run-3", pipeline=appending, from_epoch=Epoch(3)))
    assert back.manifest.pipeline == appending


def test_the_streams_number_of_shards_stays_and_a_different_wish_is_a_warning(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.lease(world.open().manifest, closed="success")
    with caplog.at_level(logging.WARNING):
        assert world.open(an_opening("run-2", shards=8)).manifest.shards == 2
    assert "keeps its number of shards until it is resharded" in caplog.text


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"shards": 0}, "shards must be a power of two"),
        ({"shards": 6}, "shards must be a power of two"),
        ({"shards": -4}, "shards must be a power of two"),
        ({"retained": 0}, "at least the newest"),
        ({"lease_timeout_ms": 0}, "must be positive"),
        ({"from_epoch": Epoch(-1)}, "from_epoch must be 0 or"),
    ],
)
def test_options_that_make_no_sense_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=message):
        an_opening(**fields)


def test_an_opening_that_fails_has_changed_nothing(world: World) -> None:
    writer = a_history(world)
    before = _objects(world.store)
    openings = [
        an_opening("run-2", owner=Owner("other", "other")),
        an_opening("run-2", pipeline=replace(PIPELINE, keys=("origin",))),
        an_opening("run-2", from_epoch=Epoch(99)),
    ]
    for opening in openings:
        with pytest.raises((InvalidPipelineError, IncompatibleStateError)):
            world.open(opening)
    assert _objects(world.store) == before
    assert world.store.exists(manifest_name(writer.manifest.version))


def _objects(store: ObjectStore) -> dict[str, bytes]:
    return {name: store.get(name) for name in store.list("")}


def test_a_stream_of_an_earlier_commit_goes_on_with_other_brokers() -> None:
    """Its source was known by the broker list: another one cost the state."""
    world = World()
    topic = (("subscribe", "departures"),)
    of_before, now = SourceIdentity("kafka", "a:9092,b:9092", topic), SourceIdentity("kafka", "", topic)
    reads = [replace(PIPELINE, inputs=(replace(PIPELINE.inputs[0], sources=(each,)),)) for each in (of_before, now)]
    writer = world.open(an_opening(pipeline=reads[0]))
    read = SourcePosition(of_before, current='{"departures":{"0":7}}', initial="0")
    writer.commit(an_edit(writer.manifest, sources=(read,)))
    writer.close("the test goes on")
    opened = world.open(an_opening("run-2", pipeline=reads[1])).manifest
    assert opened.sources == (replace(read, source=now),)
    assert world.chain.newest() == opened


def test_a_moved_folder_goes_on_where_it_is_named_and_is_known_from_then_on() -> None:
    world = World()
    old, new = SourceIdentity("parquet", "file:/old/in"), SourceIdentity("parquet", "file:/new/in")
    reads = [replace(PIPELINE, inputs=(replace(PIPELINE.inputs[0], sources=(each,)),)) for each in (old, new)]
    writer = world.open(an_opening(pipeline=reads[0]))
    writer.commit(an_edit(writer.manifest, sources=(SourcePosition(old, current="0"),)))
    writer.close("the test goes on")
    with pytest.raises(IncompatibleStateError, match=r"no longer reads parquet file:/old/in.*set moved="):
        world.open(an_opening("run-2", pipeline=reads[1]))
    world.open(an_opening("run-3", pipeline=reads[1], moves=(("file:/old", "file:/new"),))).close("the test goes on")
    assert world.open(an_opening("run-4", pipeline=reads[1])).manifest.sources == (SourcePosition(new, current="0"),)
