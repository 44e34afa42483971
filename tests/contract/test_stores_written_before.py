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
    if "totals" not in expected:
        pytest.skip("a store of streams of several steps alone")
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


def test_state_tables_of_several_steps_are_in_a_store(tmp_path: Path) -> None:
    found = set[tuple[str, str]]()
    for number, written in enumerate(STORES):
        store = CheckpointStore(unpacked(written, tmp_path / str(number)).as_uri())
        for newest in (store.stream(name).manifest() for name in store.streams()):
            for step, each in enumerate(newest.pipeline.steps):
                tables = [
                    spec.name for spec in each.tables if any(newest.runs[newest.pipeline.name_in_runs(step, spec.name)])
                ]
                found |= {(each.operator, table) for table in tables}
    assert found >= {
        *(("aggregate", table) for table in ("groups", "values_0", "distinct_0", "bag_0")),
        *(("window_of_table", table) for table in ("groups", "values_0", "distinct_0", "bag_0")),
        *(("regular_join", table) for table in ("left_rows", "left_index", "right_rows", "right_index", "counts")),
        *(("top", table) for table in ("table", "ranked")),
        *(("over", table) for table in ("table", "ordered")),
        *(("set_operation", table) for table in ("table", "counts")),
    }


def test_nothing_of_the_machine_that_wrote_a_store_is_in_it(written: Path, tmp_path: Path) -> None:
    root = unpacked(written, tmp_path)
    store = CheckpointStore(root.as_uri())
    read = {position.source for name in store.streams() for position in store.stream(name).manifest().sources}
    assert {source.address.rpartition("/")[0] for source in read if source.format == "parquet"} == {f"file:{INBOX}"}
    leases = [json.loads(path.read_text()) for path in root.glob("*/lease/*")]
    assert {lease["holder"]["process"]["host"] for lease in leases} == {"writer"}
    assert sum(path.stat().st_size for path in written.iterdir()) < 500_000
