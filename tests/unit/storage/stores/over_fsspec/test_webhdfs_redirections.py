"""A second redirection, as of a gateway whose session has ended, is no reply of WebHDFS: nothing was done."""

from collections.abc import Iterator

import pytest

from dagster_ckpt.errors import StoreUnavailableError
from dagster_ckpt.storage.stores.address import StoreAddress
from tests.worlds.broken_s3 import CALLS, BrokenS3, accept, broken_s3


@pytest.fixture
def server() -> Iterator[BrokenS3]:
    with broken_s3() as server:
        yield server


@pytest.mark.parametrize("call", sorted(set(CALLS) - {"settle", "local_path"}))
@pytest.mark.parametrize("status", [302, 307])
def test_a_redirection_to_a_redirection_is_unavailable(server: BrokenS3, call: str, status: int) -> None:
    server.answer = accept(status=status, headers={"Location": f"http://127.0.0.1:{server.port}/login"})
    store = StoreAddress(f"webhdfs://127.0.0.1:{server.port}/folder", {"user": "shop"}).open()
    with pytest.raises(StoreUnavailableError):
        assert CALLS[call](store) == "nothing"
