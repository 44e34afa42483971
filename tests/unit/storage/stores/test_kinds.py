"""Stores of other packages, found by an entry point."""

import sys
from pathlib import Path

import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.storage.stores.address import StoreAddress, check_options, check_url, open_store
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.testing.store_suite import StoreSuite

_PACKAGE = """
from dagster_ckpt.storage.stores.memory import MemoryObjectStore

def open_shelf(rest, options):
    return MemoryObjectStore("shelf" + rest)
"""


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, entry: str, code: str) -> None:
    """What pip leaves of a package that has a store: a module, and the metadata that names it."""
    (folder / f"{name}.py").write_text(code)
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[dagster_ckpt.stores]\n{entry}\n")
    if str(folder) not in sys.path:
        monkeypatch.syspath_prepend(str(folder))


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    installed(folder, monkeypatch, "shelf_store", "shelf = shelf_store:open_shelf", _PACKAGE)
    monkeypatch.delitem(sys.modules, "shelf_store", raising=False)


class TestAnotherPackagesStore(StoreSuite):
    @pytest.fixture(autouse=True)
    def _installed(self, shelf: None) -> None:
        """The package is there while the test runs."""

    def open(self, folder: Path) -> ObjectStore:
        return StoreAddress(f"shelf://tests{folder}").open()


@pytest.mark.usefixtures("shelf")
def test_checks_do_not_load_another_packages_store() -> None:
    check_url("shelf://a/b")
    check_options("shelf://a/b", {"token": "x"})
    assert "shelf_store" not in sys.modules
    assert isinstance(open_store("SHELF://a/b"), MemoryObjectStore)


@pytest.mark.usefixtures("shelf")
@pytest.mark.parametrize("rest", ["//me:hunter2@host/folder", "//host/folder?token=hunter2", "//host/folder#hunter2"])
def test_a_secret_in_the_address_is_refused_and_not_shown(rest: str) -> None:
    for opens in (check_url, open_store):
        with pytest.raises(InvalidPipelineError, match=r"go into storage_options\. scheme=shelf") as refused:
            opens(f"shelf:{rest}")
        assert "hunter2" not in str(refused.value)


@pytest.mark.usefixtures("shelf")
def test_a_name_before_the_host_is_no_secret() -> None:
    check_url("shelf://container@account/folder")


def test_a_store_gets_what_follows_the_scheme_and_the_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "def open_it(rest, options):\n    raise ValueError(f'{rest} {dict(options)}')\n"
    installed(tmp_path, monkeypatch, "told_store", "told = told_store:open_it", code)
    with pytest.raises(ValueError, match=r"//host/a \{'token': 'x'\}"):
        open_store("told://host/a", {"token": "x"})


def test_a_store_that_cannot_be_loaded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, monkeypatch, "broken_store", "broken = broken_store:open_it", "import not_installed_here\n")
    with pytest.raises(InvalidPipelineError, match=r"install what it needs.*scheme=broken.*not_installed_here"):
        open_store("broken://a")


def test_two_packages_with_one_scheme_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one_store", "two_store"):
        installed(tmp_path, monkeypatch, name, f"shared = {name}:open_it", _PACKAGE)
    with pytest.raises(InvalidPipelineError, match=r"uninstall all but one.*one_store:open_it.*two_store:open_it"):
        open_store("shared://a")


def test_no_package_replaces_a_store_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, monkeypatch, "memory_store", "memory = memory_store:open_shelf", _PACKAGE)
    assert open_store("memory://x").url == "memory://x"
