"""A server that speaks just enough of S3 to fail in every way that a real one has, and counts what it is asked.

Most of its ways to fail are those of any server.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.stores.object_store import ObjectStore

Answer = Callable[[BaseHTTPRequestHandler], None]
"""What the server does with one request, whose body was read."""

CALLS: dict[str, Callable[[ObjectStore], object]] = {
    "put_if_absent": lambda store: store.put_if_absent("a", b"x"),
    "put": lambda store: store.put("a", b"x"),
    "get": lambda store: store.get("a"),
    "get_range": lambda store: store.get_range("a", 1, 2),
    "exists": lambda store: store.exists("a"),
    "size": lambda store: store.size("a"),
    "modified_ms": lambda store: store.modified_ms("a"),
    "delete": lambda store: store.delete("a"),
    "list": lambda store: list(store.list("a")),
    "folders": lambda store: list(store.folders("a")),
}
"""Each verb that a store sends a request for."""


def _begin(request: BaseHTTPRequestHandler, status: int, size: int, headers: Mapping[str, str] | None = None) -> None:
    request.send_response(status)
    request.send_header("Content-Length", str(size))
    for name, value in (headers or {}).items():
        request.send_header(name, value)
    # Or the next request would be lost with this connection, before anything could be made of it.
    request.send_header("Connection", "close")
    request.end_headers()


def refuse(status: int, code: str, message: str = "the test said so") -> Answer:
    """An error as S3 words it."""
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()

    def answer(request: BaseHTTPRequestHandler) -> None:
        _begin(request, status, len(body))
        if request.command != "HEAD":
            request.wfile.write(body)

    return answer


def accept(body: bytes = b"", status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """All is well, or another status with a body of any kind."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        _begin(request, status, len(body), headers)
        if request.command != "HEAD":
            request.wfile.write(body)

    return answer


def hang_up(request: BaseHTTPRequestHandler) -> None:
    """The connection is cut before a word of the answer."""
    request.connection.shutdown(socket.SHUT_RDWR)


def say_nothing(request: BaseHTTPRequestHandler) -> None:
    """No answer, for longer than anybody waits."""
    time.sleep(1.5)
    hang_up(request)


def break_off(request: BaseHTTPRequestHandler) -> None:
    """Half of the answer, then the connection is cut."""
    _begin(request, 200, 1000)
    request.wfile.write(bytes(500))
    request.wfile.flush()
    hang_up(request)


def trickle(request: BaseHTTPRequestHandler) -> None:
    """A byte now and then: never silent for long, never done."""
    _begin(request, 200, 1000)
    for _ in range(20):
        request.wfile.write(b"x")
        request.wfile.flush()
        time.sleep(0.1)
    hang_up(request)


@dataclass
class BrokenS3:
    """`answer` is given to every request; each is listed, with its body's length and its If-None-Match.

    `authorizations` are the requests' headers of that name.
    """

    port: int
    answer: Answer = hang_up
    asked: list[tuple[str, int, str | None]] = field(default_factory=list)
    authorizations: list[str] = field(default_factory=list)

    def address(self, **options: object) -> StoreAddress:
        given = {"key": "a-test-key", "secret": "a-test-secret", "endpoint_url": f"http://127.0.0.1:{self.port}"}
        return StoreAddress("s3://bucket/folder", {**given, **options})


@contextmanager
def broken_s3() -> Iterator[BrokenS3]:
    """One, listening for as long as the block lasts."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_any(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            # Whoever sends a large body may wait to be told that it is wanted; http.server has told it so.
            self.rfile.read(size)
            state.asked.append((self.command, size, self.headers.get("If-None-Match")))
            state.authorizations.append(self.headers.get("Authorization", ""))
            self.close_connection = True
            with suppress(OSError):  # the other side had enough
                state.answer(self)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = do_any  # noqa: N815  (http.server finds them by these names)

        def log_request(self, code: object = "-", size: object = "-") -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state = BrokenS3(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()
