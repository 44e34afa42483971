"""A store that an earlier commit has written opens, and shows what it showed then."""

import json
from pathlib import Path
from typing import Any

import pytest

from dagster_ckpt.history import CheckpointStore
from tests.fixtures.stores.read import STORES, readable, unpacked
from tests.fixtures.stores.streams import INBOX


@pytest.fixture(params=STORES, ids=lambda folder: folder.name)
def written(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.param
    return folder


def test_every_retained_epoch_its_changes_pins_and_readers_are_as_they_were(written: Path, tmp_path: Path) -> None:
    store = CheckpointStore(unpacked(written, tmp_path).as_uri())
    expected: dict[str, Any] = json.loads((written / "expected.json").read_text())
    assert sorted(store.streams()) == sorted(expected)
    for name, shown in expected.items():
        history = store.stream(name)
        assert readable(history) == shown, name
        assert history.verify().whole, name


def test_what_a_store_must_show_is_in_it(written: Path) -> None:
    """Each kind of thing that the format has, so that a case that is left out is noticed when a store is written."""
    expected: dict[str, Any] = json.loads((written / "expected.json").read_text())
    assert max(level for stream in expected.values() for level in stream["levels"]) > 0, "compacted"
    assert any(stream["late"] for stream in expected.values())
    assert any(stream["abandoned"] for stream in expected.values())
    assert any(stream["subscribers"] for stream in expected.values())
    assert {kind for stream in expected.values() for _, _, kind in stream["pins"]} >= {None, "dev/totals"}
    assert {row["_change_type"] for stream in expected.values() for row in stream["changes"]} == {
        "insert",
        "update_preimage",
        "update_postimage",
        "delete",
    }


def test_nothing_of_the_machine_that_wrote_a_store_is_in_it(written: Path, tmp_path: Path) -> None:
    root = unpacked(written, tmp_path)
    store = CheckpointStore(root.as_uri())
    read = {position.source for name in store.streams() for position in store.stream(name).manifest().sources}
    assert {source.address.rpartition("/")[0] for source in read if source.format == "parquet"} == {f"file:{INBOX}"}
    leases = [json.loads(path.read_text()) for path in root.glob("*/lease/*")]
    assert {lease["holder"]["process"]["host"] for lease in leases} == {"writer"}
    assert sum(path.stat().st_size for path in written.iterdir()) < 500_000
