"""`verify` finds every damaged object, says who needs it, and takes nothing for damage that is none."""

import gzip
import random
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import StoreUnavailableError
from dagster_ckpt.history import CheckpointStore, StreamHistory, Verification
from dagster_ckpt.ids import Version
from dagster_ckpt.protocol.manifest.codec import encode_manifest
from dagster_ckpt.protocol.object_names import TRIMMED, manifest_name
from dagster_ckpt.storage.chain.damaged_end import LOST
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.operations.collector import Collector
from dagster_ckpt.storage.stores.address import open_store
from dagster_ckpt.storage.stores.object_store import ObjectStore
from tests.unit.history.made_streams import MadeStream, aggregate, append, departures
from tests.unit.history.reading_streams import MadeStreams
from tests.worlds.faulty_store import Fault, FaultyStore

NAMES = ["delays", "departures"]


@pytest.fixture(params=NAMES)
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> MadeStream:
    """A stream of epochs 2 to 6, of which 3 is pinned, with long lists in index objects; its writer has ended."""
    monkeypatch.setattr("dagster_ckpt.storage.chain.indexed_lists.TAIL_MAX", 2)
    made = MadeStream(tmp_path.as_uri(), request.param, append() if request.param == "departures" else aggregate())
    for delay in range(5):
        made.commit(departures({"UA": [delay], "AA": [delay]}))
    made.close()
    history(made).pin(3, "before")
    return made


def history(stream: MadeStream) -> StreamHistory:
    return CheckpointStore(stream.url).stream(stream.name)


def folder(stream: MadeStream) -> Path:
    return Path(stream.url.removeprefix("file://")) / stream.name


def needed(stream: MadeStream) -> list[Path]:
    """Every object but advice."""
    top = folder(stream)
    return sorted(
        path for below in ("manifest", "state", "changes", "index", "pins") for path in (top / below).rglob("*.*")
    )


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def test_a_whole_stream_is_whole_and_every_byte_of_it_was_read(stream: MadeStream) -> None:
    reported: list[tuple[int, int]] = []
    found = history(stream).verify(lambda done, total: reported.append((done, total)))
    assert found.whole
    assert (found.stream, found.epoch, found.good_epoch, found.command) == (stream.name, 6, 6, None)
    assert (found.manifests, found.pins, found.index_objects > 0) == (6, 1, True)
    assert found.runs + found.changes == 10
    everything = sum(path.stat().st_size for path in needed(stream))
    # Index objects that were merged into larger ones are needed by older epochs only.
    assert found.bytes == everything
    assert reported[-1] == (everything, everything)
    assert all(done <= total for done, total in reported)
    assert [done for done, _ in reported] == sorted(done for done, _ in reported)


def test_any_flipped_bit_is_found_and_the_object_named(stream: MadeStream) -> None:
    chance = random.Random(5)
    for path in needed(stream):
        for _ in range(4):
            bit, whole = chance.randrange(path.stat().st_size * 8), path.read_bytes()
            flip(path, bit)
            found = history(stream).verify()
            if not (path.parent.name in {"manifest", "pins"} and _unpacks_to_the_same(path.read_bytes(), whole)):
                assert str(path.relative_to(folder(stream))) in {finding.object for finding in found.findings}, bit
            flip(path, bit)
    assert history(stream).verify().whole


def _unpacks_to_the_same(damaged: bytes, whole: bytes) -> bool:
    """Of gzip's own bits some mean nothing: a time, a system, and those that fill up the last byte of its stream."""
    try:
        return gzip.decompress(damaged) == gzip.decompress(whole)
    except (OSError, EOFError, zlib.error):
        return False


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-1])])
def test_any_missing_or_shorter_object_is_found(stream: MadeStream, damage: Callable[[Path], object]) -> None:
    for path in needed(stream):
        data = path.read_bytes()
        damage(path)
        objects = {finding.object for finding in history(stream).verify().findings}
        if path.parent.name == "pins" and not path.exists():
            assert objects == set(), "the pin may be gone by now"
        else:
            assert str(path.relative_to(folder(stream))) in objects
        path.write_bytes(data)


def test_a_finding_says_which_epochs_and_pins_need_the_object(stream: MadeStream) -> None:
    below = "state" if stream.name == "delays" else "changes"
    damaged = next((folder(stream) / below).rglob("1-3-*"))
    damaged.unlink()
    found = history(stream).verify()
    [finding] = found.findings
    assert finding.object == str(damaged.relative_to(folder(stream)))
    assert finding.wrong == "missing"
    assert finding.pins == ("pins/before.json",)
    assert finding.epochs[0] == 3
    assert 2 not in finding.epochs
    if stream.name == "departures":
        assert finding.epochs == (3, 4, 5, 6)
        assert (found.epoch, found.good_epoch) == (6, 2)
        assert found.command is not None
        assert found.command.endswith("rollback departures --epoch 2")


def test_a_damaged_newest_manifest_leaves_no_current_epoch(stream: MadeStream) -> None:
    flip(folder(stream) / manifest_name(Version(6)), 999)
    found = history(stream).verify()
    assert [finding.object for finding in found.findings] == [manifest_name(Version(6))]
    assert (found.epoch, found.good_epoch) == (None, 5)
    assert found.command is not None
    assert found.command.endswith(f"rollback {stream.name} --epoch 5")


def test_no_manifest_that_can_be_read_is_a_finding_too(stream: MadeStream) -> None:
    for path in (folder(stream) / "manifest").iterdir():
        path.write_bytes(b"")
    found = history(stream).verify()
    assert not found.whole
    assert (found.epoch, found.good_epoch, found.command) == (None, None, None)
    assert "restore its folder from a backup" in found.findings[0].wrong


def test_what_a_rollback_left_behind_is_damage_that_is_dealt_with(stream: MadeStream) -> None:
    flip(folder(stream) / manifest_name(Version(6)), 999)
    history(stream).rollback(4)
    assert history(stream).verify().whole


def test_a_lost_manifest_is_reported_for_as_long_as_its_epoch_is_retained(stream: MadeStream) -> None:
    (folder(stream) / manifest_name(Version(5))).unlink()
    history(stream).rollback(6)
    assert (folder(stream) / manifest_name(Version(5))).read_bytes() == LOST
    [finding] = history(stream).verify().findings
    assert (finding.object, finding.epochs) == (manifest_name(Version(5)), (5,))
    assert "lost" in finding.wrong


def test_a_manifest_that_was_put_in_anothers_place_is_found(stream: MadeStream) -> None:
    chain = ManifestChain(stream.writer.store, SystemClock())
    other = MadeStream(stream.url, "other")
    for _ in range(4):
        other.commit(departures({"UA": [1.0]}))
    other.close()
    (folder(stream) / manifest_name(Version(4))).write_bytes(encode_manifest(chain.read(Version(3))))
    found = {finding.object: finding.wrong for finding in history(stream).verify().findings}
    assert "is version 3" in found[manifest_name(Version(4))]
    theirs = (folder(other) / manifest_name(Version(4))).read_bytes()
    (folder(stream) / manifest_name(Version(4))).write_bytes(theirs)
    found = {finding.object: finding.wrong for finding in history(stream).verify().findings}
    assert "is not what version 5 was built upon" in found[manifest_name(Version(4))]


def test_a_lost_mark_of_what_was_retired_is_not_mistaken_for_lost_manifests(stream: MadeStream) -> None:
    stream.open()
    for _ in range(30):
        stream.commit(departures({"UA": [1.0]}))
    stream.close()
    # It waits a second longer than asked.
    Collector(ManifestChain(stream.writer.store, SystemClock()), open_store(stream.url), grace_ms=-1_000).collect()
    assert history(stream).verify().whole
    (folder(stream) / TRIMMED).unlink()
    assert [finding.object for finding in history(stream).verify().findings] == [TRIMMED]


def test_a_pin_under_anothers_name_is_found(stream: MadeStream) -> None:
    (folder(stream) / "pins/before.json").rename(folder(stream) / "pins/after.json")
    [finding] = history(stream).verify().findings
    assert finding.object == "pins/after.json"
    assert "'before'" in finding.wrong


def test_each_shared_object_is_read_once(stream: MadeStream) -> None:
    store = FaultyStore(open_store(stream.url))
    StreamHistory(store, stream.name, SystemClock()).verify()
    reads = [call.name for call in store.calls if call.verb == "get_range"]
    files = [path for path in needed(stream) if path.suffix in {".arrow", ".parquet"}]
    # A run is read in two pieces, its end first; a change log in one.
    assert len(reads) == sum(2 if path.suffix == ".arrow" else 1 for path in files)


def test_a_store_that_does_not_answer_is_no_damage(stream: MadeStream, monkeypatch: pytest.MonkeyPatch) -> None:
    def decide(call: object) -> Fault:
        return Fault.LOST_REQUEST if getattr(call, "verb", "") == "get_range" else Fault.NONE

    store: ObjectStore = FaultyStore(open_store(stream.url), decide)
    with pytest.raises(StoreUnavailableError):
        StreamHistory(store, stream.name, SystemClock()).verify()


@pytest.mark.parametrize("name", NAMES)
def test_a_writer_and_a_collector_at_work_make_no_findings(tmp_path: Path, name: str) -> None:
    made = MadeStream(tmp_path.as_uri(), name, append() if name == "departures" else aggregate(), retained=2)
    made.commit(departures({"UA": [0.0], "AA": [0.0]}))
    ended = threading.Event()

    def work() -> None:
        collector = Collector(ManifestChain(made.writer.store, SystemClock()), open_store(made.url), grace_ms=-1_000)
        for delay in range(15):
            made.commit(departures({"UA": [float(delay)], "AA": [0.0]}))
            collector.collect(made.writer.term)
        ended.set()

    writer = threading.Thread(target=work)
    writer.start()
    found: list[Verification] = []
    while not ended.is_set():
        found.append(history(made).verify())
        assert found[-1].whole, found[-1].findings
    writer.join()
    made.close()
    assert history(made).verify().whole
    assert len({each.epoch for each in found}) > 1, "the test saw it at work"


def test_a_file_larger_than_a_piece_is_read_in_pieces(stream: MadeStream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagster_ckpt.state.committed.object_checks._PIECE_BYTES", 16 * 1024)
    monkeypatch.setattr("dagster_ckpt.lsm.file.run_file.BLOCK_BYTES", 256)
    stream.open()
    stream.commit(departures({f"carrier {at}": [float(at)] for at in range(8_000)}))
    stream.close()
    assert history(stream).verify().whole
    largest = max(needed(stream), key=lambda path: path.stat().st_size)
    assert largest.stat().st_size > 32 * 1024
    flip(largest, largest.stat().st_size * 8 // 2)
    [finding] = history(stream).verify().findings
    assert finding.object == str(largest.relative_to(folder(stream)))
    assert "checksum" in finding.wrong


def test_an_upstream_without_the_epoch_that_was_read_of_it_is_found(tmp_path: Path) -> None:
    streams = MadeStreams(tmp_path)
    upstream = streams.source("departures", epochs=1)
    reader = streams.reader("reader", upstream)
    kept = reader.read(upstream)
    backup = streams.back_up(upstream)
    streams.commit(upstream, 2)
    lost = upstream.writer.manifest
    read = reader.read(upstream)
    verified = CheckpointStore(streams.url).stream("reader").verify()
    assert verified.whole
    streams.restore(upstream, backup)
    streams.commit(upstream, 2)
    verified = CheckpointStore(streams.url).stream("reader").verify()
    [finding] = verified.findings
    assert (finding.epochs, verified.good_epoch) == ((read,), kept)
    assert f"has read epoch {lost.epoch} ({lost.nonce}) of departures, which has {lost.epoch} (" in finding.wrong
    assert verified.command is not None
    assert f"--epoch {kept}" in verified.command
    streams.close()


def test_a_manifest_of_another_history_is_found(tmp_path: Path) -> None:
    streams = MadeStreams(tmp_path)
    stream = streams.source("departures", epochs=2)
    backup = streams.back_up(stream)
    streams.commit(stream)
    other = (folder(stream) / manifest_name(Version(4))).read_bytes()
    streams.restore(stream, backup)
    streams.commit(stream)
    path = folder(stream) / manifest_name(Version(4))
    path.write_bytes(other)
    [finding] = [each for each in history(stream).verify().findings if each.object == manifest_name(Version(4))]
    assert "is not what version 5 was built upon" in finding.wrong
    streams.close()
