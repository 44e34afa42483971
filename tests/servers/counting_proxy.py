"""A TCP proxy on this machine's loopback that lists the HTTP requests that pass it."""

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import unquote

from tests.servers.processes import HOST

_CHUNK = 1 << 16
_REQUEST = re.compile(rb"(GET|HEAD|PUT|POST|DELETE) (\S+) HTTP/1\.1\r\n")


@dataclass
class CountingProxy:
    """Where it listens, and the requests so far: method and unquoted path with its parameters."""

    port: int
    requests: list[tuple[str, str]] = field(default_factory=list)


@contextmanager
def counting_proxy(server: int) -> Iterator[CountingProxy]:
    """A proxy to the server of that port."""
    with socket.create_server((HOST, 0), backlog=64) as listener:
        proxy = CountingProxy(listener.getsockname()[1])

        opened: list[socket.socket] = []

        def accept() -> None:
            with suppress(OSError):
                while True:
                    opened.append(ours := listener.accept()[0])
                    opened.append(theirs := socket.create_connection((HOST, server)))
                    for source, target, seen in ((ours, theirs, proxy.requests), (theirs, ours, None)):
                        threading.Thread(target=_pass, args=(source, target, seen), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield proxy
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for each in opened:
                each.close()


def _pass(source: socket.socket, target: socket.socket, seen: list[tuple[str, str]] | None) -> None:
    """Pass bytes on until one side ends. A request's first line is in one piece: clients send headers at once."""
    with suppress(OSError):
        while data := source.recv(_CHUNK):
            if seen is not None:
                seen.extend((found[1].decode(), unquote(found[2].decode())) for found in _REQUEST.finditer(data))
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
