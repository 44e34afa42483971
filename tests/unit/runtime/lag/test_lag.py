"""The lag of several sources together, of files among others, and of an upstream's epochs."""

import pytest

from dagster_ckpt.ids import Epoch, StreamUuid, Version
from dagster_ckpt.protocol.epochs.upstream import UpstreamPosition
from dagster_ckpt.protocol.manifest.manifest import Retained, Statistics
from dagster_ckpt.runtime.lag.lag import Lag, SourceLag, together
from dagster_ckpt.runtime.lag.source_lags import unread_epochs, waiting_among
from tests.worlds.manifests import a_manifest

STATE = "LocatedFileStatus{{path=file:/in/{0}; isDirectory=false; length={1}; replication=1; modification_time={2}; x}}"


def test_counts_add_up_and_the_oldest_time_counts() -> None:
    lags = [
        SourceLag(files=2, file_bytes=9, since_ms=50),
        SourceLag(files=0, file_bytes=0),
        SourceLag(epochs=4, since_ms=20),
    ]
    assert together(lags) == SourceLag(files=2, file_bytes=9, epochs=4, since_ms=20)
    assert together([]) == SourceLag()


def test_seconds_are_since_the_oldest_and_0_when_nothing_waits() -> None:
    assert Lag(1_000, SourceLag(rows=1, since_ms=400)).seconds(2_900) == 2.5
    assert Lag(1_000, SourceLag(rows=1, since_ms=4_000)).seconds(2_900) == 0, "another host's clock is ahead"
    caught_up = Lag(1_000, SourceLag(rows=0))
    assert (caught_up.seconds(9_000), caught_up.is_caught_up) == (0, True)


def test_only_waiting_files_count() -> None:
    addresses = [f"file:/in/{name}" for name in "abc"]
    states = [STATE.format(name, at, 10 - at) for at, name in enumerate("abc", 1)]
    assert waiting_among({addresses[1], addresses[2]}, addresses, states) == SourceLag(
        files=2, file_bytes=5, since_ms=7
    )
    assert waiting_among((), addresses, ()) == SourceLag(files=0, file_bytes=0)


RETAINED = tuple(Retained(Epoch(at), Version(at), at * 10) for at in (5, 6, 8))
UPSTREAM = a_manifest(
    epoch=Epoch(8), version=Version(8), retained=RETAINED, abandoned=(), statistics=Statistics(total_epochs=6)
)


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (UpstreamPosition(StreamUuid("u"), Epoch(8)), SourceLag(epochs=0)),
        (UpstreamPosition(StreamUuid("u"), Epoch(6)), SourceLag(epochs=1, since_ms=80)),
        (UpstreamPosition(StreamUuid("u"), Epoch(5)), SourceLag(epochs=2, since_ms=60)),
        (UpstreamPosition(StreamUuid("u"), Epoch(3)), SourceLag(epochs=4, since_ms=50)),
        (UpstreamPosition(StreamUuid("u"), Epoch(8), part=1, parts=3), SourceLag(epochs=1, since_ms=80)),
        (UpstreamPosition(StreamUuid("u")), SourceLag(epochs=6, since_ms=50)),
        (None, SourceLag(epochs=6, since_ms=50)),
    ],
)
def test_epochs_of_an_upstream_wait_until_they_are_consumed(at: UpstreamPosition | None, expected: SourceLag) -> None:
    assert unread_epochs(UPSTREAM, at) == expected


def test_an_upstream_without_an_epoch_has_nothing_to_read() -> None:
    assert unread_epochs(a_manifest(epoch=Epoch(0), retained=()), None) == SourceLag(epochs=0)
