"""What only HDFS can show: files with names of their own before they are objects."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import requests

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import InvalidPipelineError, StoreUnavailableError
from dagster_ckpt.state.objects import create
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.stores.over_fsspec.webhdfs import WebHdfsCalls
from dagster_ckpt.storage.stores.retry import retrying
from tests.servers.hdfs import hdfs
from tests.servers.lossy_proxy import LossyProxy, lossy_proxy
from tests.servers.processes import HOST
from tests.worlds.broken_s3 import accept, broken_s3


@pytest.fixture
def address(webhdfs_root: StoreAddress) -> StoreAddress:
    return StoreAddress(f"{webhdfs_root.url}/{uuid4().hex}", webhdfs_root.options)


@pytest.fixture
def store(address: StoreAddress) -> ObjectStore:
    return address.open()


def files(address: StoreAddress, folder: str) -> list[str]:
    """The names of all files of a folder, as HDFS has them."""
    base = address.url.replace("webhdfs://", "http://").replace("/checkpoints", "/webhdfs/v1/checkpoints")
    reply = requests.get(f"{base}/{folder}", {"op": "LISTSTATUS", "user.name": "root"}, timeout=10)
    return [each["pathSuffix"] for each in reply.json()["FileStatuses"]["FileStatus"] if each["type"] == "FILE"]


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _renames_and_dies(calls: WebHdfsCalls, temporary: str, path: str, overwrite: str) -> None:
    _RENAME(calls, temporary, path, overwrite)
    _die()


_RENAME = WebHdfsCalls._rename


@pytest.mark.parametrize(
    ("instead", "created"),
    [(_die, False), (_renames_and_dies, True)],
    ids=["killed before the rename", "killed after the rename"],
)
def test_a_kill_in_the_middle_of_a_create_leaves_all_or_nothing(
    address: StoreAddress, store: ObjectStore, instead: Callable[..., None], *, created: bool
) -> None:
    store.put("m/other", b"")
    child = os.fork()
    if child == 0:
        try:
            # In the child alone.
            WebHdfsCalls._rename = instead  # type: ignore[method-assign]
            address.open().put_if_absent("m/a", b"whole")
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL

    assert len([name for name in files(address, "m") if name.startswith(".")]) == (0 if created else 1)
    assert store.exists("m/a") is created
    assert set(store.list("")) == ({"m/a", "m/other"} if created else {"m/other"})
    assert store.put_if_absent("m/a", b"whole") is not created
    assert store.get("m/a") == b"whole"
    assert store.discard_leftovers("", 1) == 0
    assert store.discard_leftovers("", 2**62) == (0 if created else 1)
    assert sorted(files(address, "m")) == ["a", "other"]


@pytest.fixture
def proxied(address: StoreAddress) -> Iterator[tuple[LossyProxy, ObjectStore]]:
    """The store through a proxy that can lose what the NameNode is asked, or its replies."""
    port = int(address.url.split("/")[2].split(":")[1])
    with lossy_proxy(port) as proxy:
        url = address.url.replace(f":{port}/", f":{proxy.port}/")
        yield proxy, StoreAddress(url, address.options).open()


@pytest.mark.parametrize("operation", [b"op=CREATE", b"op=RENAME"])
@pytest.mark.parametrize("reply", [False, True], ids=["request", "reply"])
def test_a_create_whose_request_or_reply_is_lost_is_unavailable_and_resolved_by_a_retry(
    proxied: tuple[LossyProxy, ObjectStore], operation: bytes, *, reply: bool
) -> None:
    proxy, store = proxied
    proxy.lose(operation, reply=reply)
    with pytest.raises(StoreUnavailableError):
        store.put_if_absent("a", b"mine")
    assert proxy.has_lost()
    created = reply and operation == b"op=RENAME"
    assert store.exists("a") is created
    assert store.put_if_absent("a", b"mine") is not created
    assert store.get("a") == b"mine"

    proxy.lose(operation, reply=reply)
    create(retrying(store, SystemClock()), "state/x", memoryview(b"rows"))
    assert proxy.has_lost()
    assert store.get("state/x") == b"rows"


def test_nothing_moves_into_a_folder_of_the_objects_name(address: StoreAddress, store: ObjectStore) -> None:
    store.put("a/b", b"x")
    for write in (store.put_if_absent, store.put):
        with pytest.raises(StoreUnavailableError, match="must both be directories"):
            write("a", b"y")
    assert files(address, "a") == ["b"]
    assert files(address, "") == []


def test_an_object_is_as_old_as_its_rename(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may sleep between the two: an object that looks old at birth would be collected."""

    def slow(calls: WebHdfsCalls, temporary: str, path: str, overwrite: str) -> None:
        monkeypatch.undo()
        SystemClock().sleep_ms(1_500)
        store.put("between", b"")
        _RENAME(calls, temporary, path, overwrite)

    monkeypatch.setattr(WebHdfsCalls, "_rename", slow)
    assert store.put_if_absent("late", b"x")
    assert store.modified_ms("late") >= store.modified_ms("between")


def test_a_killed_cluster_is_unavailable_and_keeps_what_it_has(tmp_path: Path) -> None:
    with hdfs(tmp_path) as cluster:
        store = StoreAddress(f"webhdfs://{HOST}:{cluster.port}/checkpoints", {"user": "root"}).open()
        assert store.put_if_absent("a", b"one")
        cluster.kill()
        with pytest.raises(StoreUnavailableError, match="can be reached"):
            store.put_if_absent("a", b"two")
        cluster.start()
        assert store.get("a") == b"one"
        assert store.put_if_absent("a", b"two") is False


def test_another_users_folder_is_refused_with_advice(webhdfs_root: StoreAddress, store: ObjectStore) -> None:
    store.put("a", b"x")
    other = StoreAddress(store.url, {"user": "somebody-else"}).open()
    assert other.get("a") == b"x"
    with pytest.raises(StoreUnavailableError, match=r"check the user and its permissions.*AccessControlException"):
        other.put_if_absent("b", b"x")


def test_a_gateway_that_ignores_how_to_rename_is_refused() -> None:
    with broken_s3() as server:
        store = StoreAddress(f"webhdfs://{HOST}:{server.port}/a", {"user": "root"}).open()
        server.answer = accept(b'{"boolean": true}')
        with pytest.raises(InvalidPipelineError, match=r"name the NameNode\. store=webhdfs"):
            store.put_if_absent("a", b"x")
