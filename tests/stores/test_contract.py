"""The suite that every object store passes, on servers."""

from pathlib import Path

import pytest

from dagster_ckpt.testing.store_suite import StoreAddress, StoreSuite


class _OnServer(StoreSuite):
    root: StoreAddress

    def address(self, folder: Path) -> StoreAddress:
        return StoreAddress(f"{self.root.url}/{folder.name}", self.root.options)


class TestGoogle(_OnServer):
    @pytest.fixture(autouse=True)
    def _server(self, gs_root: StoreAddress) -> None:
        self.root = gs_root


class TestAzure(_OnServer):
    @pytest.fixture(autouse=True)
    def _server(self, azure_root: StoreAddress) -> None:
        self.root = azure_root


class TestWebHdfs(_OnServer):
    @pytest.fixture(autouse=True)
    def _server(self, webhdfs_root: StoreAddress) -> None:
        self.root = webhdfs_root
