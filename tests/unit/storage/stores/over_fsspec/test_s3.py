"""What the S3 store makes of a server's bad days. How it works on good ones is in tests/contract."""

from collections.abc import Callable, Iterator

import pytest

from dagster_ckpt.errors import CheckpointError, InvalidPipelineError, StoreUnavailableError
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.stores.object_store import ObjectMissingError, ObjectStore
from dagster_ckpt.storage.stores.over_fsspec import calls, s3
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

CREATED = accept(headers={"ETag": '"an-md5"'})
PROXYS_404 = accept(b"<html>no such page</html>", 404, {"Content-Type": "text/html"})
READS = {name: CALLS[name] for name in ("get", "get_range")}
every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@pytest.fixture(scope="module")
def a_server() -> Iterator[BrokenS3]:
    with broken_s3() as server:
        yield server


@pytest.fixture
def server(a_server: BrokenS3) -> BrokenS3:
    a_server.asked.clear()
    a_server.authorizations.clear()
    return a_server


@pytest.fixture
def store(server: BrokenS3) -> ObjectStore:
    return server.address(config_kwargs={"read_timeout": 0.3}).open()


@every_call
@pytest.mark.parametrize(
    "answer",
    [
        hang_up,
        say_nothing,
        refuse(500, "InternalError"),
        refuse(503, "SlowDown"),
        refuse(503, "ServiceUnavailable"),
        refuse(409, "ConditionalRequestConflict"),
        refuse(403, "AccessDenied"),
    ],
    ids=["hang-up", "silence", "500", "slow-down", "503", "409", "403"],
)
def test_an_unknown_outcome_is_unavailable_and_sent_once(
    server: BrokenS3, store: ObjectStore, call: Callable[[ObjectStore], object], answer: Answer
) -> None:
    server.answer = answer
    with pytest.raises(StoreUnavailableError, match="try again") as caught:
        call(store)
    assert len(server.asked) == 1
    assert caught.value.__suppress_context__
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("call", READS.values(), ids=READS)
def test_an_answer_that_breaks_off_is_none(
    server: BrokenS3, store: ObjectStore, call: Callable[[ObjectStore], object]
) -> None:
    server.answer = break_off
    with pytest.raises(StoreUnavailableError, match="object=a, store=s3://bucket/folder"):
        call(store)


def test_an_answer_that_never_ends_is_given_up(
    server: BrokenS3, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "_PATIENCE_S", 0.4)
    server.answer = trickle
    with pytest.raises(StoreUnavailableError, match="reason=FSTimeoutError"):
        store.get("a")


def test_a_create_is_one_conditional_request_whatever_its_size(server: BrokenS3, store: ObjectStore) -> None:
    server.answer = CREATED
    large = memoryview(bytes(101 * 1024**2))  # s3fs's own pipe_file would send three parts
    assert store.put_if_absent("a", large)
    assert server.asked == [("PUT", len(large), "*")]


def test_a_put_of_advice_has_no_condition(server: BrokenS3, store: ObjectStore) -> None:
    server.answer = CREATED
    store.put("a", b"x")
    assert server.asked == [("PUT", 1, None)]


@pytest.mark.parametrize("code", ["PreconditionFailed", "SomethingElse"])
def test_a_failed_condition_is_a_lost_create_however_the_server_words_it(
    server: BrokenS3, store: ObjectStore, code: str
) -> None:
    server.answer = refuse(412, code)
    assert store.put_if_absent("a", b"x") is False


@pytest.mark.parametrize("code", ["InvalidArgument", "InvalidRequest", "BadDigest", "RequestTimeout"])
def test_a_bad_request_is_no_lost_create(server: BrokenS3, store: ObjectStore, code: str) -> None:
    server.answer = refuse(400, code)
    with pytest.raises(StoreUnavailableError, match=code):
        store.put_if_absent("a", b"x")


def test_a_server_without_conditional_create_is_refused(server: BrokenS3, store: ObjectStore) -> None:
    server.answer = refuse(501, "NotImplemented")
    with pytest.raises(InvalidPipelineError, match="does not support conditional creates"):
        store.put_if_absent("a", b"x")


@pytest.mark.parametrize("verb", ["put_if_absent", "put", "get", "get_range", "list", "folders", "delete"])
def test_a_missing_bucket_is_the_users_to_make(server: BrokenS3, store: ObjectStore, verb: str) -> None:
    server.answer = refuse(404, "NoSuchBucket")
    with pytest.raises(InvalidPipelineError, match="no such bucket: create it, or correct its name"):
        CALLS[verb](store)


def test_a_range_that_begins_behind_the_end_is_empty(server: BrokenS3, store: ObjectStore) -> None:
    server.answer = refuse(416, "InvalidRange")
    assert store.get_range("a", 10, 5) == b""


def test_what_s3_takes_in_no_single_request_is_refused(
    server: BrokenS3, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "PUT_BYTES_MAX", 3)
    with pytest.raises(InvalidPipelineError, match="set a smaller memory_limit"):
        store.put_if_absent("a", b"four")
    assert server.asked == []


def test_an_unreachable_server_is_named() -> None:
    with broken_s3() as server:
        address = server.address()
    with pytest.raises(StoreUnavailableError, match=rf"can be reached, .*EndpointConnectionError.*:{server.port}"):
        address.open().get("a")


def test_a_missing_object_differs_from_a_missing_bucket(server: BrokenS3, store: ObjectStore) -> None:
    server.answer = refuse(404, "NoSuchKey")
    with pytest.raises(ObjectMissingError):
        store.get("a")
    assert not store.exists("a")
    store.delete("a")


@every_call
@pytest.mark.parametrize("answer", [PROXYS_404, accept(status=404)], ids=["a page", "nothing"])
def test_a_proxys_404_does_not_make_an_object_missing(
    server: BrokenS3, store: ObjectStore, call: Callable[[ObjectStore], object], answer: Answer
) -> None:
    server.answer = answer
    with pytest.raises(StoreUnavailableError, match="reason=404"):
        call(store)


def test_a_head_is_believed_where_s3_sent_it(server: BrokenS3, store: ObjectStore) -> None:
    server.answer = accept(status=404, headers={"x-amz-request-id": "4442587FB7D0A2F9"})
    assert not store.exists("a")
    assert server.asked == [("HEAD", 0, None)]


@pytest.mark.parametrize("reply_to_get", [accept(b"x", 206), refuse(416, "InvalidRange")], ids=["found", "empty"])
def test_what_a_get_finds_is_not_missing(server: BrokenS3, store: ObjectStore, reply_to_get: Answer) -> None:
    server.answer = lambda request: (reply_to_get if request.command == "GET" else PROXYS_404)(request)
    with pytest.raises(StoreUnavailableError):
        store.exists("a")
    assert [method for method, *_ in server.asked] == ["HEAD", "GET"]


@pytest.mark.parametrize("verb", ["put_if_absent", "put", "list", "folders"])
def test_no_key_is_missing_to_what_creates_or_lists(server: BrokenS3, store: ObjectStore, verb: str) -> None:
    server.answer = refuse(404, "NoSuchKey")
    with pytest.raises(StoreUnavailableError, match="NoSuchKey"):
        CALLS[verb](store)


@pytest.mark.parametrize("verb", ["put_if_absent", "put", "exists", "list", "folders"])
@pytest.mark.parametrize("body", [b"", b"<html>back soon</html>", b"<html>"], ids=["nothing", "XML", "other"])
def test_success_from_what_is_not_s3_is_unavailable(
    server: BrokenS3, store: ObjectStore, verb: str, body: bytes
) -> None:
    server.answer = accept(body)
    with pytest.raises(StoreUnavailableError):
        CALLS[verb](store)


def test_what_a_server_says_may_hold_a_secret_and_is_shown_without(server: BrokenS3) -> None:
    options = {"key": "hunter-key", "secret": "hunter-secret", "token": "hunter-token", "profile": None}
    more = {"s3_additional_kwargs": {"SSECustomerKey": "hunter-sse"}, "client_kwargs": {"region_name": "eu-west-9"}}
    store = server.address(**options, **more).open()
    words = "no hunter-secret hunter-key hunter-token hunter-sse at http://user:pass@host/ in eu-west-9"
    server.answer = refuse(500, "hunter-secret", words)
    with pytest.raises(CheckpointError) as caught:
        store.get("a")
    assert "hunter" not in str(caught.value)
    assert "pass" not in str(caught.value)
    assert "no *** *** *** *** at http://***@host/ in eu-west-9" in str(caught.value)
    assert "hunter" not in repr(store)


def test_late_or_renewed_credentials_are_found(server: BrokenS3, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process lives for weeks: a store that once found no credentials, or old ones, must look again."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    store = StoreAddress("s3://bucket/x", {"endpoint_url": f"http://127.0.0.1:{server.port}"}).open()
    with pytest.raises(StoreUnavailableError, match="give key and secret in storage_options, or set AWS_ACCESS_KEY_ID"):
        store.get("a")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "first")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "first")
    server.answer = refuse(403, "InvalidAccessKeyId")
    with pytest.raises(StoreUnavailableError, match="check the credentials"):
        store.get("a")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "second")
    server.answer = accept(b"bytes")
    assert store.get("a") == b"bytes"
    assert [authorization.partition("/")[0][-6:] for authorization in server.authorizations] == ["=first", "second"]
