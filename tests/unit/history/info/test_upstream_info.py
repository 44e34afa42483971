"""How far a stream is behind those that it reads, as the store alone shows it."""

from pathlib import Path

import pytest

from dagster_ckpt import CheckpointStore
from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.history import UpstreamInfo
from dagster_ckpt.ids import Version
from dagster_ckpt.protocol.object_names import manifest_name
from tests.unit.history.made_streams import MadeStream
from tests.unit.history.reading_streams import MadeStreams


@pytest.fixture
def streams(tmp_path: Path) -> MadeStreams:
    return MadeStreams(tmp_path)


def lag(streams: MadeStreams) -> list[UpstreamInfo]:
    return CheckpointStore(streams.url).stream("reader").upstreams()


def figures(streams: MadeStreams) -> tuple[int, int, int | None, int | None]:
    [info] = lag(streams)
    return info.read, info.newest, info.epochs, info.rows


def test_it_counts_the_epochs_and_the_rows_committed_since(streams: MadeStreams) -> None:
    upstream = streams.source("departures", epochs=3)
    reader = streams.reader("reader", upstream)
    reader.read(upstream)
    assert figures(streams) == (4, 4, 0, 0)
    streams.commit(upstream, 2)
    upstream.open()  # an opening is a version, and no epoch
    streams.commit(upstream)
    assert figures(streams) == (4, 8, 3, 3)


def test_before_the_first_epoch_all_of_it_is_ahead(streams: MadeStreams) -> None:
    upstream = streams.source("departures", epochs=3)
    reader = streams.reader("reader", upstream)
    reader.read(upstream, epoch=0)
    assert figures(streams) == (0, 4, 3, 3)


def test_a_snapshot_that_is_being_read_counts_as_one_epoch(streams: MadeStreams) -> None:
    upstream = streams.source("departures", epochs=3)
    reader = streams.reader("reader", upstream)
    reader.read(upstream, part=1, parts=2)
    assert lag(streams) == [UpstreamInfo("departures", 4, 4, 1, 0, in_snapshot=True)]  # type: ignore[arg-type]


def test_what_the_upstream_no_longer_knows_is_unknown(streams: MadeStreams) -> None:
    upstream = streams.source("departures", epochs=3)
    reader = streams.reader("reader", upstream)
    reader.read(upstream)
    streams.commit(upstream, 3)
    for version in range(1, 5):
        folder(upstream).joinpath(manifest_name(Version(version))).unlink()
    assert figures(streams) == (4, 7, None, None)


def test_a_rollback_that_left_behind_what_was_read_is_named(streams: MadeStreams) -> None:
    upstream = streams.source("departures", epochs=3)
    reader = streams.reader("reader", upstream)
    reader.read(upstream)
    upstream.open(from_epoch=3)
    [info] = lag(streams)
    assert (info.ahead, info.epochs) == (True, None)


def test_an_upstream_that_is_not_there_or_another_one_is_named(streams: MadeStreams) -> None:
    upstream = streams.source("departures", epochs=3)
    reader = streams.reader("reader", upstream)
    reader.read(upstream)
    folder(upstream).rename(folder(upstream).with_name("moved"))
    assert lag(streams) == [UpstreamInfo("departures", 4, 0, None, None, gone=True)]  # type: ignore[arg-type]
    streams.source("departures", epochs=1)
    assert lag(streams)[0].gone


def test_a_damaged_upstream_is_an_error_that_names_it(streams: MadeStreams) -> None:
    upstream = streams.source("departures", epochs=3)
    reader = streams.reader("reader", upstream)
    reader.read(upstream)
    folder(upstream).joinpath(manifest_name(upstream.writer.manifest.version)).write_bytes(b"damaged")
    with pytest.raises(CorruptStateError, match="departures"):
        lag(streams)


def folder(stream: MadeStream) -> Path:
    return Path(stream.url.removeprefix("file://")) / stream.name


def test_a_restore_that_took_away_what_was_read_is_named(streams: MadeStreams) -> None:
    upstream = streams.source("departures", epochs=1)
    backup = streams.back_up(upstream)
    streams.commit(upstream, 3)
    reader = streams.reader("reader", upstream)
    reader.read(upstream)
    streams.restore(upstream, backup)
    for _ in range(4):  # below the number, at it, and beyond
        [info] = lag(streams)
        assert (info.ahead, info.epochs) == (True, None)
        streams.commit(upstream)
