"""A folder of Parquet files: what every destination must do, and what is its own. It needs no server."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from dagster_ckpt.delivery.destination import DeliveryMode, Destination, Transaction
from dagster_ckpt.destinations import ParquetFolder
from dagster_ckpt.errors import CheckpointError, InvalidPipelineError, StoreUnavailableError
from dagster_ckpt.testing.destination_suite import APPENDED, DestinationSuite, Row, added
from dagster_ckpt.testing.schema_suite import SchemaSuite
from tests.unit.delivery.delivery_runs import DeliveryRuns


def rows_of(folder: Path) -> list[Row]:
    """As the docs tell a reader to."""
    manifests = [json.loads(path.read_text()) for path in sorted((folder / "_manifest").glob("*.json"))]
    files = [folder / file["path"] for manifest in manifests for file in manifest["files"]]
    tables = [pq.read_table(file) for file in files]
    return [
        row for table in tables for row in zip(table["carrier"].to_pylist(), table["flights"].to_pylist(), strict=True)
    ]


class TestParquetFolder(DestinationSuite, DeliveryRuns):
    outside: ClassVar = tuple(
        f"dagster_ckpt.destinations.parquet:retrying().{name}"
        for name in ("put_if_absent", "get", "exists", "list", "delete")
    )
    modes = (DeliveryMode.APPEND,)

    def no_reply(self) -> Exception:
        return StoreUnavailableError("no reply")

    def make(self, folder: Path) -> Destination:
        self.folder = folder / "delays"
        return ParquetFolder(self.folder.as_uri())

    def rows(self, destination: Destination) -> Iterable[Row]:
        return rows_of(self.folder)


class TestColumnsOfParquetFolder(SchemaSuite):
    modes = (DeliveryMode.APPEND,)

    def make(self, folder: Path) -> Destination:
        self.folder = folder / "delays"
        return ParquetFolder(self.folder.as_uri())

    def records(self, destination: Destination) -> list[dict[str, object]]:
        """As the docs tell a reader to."""
        manifests = [json.loads(path.read_text()) for path in sorted((self.folder / "_manifest").glob("*.json"))]
        files = [str(self.folder / file["path"]) for manifest in manifests for file in manifest["files"]]
        schema = pa.unify_schemas(map(pq.read_schema, files))
        assert {each.name: str(each.type) for each in schema} == manifests[-1]["columns"]
        found: list[dict[str, object]] = ds.dataset(files, schema=schema).to_table().to_pylist()
        return found


def test_what_a_killed_session_has_written_is_deleted_and_nothing_else(tmp_path: Path) -> None:
    to = ParquetFolder(tmp_path.as_uri(), file_rows=1)
    with to.open("one", APPENDED) as session:
        session.apply(Transaction(None, "1", added(("UA", 1), ("AA", 2))))
        session._write("killed", 0, pq.read_table(next((tmp_path / "data").iterdir())))
        assert len(list((tmp_path / "data").iterdir())) == 3
    for _ in range(2):
        with to.open("one", APPENDED) as session:
            assert session.position == "1"
    assert len(list((tmp_path / "data").iterdir())) == 2
    assert rows_of(tmp_path) == [("UA", 1), ("AA", 2)]


def test_a_lost_reply_of_the_create_is_no_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    to = ParquetFolder(tmp_path.as_uri())
    with to.open("one", APPENDED) as session:
        create = session._store.put_if_absent

        def done_and_unheard(name: str, data: bytes | memoryview) -> bool:
            create(name, data)
            return False  # as a store says to the second try of a call whose first reply was lost

        monkeypatch.setattr(session, "_store", _Store(session._store, done_and_unheard))
        session.apply(Transaction(None, "1", added(("UA", 1))))
        session.apply(Transaction("1", "2", added(("AA", 1))))
    assert rows_of(tmp_path) == [("UA", 1), ("AA", 1)]


class _Store:
    def __init__(self, store: object, put_if_absent: object) -> None:
        self._store = store
        self.put_if_absent = put_if_absent

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


@pytest.mark.parametrize("kind", [pa.struct([]), pa.month_day_nano_interval()], ids=str)
def test_a_type_that_it_cannot_hold_is_refused_with_the_columns_name(kind: pa.DataType) -> None:
    table = replace(APPENDED, columns=pa.schema([("carrier", pa.string()), ("extra", kind)]))
    with pytest.raises(InvalidPipelineError, match=r"convert it in the stream\. column=extra"):
        ParquetFolder("file:///shop/orders").check(table)


def test_a_damaged_manifest_is_named(tmp_path: Path) -> None:
    to = ParquetFolder(tmp_path.as_uri())
    with to.open("one", APPENDED) as session:
        session.apply(Transaction(None, "1", added(("UA", 1))))
    max((tmp_path / "_manifest").iterdir()).write_text("{")
    with pytest.raises(CheckpointError, match=r"_manifest/0+2\.json"):
        to.open("one", APPENDED)
