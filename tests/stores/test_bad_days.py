"""What stores over fsspec make of a server's bad days: each request is sent once, and ends."""

import gc
import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
import requests

from dagster_ckpt.errors import InvalidPipelineError, StoreUnavailableError
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.stores.object_store import ObjectMissingError, ObjectStore
from dagster_ckpt.storage.stores.over_fsspec import calls, webhdfs
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

PROXYS_404 = accept(b"<html>no such page</html>", 404, {"Content-Type": "text/html"})
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
    large = memoryview(bytes(101 * 1024**2))  # the libraries would send several parts
    server.answer = created_on_gs(len(large)) if kind == "gs" else accept(status=201)
    assert store_of(kind, server).put_if_absent("a", large)
    assert server.asked == [(method, len(large), None if kind == "gs" else "*")]


def created_on_gs(size: int) -> Answer:
    return accept(json.dumps({"kind": "storage#object", "name": "folder/a", "size": str(size)}).encode())


def refused_by_google(status: int, reason: str) -> Answer:
    """An error as the JSON API words it."""
    error = {"code": status, "message": "the test said so", "errors": [{"domain": "global", "reason": reason}]}
    return accept(json.dumps({"error": error}).encode(), status)


@every_kind
@every_call
@pytest.mark.parametrize(
    "answer",
    [PROXYS_404, accept(status=404), accept(b"Not Found", 404), accept(b'{"error": "no such page"}', 404)],
    ids=["a page", "nothing", "text", "JSON"],
)
def test_a_proxys_404_does_not_make_an_object_missing(kind: str, server: BrokenS3, call: str, answer: Answer) -> None:
    server.answer = answer
    with pytest.raises(StoreUnavailableError, match="reason=404"):
        CALLS[call](store_of(kind, server))


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("gs", refused_by_google(404, "notFound")),
        ("gs", accept(b"No such object: bucket/folder/a", 404)),
        ("abfs", accept(status=404, headers={"x-ms-error-code": "BlobNotFound"})),
        ("abfs", accept(status=404, headers={"x-ms-error-code": "ResourceNotFound"})),
    ],
)
def test_what_the_service_itself_says_is_missing(kind: str, answer: Answer, server: BrokenS3) -> None:
    store = store_of(kind, server)
    server.answer = answer
    with pytest.raises(ObjectMissingError):
        store.get("a")
    assert not store.exists("a")
    store.delete("a")


def test_a_download_that_is_missing_in_other_words_is_confirmed(server: BrokenS3) -> None:
    store = store_of("gs", server)
    other, missing = accept(b"Not Found", 404), refused_by_google(404, "notFound")
    server.answer = lambda request: (other if "alt=media" in request.path else missing)(request)
    with pytest.raises(ObjectMissingError):
        store.get("a")
    found = accept(b'{"size": "1", "timeCreated": "2026-11-27T18:40:43.339511Z"}')
    server.answer = lambda request: (other if "alt=media" in request.path else found)(request)
    with pytest.raises(StoreUnavailableError, match="reason=404"):
        store.get("a")
    downloads = iter([other, accept(b"x")])
    server.answer = lambda request: (next(downloads) if "alt=media" in request.path else found)(request)
    assert store.get("a") == b"x", "it was created meanwhile"


def test_only_googles_condition_loses_a_create(server: BrokenS3) -> None:
    store = store_of("gs", server)
    told = b"At least one of the pre-conditions you specified did not hold."
    for answer in (refused_by_google(412, "conditionNotMet"), accept(told, 412)):
        server.answer = answer
        assert store.put_if_absent("a", b"x") is False
    for answer in (accept(b"<html>", 412), refused_by_google(412, "somethingElse")):
        server.answer = answer
        with pytest.raises(StoreUnavailableError, match="reason=412"):
            store.put_if_absent("a", b"x")


@pytest.mark.parametrize("verb", ["put_if_absent", "put", "exists", "list", "folders"])
@pytest.mark.parametrize(
    "answer",
    [
        accept(),
        accept(b"<html>back soon</html>"),
        accept(b"[]"),
        accept(b"{}"),
        created_on_gs(2),
        accept(status=302, headers={"Location": "/back-soon"}),
    ],
    ids=["nothing", "a page", "an array", "an empty object", "another object", "a redirection"],
)
def test_success_from_what_is_not_google_is_unavailable(server: BrokenS3, verb: str, answer: Answer) -> None:
    server.answer = answer
    with pytest.raises(StoreUnavailableError):
        CALLS[verb](store_of("gs", server))


@pytest.mark.parametrize("verb", ["put_if_absent", "put", "delete"])
def test_a_redirected_write_is_not_followed(server: BrokenS3, verb: str) -> None:
    moved, elsewhere = accept(status=302, headers={"Location": "/back-soon"}), created_on_gs(1)
    server.answer = lambda request: (elsewhere if request.path == "/back-soon" else moved)(request)
    with pytest.raises(StoreUnavailableError, match="reason=302"):
        CALLS[verb](store_of("gs", server))
    assert len(server.asked) == 1


def test_a_token_that_is_sent_to_be_checked_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_it(url: str, params: dict[str, str], **_: object) -> object:
        raise requests.HTTPError(f"400 Client Error for url: {url}?{urlencode(params)}")

    monkeypatch.setattr(requests, "get", refuse_it)
    store = StoreAddress("gs://bucket/folder", {"token": "hunter two/{}"}).open()
    with pytest.raises(StoreUnavailableError, match="check the credentials") as caught:
        store.get("a")
    assert "hunter" not in str(caught.value)


@pytest.mark.parametrize(
    "token", [{"type": "authorized_user"}, {"refresh_token": "", "client_id": "hunter", "client_secret": "hunter2"}]
)
def test_a_key_that_lacks_something_is_a_matter_of_credentials(server: BrokenS3, token: dict[str, str]) -> None:
    options = {"endpoint_url": f"http://127.0.0.1:{server.port}", "token": token}
    with pytest.raises(StoreUnavailableError, match="check the credentials") as caught:
        StoreAddress("gs://bucket/folder", options).open().get("a")
    assert "hunter" not in str(caught.value)
    assert server.asked == []


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


def refused_by_hdfs(status: int, exception: str) -> Answer:
    error = {"exception": exception, "message": "the test said so"}
    return accept(json.dumps({"RemoteException": error}).encode(), status)


@pytest.mark.parametrize("call", sorted(WRITES))
@pytest.mark.parametrize(
    "exception", ["FileNotFoundException", "ParentNotDirectoryException", "FileAlreadyExistsException"]
)
def test_what_hdfs_says_of_a_temporary_file_is_not_said_of_the_object(
    server: BrokenS3, call: str, exception: str
) -> None:
    server.answer = refused_by_hdfs(403, exception)
    with pytest.raises(StoreUnavailableError, match=exception):
        CALLS[call](store_of("webhdfs", server))


class NameNode:
    """Grants everything. `operations` are what it was asked, and whether of a temporary file or an object."""

    def __init__(self, refuses: str = "") -> None:
        self.operations: list[tuple[str, str]] = []
        self.times: list[str] = []
        self._refuses = refuses

    def __call__(self, request: BaseHTTPRequestHandler) -> None:
        address = urlsplit(request.path)
        parameters = parse_qs(address.query)
        [operation] = parameters["op"]
        self.operations.append((operation, "temporary" if address.path.endswith(".tmp") else "object"))
        self.times += parameters.get("modificationtime", [])
        status = {"FileStatus": {"type": "FILE", "length": 0, "modificationTime": 1_700_000_000_000}}
        answer = accept(json.dumps(status).encode() if operation == "GETFILESTATUS" else b"")
        (refused_by_hdfs(404, "FileNotFoundException") if operation == self._refuses else answer)(request)


def test_an_object_whose_rename_came_late_is_dated_by_a_file_created_after_it(
    server: BrokenS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process may have been suspended before the first request: what it measured would date into the future."""
    monkeypatch.setattr(webhdfs, "_OLD_MS", 0)
    server.answer = name_node = NameNode()
    assert store_of("webhdfs", server).put_if_absent("a", b"x")
    assert name_node.operations == [
        ("CREATE", "temporary"),
        ("RENAME", "temporary"),
        ("CREATE", "temporary"),
        ("GETFILESTATUS", "temporary"),
        ("DELETE", "temporary"),
        ("SETTIMES", "object"),
    ]
    assert name_node.times == ["1700000000000"]


@pytest.mark.parametrize(("refuses", "created"), [("DELETE", True), ("GETFILESTATUS", False), ("SETTIMES", False)])
def test_an_object_that_could_not_be_dated_is_unknown(
    server: BrokenS3, monkeypatch: pytest.MonkeyPatch, refuses: str, *, created: bool
) -> None:
    monkeypatch.setattr(webhdfs, "_OLD_MS", 0)
    server.answer = NameNode(refuses)
    store = store_of("webhdfs", server)
    if created:
        assert store.put_if_absent("a", b"x")
        return
    with pytest.raises(StoreUnavailableError, match="FileNotFoundException"):
        store.put_if_absent("a", b"x")


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
