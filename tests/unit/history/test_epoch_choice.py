"""Choosing an epoch is pure: only the newest manifest is looked at."""

from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.history.epoch_choice import choose
from dagster_ckpt.history.info.epoch_info import info_of, moment_of
from dagster_ckpt.ids import Epoch, Nonce, StreamUuid, Term, Version
from dagster_ckpt.protocol.epochs.lineage import ranges
from dagster_ckpt.protocol.manifest.manifest import (
    EpochRange,
    Manifest,
    ManifestKind,
    Owner,
    Pipeline,
    Retained,
    Statistics,
)

NOON_MS = int(datetime(2013, 1, 5, 12, tzinfo=UTC).timestamp() * 1_000)


def newest(epochs: list[int], *, shows: int | None = None, version: int | None = None) -> Manifest:
    """The newest manifest of a stream that commits an epoch every second, counted from noon."""
    shown = epochs[-1] if shows is None else shows
    return Manifest(
        version=Version(version or epochs[-1]),
        kind=ManifestKind.EPOCH,
        epoch=Epoch(shown),
        term=Term(1),
        nonce=Nonce("n"),
        time_ms=NOON_MS + 60_000,
        stream="flights/delays",
        uuid=StreamUuid("u"),
        owner=Owner("instance", "flights/delays"),
        pipeline=Pipeline("append", {}, (), (), (), pa.schema([("a", pa.int64())]), appends=True),
        shards=8,
        retained=tuple(Retained(Epoch(e), Version(e), NOON_MS + 1_000 * e) for e in epochs),
    )


def test_by_default_it_is_the_epoch_that_the_newest_manifest_shows() -> None:
    assert choose(newest([2, 3, 4], shows=3, version=5)).epoch == 3


def test_a_retained_epoch_is_found_by_its_number() -> None:
    assert choose(newest([2, 3, 4]), epoch=3).version == 3


@pytest.mark.parametrize(
    ("epoch", "why"),
    [
        (1, "no longer kept"),
        (5, "no such epoch yet"),
        (-1, "no such epoch"),
        (0, "the empty stream: there is nothing to read"),
        (7, "no such epoch"),
    ],
)
def test_an_epoch_that_is_not_retained_is_refused_with_what_is(epoch: int, why: str) -> None:
    manifest = newest([2, 3, 4, 9]) if epoch != 5 else newest([2, 3, 4])
    with pytest.raises(InvalidPipelineError, match=why) as refused:
        choose(manifest, epoch=epoch)
    assert "retained=2-4" in str(refused.value)
    assert f"epoch={epoch}" in str(refused.value)


@pytest.mark.parametrize(
    "as_of",
    [
        "2013-01-05T12:00:03.5",
        "2013-01-05 12:00:03Z",
        "2013-01-05T13:00:03+01:00",
        datetime(2013, 1, 5, 12, 0, 3),  # noqa: DTZ001
        datetime(2013, 1, 5, 12, 0, 3, tzinfo=UTC),
    ],
)
def test_a_time_means_the_newest_epoch_committed_by_then_and_a_naive_one_is_utc(as_of: str | datetime) -> None:
    assert choose(newest([2, 3, 4]), as_of=as_of).epoch == 3


def test_a_time_after_all_epochs_means_the_newest() -> None:
    assert choose(newest([2, 3, 4]), as_of="9999-12-31T23:59:59-10:00").epoch == 4


def test_an_epoch_that_a_rollback_left_behind_is_refused_with_that_reason() -> None:
    rolled_back = replace(newest([2, 6]), abandoned=(EpochRange(Epoch(3), Epoch(4)),))
    for epoch in (3, 4):
        with pytest.raises(InvalidPipelineError, match=r"rollback left this epoch behind.*retained=2, 6"):
            choose(rolled_back, epoch=epoch)


def test_what_a_rollback_left_behind_is_read_by_its_number_and_never_by_a_time() -> None:
    rolled_back = replace(newest([2, 3, 4]), epoch=Epoch(2), abandoned=(EpochRange(Epoch(3), Epoch(5)),))
    assert choose(rolled_back).epoch == 2
    assert choose(rolled_back, epoch=4).epoch == 4
    assert choose(rolled_back, as_of="9999-12-31T23:59:59").epoch == 2
    infos = [info_of(each, replace(rolled_back, epoch=each.epoch), rolled_back) for each in rolled_back.retained]
    assert [info.abandoned for info in infos] == [False, True, True]


def test_a_stream_that_has_committed_nothing_shows_epoch_0() -> None:
    opened = replace(newest([2]), version=Version(1), epoch=Epoch(0), retained=())
    assert choose(opened) == choose(opened, epoch=0) == Retained(Epoch(0), Version(1), opened.time_ms)


def test_a_time_before_all_retained_epochs_is_refused_with_the_oldest() -> None:
    with pytest.raises(InvalidPipelineError, match=r"oldest=2 \(2013-01-05T12:00:02\+00:00\)"):
        choose(newest([2, 3, 4]), as_of="2013-01-05T12:00:01")


def test_what_is_no_time_is_refused_with_an_example() -> None:
    with pytest.raises(InvalidPipelineError, match="2013-01-05T12:00:00"):
        choose(newest([2]), as_of="yesterday")


def test_an_epoch_and_a_time_together_are_refused() -> None:
    with pytest.raises(InvalidPipelineError, match="not both"):
        choose(newest([2]), epoch=2, as_of="2013-01-05")


def test_epochs_are_listed_as_ranges() -> None:
    assert ranges(map(Epoch, [9, 3, 4, 5, 0])) == "0, 3-5, 9"


def test_the_event_time_is_the_greatest_of_any_input() -> None:
    manifest = replace(
        newest([2, 3]), event_times_us=(None, 2_000_000, 0), statistics=Statistics(rows_in=7, epoch_ms=12)
    )
    info = info_of(manifest.retained[1], manifest, manifest)
    assert info.event_time == datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)
    assert info.committed_at == datetime(2013, 1, 5, 12, 0, 3, tzinfo=UTC)
    assert (info.rows_in, info.epoch_ms, info.current) == (7, 12, True)


def test_a_stream_without_event_time_has_none() -> None:
    manifest = replace(newest([2]), event_times_us=(None,))
    assert info_of(manifest.retained[0], manifest, manifest).event_time is None


def test_an_event_time_that_python_cannot_spell_hides_nothing() -> None:
    assert moment_of(2**62) == datetime.max.replace(tzinfo=UTC)
    assert moment_of(-(2**62)) == datetime.min.replace(tzinfo=UTC)
