import gc
from dataclasses import replace
from typing import Any

import pytest

from dagster_ckpt.errors import CorruptStateError, FencedError, InvalidPipelineError, StoreUnavailableError
from dagster_ckpt.ids import Epoch, Shard, Version
from dagster_ckpt.protocol.manifest import codec
from dagster_ckpt.protocol.manifest.codec import CHANGES, FILES_SEEN
from dagster_ckpt.protocol.manifest.manifest import FileSeen, ManifestKind, Pipeline
from dagster_ckpt.protocol.object_names import manifest_name
from dagster_ckpt.protocol.transitions.edits import EpochEdit
from dagster_ckpt.storage.chain import indexed_lists
from dagster_ckpt.storage.chain.indexed_lists import TAIL_MAX, IndexedLists
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.leases.heartbeat import read_lease
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.writer.opening import Opening, Takeover, open_manifest
from dagster_ckpt.storage.writer.stream_writer import StreamWriter, open_stream
from tests.worlds.clock import StillClock
from tests.worlds.faulty_store import Fault, FaultyStore, Scripted
from tests.worlds.manifests import PIPELINE
from tests.worlds.streams import SHARDS, a_store, an_edit, an_opening, with_files

CLOCK = StillClock()


class Writers:
    """Opens writers and ends their threads when the test is over."""

    def __init__(self) -> None:
        self._open: list[StreamWriter] = []

    def __call__(self, store: ObjectStore, opening: Opening | None = None) -> StreamWriter:
        return self.kept(open_stream(store, opening or an_opening(), CLOCK))

    def kept(self, writer: StreamWriter) -> StreamWriter:
        self._open.append(writer)
        return writer

    def end(self) -> None:
        for writer in self._open:
            writer.close("the test is over")


@pytest.fixture
def writers() -> Any:
    opened = Writers()
    yield opened
    opened.end()


def test_the_first_writer_creates_the_stream(writers: Writers) -> None:
    writer = writers(a_store())
    assert (writer.manifest.version, writer.term, writer.manifest.epoch, writer.next_epoch) == (1, 1, 0, 2)
    assert writer.manifest.kind is ManifestKind.OPEN
    assert writer.manifest.runs == {"total": ((), ())}
    assert ManifestChain(writer.store, CLOCK).newest() == writer.manifest


def test_an_epoch_shows_state_output_and_positions_together(writers: Writers) -> None:
    writer = writers(a_store())
    first = writer.commit(an_edit(writer.manifest))
    second = writer.commit(an_edit(writer.manifest))
    assert (first.epoch, second.epoch) == (2, 3)
    assert second.kind is ManifestKind.EPOCH
    assert second.parent == first.version
    assert [run.epoch for run in second.runs["total"][0]] == [3, 2]
    assert {change.epoch for change in second.changes} == {3}
    assert (second.sources[0].previous, second.sources[0].current) == ('{"logOffset":1}', '{"logOffset":2}')
    assert second.batch_id == 2
    assert second.statistics.total_rows_in == 28
    assert second.statistics.rows_in == 14
    assert second.statistics.state_bytes == 4000
    assert second.statistics.total_epochs == 2
    assert second.watermark_us == 3_000_000 - 1_000
    assert [entry.epoch for entry in second.retained] == [2, 3]
    assert ManifestChain(writer.store, CLOCK).newest() == second


def test_only_so_many_epochs_stay_retained(writers: Writers) -> None:
    writer = writers(a_store(), an_opening(retained=2))
    for _ in range(4):
        writer.commit(an_edit(writer.manifest))
    assert [entry.epoch for entry in writer.manifest.retained] == [4, 5]


def test_an_opened_stream_goes_on_where_it_ended(writers: Writers) -> None:
    store = a_store()
    first = writers(store)
    first.commit(an_edit(first.manifest))
    first.close("done")
    second = writers(store, an_opening("run-2"))
    assert (second.term, second.manifest.epoch, second.next_epoch) == (3, 2, 4)
    assert second.manifest.runs == first.manifest.runs
    assert second.manifest.uuid == first.manifest.uuid
    assert second.commit(an_edit(second.manifest)).epoch == 4


def test_a_zombie_cannot_commit_after_a_new_term(writers: Writers) -> None:
    store = a_store()
    zombie = writers(store)
    zombie.commit(an_edit(zombie.manifest))
    successor = writers(store, an_opening("run-2", take_over=Takeover.ALWAYS))
    successor.commit(an_edit(successor.manifest))
    with pytest.raises(FencedError, match=r"took over.* mine=1, theirs=3"):
        zombie.commit(an_edit(zombie.manifest))
    with pytest.raises(FencedError):
        zombie.commit(an_edit(zombie.manifest))
    with pytest.raises(FencedError):
        zombie.check_term()
    with pytest.raises(FencedError):
        zombie.reopen()
    successor.check_term()
    assert ManifestChain(store, CLOCK).newest() == successor.manifest


def test_a_writer_that_gave_up_opens_again_and_learns_whether_its_epoch_is_there(writers: Writers) -> None:
    for fault, epoch in [(Fault.LOST_REPLY, 2), (Fault.LOST_REQUEST, 0)]:
        store = FaultyStore(a_store())
        writer = writers(store)

        class Deaf:
            fault = Fault.NONE

            def __call__(self, call: Any) -> Fault:
                return self.fault if "manifest" in call.name else Fault.NONE

        store.decide = deaf = Deaf()
        deaf.fault = fault
        with pytest.raises(StoreUnavailableError):
            writer.commit(an_edit(writer.manifest))
        deaf.fault = Fault.NONE
        with pytest.raises(StoreUnavailableError):
            writer.commit(an_edit(writer.manifest))
        again = writers.kept(writer.reopen())
        assert again.manifest.epoch == epoch
        again.commit(an_edit(again.manifest, attempt=1))
        assert again.manifest.epoch == Epoch(again.manifest.version)


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.LOST_REQUEST, Fault.LATE])
def test_a_reopening_that_the_store_did_not_answer_can_be_repeated_and_does_not_fence_itself(
    writers: Writers, fault: Fault
) -> None:
    store = FaultyStore(a_store())
    writer = writers(store)
    writer.commit(an_edit(writer.manifest))

    class Creates:
        fault = Fault.NONE
        failed = False

        def __call__(self, call: Any) -> Fault:
            # Once the first create was not answered, nothing is, until patience ends.
            self.failed |= call.verb == "put_if_absent" and self.fault is not Fault.NONE
            return self.fault if self.failed and "manifest" in call.name else Fault.NONE

    store.decide = creates = Creates()
    creates.fault = fault
    with pytest.raises(StoreUnavailableError):
        writer.reopen()
    creates.fault, creates.failed = Fault.NONE, False
    store.land()
    again = writers.kept(writer.reopen())
    assert again.manifest.epoch == writer.manifest.epoch
    assert again.manifest.term > writer.term
    assert again.commit(an_edit(again.manifest)).epoch == again.next_epoch - 1


def test_a_reopening_is_fenced_by_another_writer_also_after_one_without_an_answer(writers: Writers) -> None:
    store = FaultyStore(a_store())
    writer = writers(store)
    store.decide = lambda call: Fault.LOST_REPLY if "manifest" in call.name else Fault.NONE
    with pytest.raises(StoreUnavailableError):
        writer.reopen()
    store.decide = lambda _: Fault.NONE
    writers(store, an_opening("run-2", take_over=Takeover.ALWAYS))
    with pytest.raises(FencedError, match="another writer took over"):
        writer.reopen()


def test_a_writer_that_was_interrupted_in_the_middle_of_a_commit_commits_nothing_more(writers: Writers) -> None:
    store = FaultyStore(a_store())
    writer = writers(store)

    def interrupted(call: Any) -> Fault:
        if call.verb == "put_if_absent":
            raise KeyboardInterrupt
        return Fault.NONE

    store.decide = interrupted
    with pytest.raises(KeyboardInterrupt):
        writer.commit(an_edit(writer.manifest))
    store.decide = lambda _: Fault.NONE
    with pytest.raises(StoreUnavailableError, match="open the stream again"):
        writer.commit(an_edit(writer.manifest))
    again = writers.kept(writer.reopen())
    assert again.commit(an_edit(again.manifest)).epoch == 3


def test_a_late_epoch_of_a_writer_that_gave_up_never_overtakes_it(writers: Writers) -> None:
    store = FaultyStore(a_store())
    writer = writers(store)
    store.decide = lambda call: Fault.LATE if call.verb == "put_if_absent" else Fault.NONE
    with pytest.raises(StoreUnavailableError):
        writer.commit(an_edit(writer.manifest))
    store.decide = Scripted()
    again = writers.kept(writer.reopen())
    store.land()
    again.check_term()
    assert (again.manifest.version, again.manifest.epoch) == (2, 0)


def test_a_late_epoch_that_landed_first_is_built_upon(writers: Writers) -> None:
    store = FaultyStore(a_store())
    writer = writers(store)
    store.decide = lambda call: Fault.LATE if call.verb == "put_if_absent" else Fault.NONE
    with pytest.raises(StoreUnavailableError):
        writer.commit(an_edit(writer.manifest))
    store.decide = landing = Scripted(("settle", "", Fault.NONE))

    def land_before_the_create(call: Any) -> Fault:
        if call.verb == "put_if_absent":
            store.land()
        return landing(call)

    store.decide = land_before_the_create
    again = writers.kept(writer.reopen())
    assert (again.manifest.version, again.manifest.epoch) == (3, 2)


def test_a_restart_within_one_dagster_run_begins_a_term_without_waiting(writers: Writers) -> None:
    writer = writers(a_store())
    writer.commit(an_edit(writer.manifest))
    began = CLOCK.monotonic_ms()
    again = writers.kept(writer.reopen())
    assert again.term == 3
    assert CLOCK.monotonic_ms() == began
    lease = read_lease(writer.store, writer.term)
    assert lease is not None
    assert lease.closed == "reopened"
    with pytest.raises(FencedError):
        writer.commit(an_edit(writer.manifest))


def test_a_missing_or_double_ack_is_a_mistake_of_ours(writers: Writers) -> None:
    writer = writers(a_store())
    edit = an_edit(writer.manifest)
    for acks in [edit.acks[:1], (*edit.acks, edit.acks[0]), (edit.acks[0], replace(edit.acks[1], shard=Shard(0)))]:
        with pytest.raises(AssertionError, match="every shard"):
            writer.commit(replace(edit, acks=acks))
    assert writer.commit(edit).epoch == 2


def test_a_broken_manifest_is_never_created(writers: Writers) -> None:
    writer = writers(a_store())
    writer.commit(an_edit(writer.manifest))
    wrongs: list[dict[str, Any]] = [{"batch_id": 7}, {"sources": ()}]
    for wrong in wrongs:
        with pytest.raises(AssertionError, match="breaks its rules"):
            writer.commit(an_edit(writer.manifest, **wrong))
    assert not writer.store.exists(manifest_name(Version(3)))


def test_one_nonce_for_all_of_a_writers_manifests_is_never_let_through() -> None:
    clock = StillClock()
    clock.unique = lambda: "0" * 32  # type: ignore[method-assign]
    chain, opening = ManifestChain(a_store(), clock), an_opening()
    writer = StreamWriter(chain, opening, open_manifest(chain, opening))
    with pytest.raises(AssertionError, match="nonce_is_new"):
        writer.commit(an_edit(writer.manifest))


def test_the_lease_shows_the_writers_progress_and_its_end(writers: Writers) -> None:
    writer = writers(a_store())
    opened = read_lease(writer.store, writer.term)
    assert opened is not None
    assert (opened.epoch, opened.counter, opened.closed) == (0, 1, None)
    writer.commit(an_edit(writer.manifest))
    writer.heartbeat.beat()
    beaten = read_lease(writer.store, writer.term)
    assert beaten is not None
    assert (beaten.epoch, beaten.counter) == (2, 2)
    writer.close("success")
    writer.close("again")
    closed = read_lease(writer.store, writer.term)
    assert closed is not None
    assert (closed.closed, closed.counter) == ("success", 3)


def test_garbage_is_collected_again_after_a_commit_however_it_ends(writers: Writers) -> None:
    store = a_store()
    zombie = writers(store)
    zombie.commit(an_edit(zombie.manifest))
    assert gc.isenabled()
    successor = writers(store, an_opening("run-2", take_over=Takeover.ALWAYS))
    with pytest.raises(FencedError):
        zombie.commit(an_edit(zombie.manifest))
    assert gc.isenabled()
    gc.disable()
    try:
        successor.commit(an_edit(successor.manifest))
        assert not gc.isenabled(), "whoever has turned it off wants it to stay off"
    finally:
        gc.enable()


def test_long_lists_leave_the_manifest_and_are_read_back_whole(writers: Writers) -> None:
    writer = writers(a_store())
    seen = []
    for batch in range(30):
        files = [FileSeen(f"file:///data/{batch}-{number}", number) for number in range(200)]
        seen += files
        edit = an_edit(writer.manifest)
        writer.commit(replace(edit, sources=(with_files(edit.sources[0], *files),)))
        assert len(writer.manifest.sources[0].files.tail) <= TAIL_MAX
    lists = IndexedLists(writer.store, FILES_SEEN, CLOCK)
    assert list(lists.entries(writer.manifest.sources[0].files)) == seen
    assert len(writer.manifest.sources[0].files.index) < 8


def test_an_append_only_streams_table_is_the_list_of_all_its_files(writers: Writers) -> None:
    pipeline: Pipeline = replace(PIPELINE, operator="append", parameters={}, keys=(), tables=(), appends=True)
    writer = writers(a_store(), an_opening(pipeline=pipeline))
    for _ in range(3):
        writer.commit(an_edit(writer.manifest))
    files = IndexedLists(writer.store, CHANGES, CLOCK).entries(writer.manifest.files)
    assert [file.epoch for file in files] == [2, 2, 3, 3, 4, 4]
    assert len(writer.manifest.changes) == SHARDS


def test_a_keyed_streams_table_is_its_state_and_lists_no_files(writers: Writers) -> None:
    writer = writers(a_store())
    writer.commit(an_edit(writer.manifest))
    assert writer.manifest.files.tail == ()


def test_a_manifest_too_large_ends_the_writer_and_changes_nothing(
    writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = writers(a_store())
    edit = an_edit(writer.manifest)
    monkeypatch.setattr(codec, "MANIFEST_BYTES_MAX", 100)
    for _ in range(2):
        with pytest.raises(InvalidPipelineError, match="too large"):
            writer.commit(edit)
    assert ManifestChain(writer.store, CLOCK).newest() == writer.manifest


class IndexObjectsAreCollected(FaultyStore):
    """The writer sleeps after it wrote an index object, whose reply is lost; when it wakes up, the object is gone."""

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        created = super().put_if_absent(name, data)
        if not name.startswith("index/"):
            return created
        self.inner.delete(name)
        return False


def test_a_zombie_whose_files_were_collected_learns_that_it_is_fenced(
    writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexed_lists, "TAIL_MAX", 1)
    monkeypatch.setattr(indexed_lists, "MERGED", 2)
    store = a_store()
    zombie = writers(store)
    for number in range(3):
        zombie.commit(_with_two_files(zombie, number))
    writers(store, an_opening("run-2", take_over=Takeover.ALWAYS))
    for name in list(store.list("index")):
        store.delete(name)
    with pytest.raises(FencedError):
        zombie.commit(_with_two_files(zombie, 3))


def test_a_zombie_whose_file_is_collected_as_it_writes_it_learns_that_it_is_fenced(
    writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexed_lists, "TAIL_MAX", 1)
    inner = a_store()
    zombie = writers(IndexObjectsAreCollected(inner))
    with pytest.raises(CorruptStateError, match="right after it was written"):
        zombie.commit(_with_two_files(zombie, 0))  # nobody else is there: then it is what it looks like
    writers(inner, an_opening("run-2", take_over=Takeover.ALWAYS))
    with pytest.raises(FencedError):
        zombie.commit(_with_two_files(zombie, 0))


def _with_two_files(writer: StreamWriter, number: int) -> EpochEdit:
    edit = an_edit(writer.manifest)
    files = [FileSeen(f"file:///data/{number}-{at}", number) for at in range(2)]
    return replace(edit, sources=(with_files(edit.sources[0], *files),))
