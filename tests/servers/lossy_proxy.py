"""A TCP proxy on this machine's loopback that ends a connection at a chosen request.

It is a process of its own: some drivers hold Python's lock while they wait for a reply.
"""

import multiprocessing
import re
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection

from tests.servers.processes import HOST

_CHUNK = 1 << 16


@dataclass(frozen=True)
class _Loss:
    """What is lost: the request with this pattern after `skipped` others, or the reply to it."""

    request: bytes
    reply: bool
    skipped: int


@dataclass(frozen=True)
class LossyProxy:
    """Where it listens, and how to arm it."""

    port: int
    control: Connection

    def lose(self, request: bytes, *, reply: bool, skipped: int = 0) -> None:
        """Lose one request that has this pattern, after `skipped` others, or the reply to it. Ends the connection."""
        self._arm(_Loss(request, reply, skipped))

    def has_lost(self) -> bool:
        """Disarm it; returns whether something was lost since it was armed."""
        return self._arm(None)

    def _arm(self, loss: _Loss | None) -> bool:
        """Returns once the proxy has it, so that the very next request meets it."""
        self.control.send(loss)
        lost: bool = self.control.recv()
        return lost


@contextmanager
def lossy_proxy(server: int) -> Iterator[LossyProxy]:
    """A proxy to the server of that port."""
    processes = multiprocessing.get_context("forkserver")
    ours, theirs = processes.Pipe()
    process = processes.Process(target=_serve, args=(server, theirs), daemon=True)
    process.start()
    try:
        yield LossyProxy(ours.recv(), ours)
    finally:
        process.kill()
        process.join()
        process.close()
        ours.close()


def _serve(server: int, control: Connection) -> None:
    proxy = _Proxy(server)
    listener = socket.create_server((HOST, 0))
    threading.Thread(target=proxy.accept, args=(listener,), daemon=True).start()
    control.send(listener.getsockname()[1])
    while True:
        loss: _Loss | None = control.recv()
        with proxy.lock:
            lost, proxy.armed, proxy.lost = proxy.lost, loss, False
        control.send(lost)


class _Proxy:
    def __init__(self, server: int) -> None:
        self.server = server
        self.lock = threading.Lock()
        self.armed: _Loss | None = None
        self.lost = False

    def accept(self, listener: socket.socket) -> None:
        while True:
            client, _ = listener.accept()
            threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        ends_at_reply = False
        with client, suppress(OSError), socket.create_connection((HOST, self.server)) as server:
            while True:
                ready, _, _ = select.select([client, server], [], [])
                if client in ready:
                    data = client.recv(_CHUNK)
                    loss = self._hit(data)
                    if not data or (loss is not None and not loss.reply):
                        return
                    ends_at_reply = ends_at_reply or loss is not None
                    server.sendall(data)
                if server in ready:
                    data = server.recv(_CHUNK)
                    if ends_at_reply or not data:
                        return
                    client.sendall(data)

    def _hit(self, data: bytes) -> _Loss | None:
        """What this request is to lose."""
        with self.lock:
            loss = self.armed
            if loss is None or not re.search(loss.request, data):
                return None
            if loss.skipped:
                self.armed = _Loss(loss.request, loss.reply, loss.skipped - 1)
                return None
            self.armed, self.lost = None, True
            return loss
