from pathlib import Path

import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.history import CheckpointStore
from tests.unit.history.made_streams import MadeStream, append


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    for name in ("flights/delay_by_carrier", "departures", "a.b/Zürich/x y"):
        MadeStream(tmp_path.as_uri(), name, append()).close()
    return CheckpointStore(tmp_path.as_uri())


def test_streams_are_listed_by_asset_key_and_sorted(store: CheckpointStore) -> None:
    assert store.streams() == ["a.b/Zürich/x y", "departures", "flights/delay_by_carrier"]


def test_each_listed_stream_can_be_opened_by_its_name(store: CheckpointStore) -> None:
    assert [store.stream(name).name for name in store.streams()] == store.streams()
    assert [store.stream(name).latest().stream for name in store.streams()] == store.streams()


def test_what_is_no_stream_is_not_listed(store: CheckpointStore, tmp_path: Path) -> None:
    for folder in ("notes", "UPPER/manifest", "other/manifest", ".hidden/manifest"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "other/manifest/probe-0").touch()  # opened by a writer that died before it created the stream
    (tmp_path / "readme.txt").touch()
    assert len(store.streams()) == 3
    with pytest.raises(InvalidPipelineError, match="no such stream"):
        store.stream("other")


def test_an_empty_or_missing_store_has_no_streams(tmp_path: Path) -> None:
    assert CheckpointStore(tmp_path.as_uri()).streams() == []
    assert CheckpointStore((tmp_path / "nowhere").as_uri()).streams() == []
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("departure", "departures"),
        ("DEPARTURES", "departures"),
        ("delay_by_carrier", "flights/delay_by_carrier"),
        ("flights.delay_by_carrier", "flights/delay_by_carrier"),
    ],
)
def test_an_unknown_stream_is_refused_with_a_close_one(store: CheckpointStore, asked: str, meant: str) -> None:
    with pytest.raises(InvalidPipelineError, match=f"Did you mean '{meant}'"):
        store.stream(asked)


@pytest.mark.parametrize("asked", ["", "/", "departures/", "..", "../departures", "x" * 300, "quite another"])
def test_any_other_name_is_refused_with_the_streams_there_are(store: CheckpointStore, asked: str) -> None:
    with pytest.raises(InvalidPipelineError) as refused:
        store.stream(asked)
    assert "departures" in str(refused.value) or "too long" in str(refused.value)


def test_reading_writes_nothing(store: CheckpointStore, tmp_path: Path) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    for name in store.streams():
        store.stream(name).read()
        store.stream(name).epochs()
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before


def test_secrets_are_never_shown() -> None:
    with pytest.raises(InvalidPipelineError) as refused:
        CheckpointStore("s3://key:hunter2@bucket/checkpoints", {"secret": "hunter2"})
    assert "hunter2" not in str(refused.value)
    with pytest.raises(InvalidPipelineError) as refused:
        CheckpointStore("file:///tmp/checkpoints", {"secret": "hunter2"})
    assert "hunter2" not in str(refused.value)


def test_a_store_and_a_stream_say_where_they_are(store: CheckpointStore, tmp_path: Path) -> None:
    assert repr(store) == f"CheckpointStore('{tmp_path.as_uri()}')"
    assert repr(store.stream("departures")) == f"StreamHistory('departures', folder='{tmp_path.as_uri()}/departures')"
