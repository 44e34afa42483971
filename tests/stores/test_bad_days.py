"""What stores over fsspec make of a server's bad days: each request is sent once, and ends."""

import gc
from collections.abc import Callable, Iterator

import pytest

from dagster_ckpt.errors import InvalidPipelineError, StoreUnavailableError
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.stores.over_fsspec import calls
from tests.worlds.broken_s3 import (
    CALLS,
    Answer,
    BrokenS3,
    accept,
    break_off,
    broken_s3,
    hang_up,
    refuse,
    say_nothing,
    trickle,
)

WRITES = {"put_if_absent", "put"}
every_call = pytest.mark.parametrize("call", CALLS)
every_kind = pytest.mark.parametrize("kind", ["gs", "abfs", "webhdfs"])


@pytest.fixture(scope="module")
def a_server() -> Iterator[BrokenS3]:
    with broken_s3() as server:
        yield server


@pytest.fixture
def server(a_server: BrokenS3, monkeypatch: pytest.MonkeyPatch) -> BrokenS3:
    monkeypatch.setattr(calls, "_PATIENCE_S", 0.5)
    a_server.asked.clear()
    return a_server


def store_of(kind: str, server: BrokenS3) -> ObjectStore:
    address = f"http://127.0.0.1:{server.port}"
    if kind == "gs":
        return StoreAddress("gs://bucket/folder", {"endpoint_url": address, "token": "anon"}).open()
    if kind == "abfs":
        key = "aHVudGVyMg=="
        connection = f"DefaultEndpointsProtocol=http;AccountName=shop;AccountKey={key};BlobEndpoint={address}/shop;"
        return StoreAddress("abfs://bucket/folder", {"connection_string": connection}).open()
    return StoreAddress(f"webhdfs://127.0.0.1:{server.port}/folder", {"user": "shop"}).open()


@every_kind
@every_call
@pytest.mark.parametrize(
    "answer",
    [hang_up, say_nothing, refuse(500, "InternalError"), refuse(503, "ServerBusy"), refuse(429, "x"), refuse(403, "x")],
    ids=["hang-up", "silence", "500", "503", "429", "403"],
)
def test_an_unknown_outcome_is_unavailable_and_sent_once(
    kind: str, server: BrokenS3, call: str, answer: Answer
) -> None:
    server.answer = answer
    with pytest.raises(StoreUnavailableError, match="try again") as caught:
        CALLS[call](store_of(kind, server))
    # HDFS tries to remove its temporary file.
    cleans_up = [("DELETE", 0, None)] if kind == "webhdfs" and call in WRITES else []
    assert server.asked[1:] == cleans_up
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert "aHVudGVyMg" not in str(caught.value)


# Azure's SDK leaves the connection of a read that is given up to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore:Unclosed:ResourceWarning")
@every_kind
@pytest.mark.parametrize("call", ["get", "get_range"])
@pytest.mark.parametrize("answer", [break_off, trickle], ids=["breaks off", "never ends"])
def test_an_answer_that_breaks_off_or_never_ends_is_none(
    kind: str, server: BrokenS3, call: str, answer: Answer
) -> None:
    server.answer = answer
    with pytest.raises(StoreUnavailableError):
        CALLS[call](store_of(kind, server))
    gc.collect()


@pytest.mark.parametrize(("kind", "method"), [("gs", "POST"), ("abfs", "PUT")])
def test_a_create_is_one_request_whatever_its_size(
    kind: str, method: str, server: BrokenS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "_PATIENCE_S", 30)
    server.answer = accept(b"{}", 200 if kind == "gs" else 201)
    large = memoryview(bytes(101 * 1024**2))  # the libraries would send several parts
    assert store_of(kind, server).put_if_absent("a", large)
    assert server.asked == [(method, len(large), None if kind == "gs" else "*")]


@every_kind
def test_an_unreachable_server_is_unavailable(kind: str) -> None:
    with broken_s3() as server:
        store = store_of(kind, server)
    with pytest.raises(StoreUnavailableError, match="can be reached"):
        store.get("a")


@pytest.mark.parametrize("kind", ["gs", "abfs"])
@pytest.mark.parametrize("verb", ["put_if_absent", "put", "list", "folders"])
def test_a_missing_bucket_is_the_users_to_make(kind: str, verb: str, root_of: Callable[[str], StoreAddress]) -> None:
    root = root_of(kind)
    store = StoreAddress(f"{kind}://no-such-one/x", root.options).open()
    with pytest.raises(InvalidPipelineError, match=rf"create it, or correct its name\. store={kind}://no-such-one/x"):
        CALLS[verb](store)


@pytest.fixture
def root_of(request: pytest.FixtureRequest) -> Callable[[str], StoreAddress]:
    fixtures = {"gs": "gs_root", "abfs": "azure_root"}
    return lambda kind: request.getfixturevalue(fixtures[kind])


@pytest.mark.parametrize("call", ["exists", "list", "folders"])
def test_what_is_no_reply_of_webhdfs_is_unavailable(server: BrokenS3, call: str) -> None:
    store = store_of("webhdfs", server)
    for body in (b"<html>", b"{}", b"[]"):
        server.answer = accept(body)
        with pytest.raises(StoreUnavailableError, match="not a reply of WebHDFS"):
            CALLS[call](store)
    server.answer = accept(status=307)
    with pytest.raises(StoreUnavailableError, match="a redirection without an address"):
        store.get("a")


def test_what_a_server_says_may_hold_a_secret_and_is_shown_without(server: BrokenS3) -> None:
    options = {"user": "shop", "password": "hunter-password"}
    store = StoreAddress(f"webhdfs://127.0.0.1:{server.port}/folder", options).open()
    server.answer = accept(
        b'{"RemoteException": {"exception": "IOException", "message": "no hunter-password at http://a:b@host/"}}', 500
    )
    with pytest.raises(StoreUnavailableError, match=r"no \*\*\* at http://\*\*\*@host/") as caught:
        store.get("a")
    assert "hunter" not in str(caught.value)
    assert "hunter" not in repr(store)
