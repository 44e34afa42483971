"""Replies of WebHDFS that no emulator gives at will."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from dagster_ckpt.errors import StoreUnavailableError
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.stores.object_store import ObjectStore
from tests.worlds.broken_s3 import CALLS, BrokenS3, accept, break_off, broken_s3


@pytest.fixture
def server() -> Iterator[BrokenS3]:
    with broken_s3() as server:
        yield server


@pytest.fixture
def store(server: BrokenS3) -> ObjectStore:
    return StoreAddress(f"webhdfs://127.0.0.1:{server.port}/folder", {"user": "shop"}).open()


@pytest.mark.parametrize("call", sorted(set(CALLS) - {"settle", "local_path"}))
@pytest.mark.parametrize("status", [302, 307])
def test_a_redirection_to_a_redirection_is_unavailable(
    server: BrokenS3, store: ObjectStore, call: str, status: int
) -> None:
    """As of a gateway whose session has ended: nothing was done."""
    server.answer = accept(status=status, headers={"Location": f"http://127.0.0.1:{server.port}/login"})
    with pytest.raises(StoreUnavailableError):
        assert CALLS[call](store) == "nothing"


@pytest.mark.parametrize("times", [1, 3])
def test_an_object_that_is_replaced_under_its_reader_is_read_again(
    server: BrokenS3, store: ObjectStore, times: int
) -> None:
    """DataNodes delete its old blocks, and the reply breaks off."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        (break_off if len(server.asked) <= times else accept(b"new"))(request)

    server.answer = answer
    assert store.get("a") == b"new"
    assert len(server.asked) == times + 1


def test_replies_that_break_off_each_time_are_an_error(server: BrokenS3, store: ObjectStore) -> None:
    server.answer = break_off
    with pytest.raises(StoreUnavailableError):
        store.get("a")
