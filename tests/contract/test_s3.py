"""What only a server that speaks S3 can show: moto's in `make test`, a real one in `make test-s3`."""

import time

import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.state.objects import create
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.stores.object_store import ObjectStore
from tests.worlds.s3_server import S3Server


@pytest.fixture
def address(s3_server: S3Server) -> StoreAddress:
    return s3_server.empty()


@pytest.fixture
def store(address: StoreAddress) -> ObjectStore:
    return address.open()


def test_a_list_goes_on_where_a_page_ends(store: ObjectStore) -> None:
    names = {f"{folder}/{number}" for folder in "abc" for number in range(7)}
    for name in names:
        store.put(name, b"")
    assert set(store.list("")) == names
    assert set(store.folders("")) == {"a", "b", "c"}


def test_what_others_put_into_the_folder_is_no_object(s3_server: S3Server) -> None:
    folder = s3_server.empty()
    store, key = folder.open(), folder.url.removeprefix("s3://").partition("/")[2]
    whole = StoreAddress("s3://checkpoints", folder.options).open()
    store.put("a/b", b"x")
    calls = store._calls  # type: ignore[attr-defined]
    for name in ["a/", ".hidden", "ä/ö", "with space", "a//b"]:
        calls.replace(f"{key}/{name}", b"")
    assert list(store.list("")) == ["a/b"]
    assert list(store.folders("")) == ["a"]
    assert f"{key}/a/b" in set(whole.list("tests"))


def test_a_new_file_of_the_state_is_made_once_however_often_it_is_asked_for(store: ObjectStore) -> None:
    create(store, "state/x", memoryview(b"rows"))
    create(store, "state/x", memoryview(b"rows"))
    assert store.get("state/x") == b"rows"


def test_a_bucket_that_is_not_there_is_named(s3_server: S3Server) -> None:
    store = StoreAddress("s3://no-such-bucket/x", s3_server.options).open()
    with pytest.raises(InvalidPipelineError, match=r"create it, or correct its name\. store=s3://no-such-bucket/x"):
        store.put_if_absent("a", b"")
    with pytest.raises(InvalidPipelineError, match="create it"):
        list(store.list(""))


def test_an_objects_time_is_the_servers_in_whole_seconds(store: ObjectStore) -> None:
    begun = int(time.time())
    store.put("a", b"")
    assert begun * 1000 <= store.modified_ms("a") <= time.time() * 1000
    assert store.modified_ms("a") % 1000 == 0
