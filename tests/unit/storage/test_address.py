import pickle
from pathlib import Path

import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.storage.address import StoreAddress, open_store


@pytest.mark.parametrize("form", ["file://{}", "file:{}", "FILE://{}", "file://{}/", "file://{}/x/.."])
def test_a_file_url_opens_its_folder(form: str, tmp_path: Path) -> None:
    store = open_store(form.format(tmp_path))
    store.put("a", b"x")
    assert (tmp_path / "a").read_bytes() == b"x"
    assert store.url == f"file://{tmp_path}"


def test_opening_a_store_writes_nothing(tmp_path: Path) -> None:
    open_store(f"file://{tmp_path}/typo")
    assert list(tmp_path.iterdir()) == []


def test_an_address_opens_the_same_store_in_another_process(tmp_path: Path) -> None:
    address = StoreAddress(f"file://{tmp_path}")
    address.open().put("a", b"x")
    assert pickle.loads(pickle.dumps(address)).open().get("a") == b"x"


def test_memory_stores_are_shared_by_name() -> None:
    open_store("memory://shared-by-name").put("a", b"x")
    assert open_store("memory://shared-by-name").get("a") == b"x"
    assert not open_store("memory://another").exists("a")


@pytest.mark.parametrize(
    "url", ["s3://user:hunter2@bucket/x", "gs://x", "hdfs://x/y", "simplecache::file:///x", "http://hunter2/"]
)
def test_a_store_without_a_proved_create_is_refused_without_telling_its_secrets(url: str) -> None:
    with pytest.raises(InvalidPipelineError, match="local disk only") as caught:
        open_store(url, {"secret": "hunter2"})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["file://data/x", "file:data", "file:///", "file://", "/data/x", "data", ""])
def test_a_url_that_does_not_name_one_folder_is_refused(url: str) -> None:
    with pytest.raises(InvalidPipelineError, match="write file:///some/folder with three slashes"):
        open_store(url)


def test_options_are_never_shown(tmp_path: Path) -> None:
    address = StoreAddress(f"file://{tmp_path}", {"secret": "hunter2"})
    assert "hunter2" not in repr(address)
    with pytest.raises(
        InvalidPipelineError, match=r"takes no storage options: remove them\. options=\['secret'\]"
    ) as caught:
        address.open()
    assert "hunter2" not in str(caught.value)
