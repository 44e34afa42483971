"""The suite that every object store passes, on those that need no server of their own; tests/stores has the others."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.stores.local import LocalObjectStore
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.testing.store_suite import StoreAddress, StoreSuite
from tests.worlds.disk import folder_on_disk
from tests.worlds.s3_server import S3Server


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with folder_on_disk() as folder:
        yield folder


def _local(folder: Path) -> ObjectStore:
    return LocalObjectStore(folder / "store", SystemClock().unique)


class TestLocal(StoreSuite):
    def address(self, folder: Path) -> StoreAddress:
        return StoreAddress(f"file://{folder}/store")


class TestMemory(StoreSuite):
    def open(self, folder: Path) -> ObjectStore:
        return MemoryObjectStore(str(folder))


class TestFolder(StoreSuite):
    def open(self, folder: Path) -> ObjectStore:
        return folder_store(_local(folder), "some.stream")


class TestS3(StoreSuite):
    @pytest.fixture(autouse=True)
    def _server(self, s3_server: S3Server) -> None:
        self.server = s3_server

    def address(self, folder: Path) -> StoreAddress:
        return self.server.at(folder.name)


def test_two_stores_do_not_see_each_other(tmp_path: Path) -> None:
    first, second = MemoryObjectStore(uuid4().hex), MemoryObjectStore(uuid4().hex)
    first.put("a", b"")
    assert not second.exists("a")
    root = _local(tmp_path)
    left, right = folder_store(root, "left"), folder_store(root, "right")
    left.put("a", b"")
    assert not right.exists("a")
    assert left.url == f"{root.url}/left"
