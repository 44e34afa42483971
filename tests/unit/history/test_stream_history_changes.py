import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.history import CheckpointStore, StreamHistory
from dagster_ckpt.ids import Version
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.protocol.object_names import manifest_name
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from tests.unit.history.made_streams import MadeStream, append, departures

NAME = "flights/delays"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return tmp_path.as_uri()


def history(url: str) -> StreamHistory:
    return CheckpointStore(url).stream(NAME)


def of(stream: StreamHistory, after: int, until: int | None = None) -> list[tuple[object, ...]]:
    log = stream.changes(after, until, ["carrier", "flights"])
    assert log.column_names == ["carrier", "flights", "_epoch", "_change_type"]
    return sorted((tuple(row.values()) for row in log.to_pylist()), key=lambda row: (row[2], repr(row)))


def test_epoch_after_epoch_up_to_the_current_one_or_another(url: str) -> None:
    stream = MadeStream(url, NAME)
    stream.commit(departures({"UA": [1.0], None: [3.0]}))
    stream.commit(departures({"UA": [6.0], "AA": [7.0]}))
    stream.close()
    first = [("UA", 1, 2, "insert"), (None, 1, 2, "insert")]
    second = [("AA", 1, 3, "insert"), ("UA", 1, 3, "update_preimage"), ("UA", 2, 3, "update_postimage")]
    assert of(history(url), 0, 2) == sorted(first, key=repr)
    assert of(history(url), 2) == sorted(second, key=repr)
    assert of(history(url), 0) == sorted(first, key=repr) + sorted(second, key=repr)
    assert of(history(url), 3) == of(history(url), 2, 2) == []


def test_both_ends_may_be_times(url: str) -> None:
    stream = MadeStream(url, NAME)
    for delay in range(3):
        stream.commit(departures({"UA": [delay]}))
    stream.close()
    second, first = history(url).info(3).committed_at, history(url).info(2).committed_at
    log = history(url).changes(after_as_of=first, until_as_of=second + timedelta(microseconds=1))
    assert log["_epoch"].unique().to_pylist() == [3]
    with pytest.raises(InvalidPipelineError, match="not both"):
        history(url).changes(2, after_as_of=first)
    with pytest.raises(InvalidPipelineError, match="after which epoch"):
        history(url).changes()


def test_of_a_table_that_only_grows_they_are_the_rows_that_came(url: str) -> None:
    stream = MadeStream(url, NAME, append())
    for delay in range(3):
        stream.commit(departures({"UA": [delay], "AA": [delay]}))
    stream.close()
    log = history(url).changes(2)
    assert set(log["_change_type"].to_pylist()) == {"insert"}
    assert log["_epoch"].to_pylist() == [3, 3, 4, 4]
    assert log["dep_delay"].to_pylist() == [1.0, 1.0, 2.0, 2.0]


def test_what_a_rollback_left_behind_is_not_among_them(url: str) -> None:
    stream = MadeStream(url, NAME)
    stream.commit(departures({"UA": [1.0]}))
    stream.commit(departures({"AA": [1.0]}))
    stream.open(from_epoch=2)
    again = stream.commit(departures({"DL": [1.0]}))
    stream.close()
    assert of(history(url), 0) == [("UA", 1, 2, "insert"), ("DL", 1, again, "insert")]
    for after, until in ((3, None), (0, 3)):
        with pytest.raises(InvalidPipelineError, match=rf"left this epoch behind.*retained=2, {again}"):
            history(url).changes(after, until)


def test_changes_in_a_sleepers_manifest_on_a_freed_number_are_no_changes(url: str) -> None:
    stream = MadeStream(url, NAME, retained=2)
    for delay in range(6):
        stream.commit(departures({"UA": [delay]}))
    stream.close()
    assert len(of(history(url), 3, 4)) == 2
    chain = ManifestChain(stream.writer.store, SystemClock())
    sleepers = chain.store.get(manifest_name(Version(4)))
    for version in range(1, 5):
        chain.store.delete(manifest_name(Version(version)))
    chain.store.put_if_absent(manifest_name(Version(4)), sleepers)
    with pytest.raises(InvalidPipelineError, match=r"no longer kept.*after=3, until=7"):
        history(url).changes(3)


def test_the_beginning_is_there_however_often_the_stream_was_opened_before_it(url: str) -> None:
    stream = MadeStream(url, NAME)
    for _ in range(20):
        stream.open()
    stream.commit(departures({"UA": [1]}))
    stream.close()
    chain = ManifestChain(stream.writer.store, SystemClock())
    for version in range(1, 6):  # retired before any row was written
        chain.store.delete(manifest_name(Version(version)))
    assert len(of(history(url), 0, None)) == 1


def test_an_epoch_that_is_not_there_is_refused_with_those_that_are(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = MadeStream(url, NAME, retained=2)
    for delay in range(4):
        stream.commit(departures({"UA": [delay]}))
    stream.close()
    reader = history(url)
    find: Callable[[ManifestChain, Version], Manifest | None] = ManifestChain.find
    monkeypatch.setattr(ManifestChain, "find", lambda chain, version: None if version < 4 else find(chain, version))
    with pytest.raises(InvalidPipelineError, match=r"no longer kept.*after=0, until=5, current=5, retained=4-5"):
        reader.changes(0)
    with pytest.raises(InvalidPipelineError, match="no such epoch yet"):
        reader.changes(99)
    with pytest.raises(InvalidPipelineError, match="no such epoch"):
        reader.changes(-1)
    with pytest.raises(InvalidPipelineError, match="before `after`"):
        reader.changes(5, 4)
    with pytest.raises(InvalidPipelineError, match=r"Did you mean 'carrier'"):
        reader.changes(4, columns=["carier"])


def test_changes_behind_an_epoch_of_a_lost_history_are_refused(tmp_path: Path) -> None:
    stream = MadeStream(tmp_path.as_uri(), "departures", append())
    stream.commit(departures({"UA": [1.0]}))
    stream.close()
    shutil.copytree(tmp_path / "departures", tmp_path / "backup")
    stream.open()
    stream.commit(departures({"UA": [2.0]}))
    history = CheckpointStore(stream.url).stream("departures")
    seen = history.latest()
    stream.close()
    shutil.rmtree(tmp_path / "departures")
    shutil.copytree(tmp_path / "backup", tmp_path / "departures")
    stream.open()
    for delay in (3.0, 4.0):
        stream.commit(departures({"UA": [delay]}))
        with pytest.raises(InvalidPipelineError, match=rf"restored from a backup.*after={seen.epoch} \({seen.nonce}\)"):
            history.changes(after=seen.epoch, after_nonce=seen.nonce)
    first = history.info(2)
    assert history.changes(after=first.epoch, after_nonce=first.nonce).num_rows == 2
