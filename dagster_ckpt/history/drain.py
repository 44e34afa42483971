"""Asks a writer to end, and waits until it has."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from dagster_ckpt.errors import CheckpointError, FencedError
from dagster_ckpt.history.info.writer_info import WriterInfo, WriterWatch, lease_of
from dagster_ckpt.protocol.drain_request import DrainRequest
from dagster_ckpt.protocol.lease import Life
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.leases.process_identity import this_process
from dagster_ckpt.storage.writer.drain_requests import write_drain

_LOOK_MS = 1_000


def _ignore(writer: WriterInfo) -> None: ...


@dataclass
class Draining:
    """`writer` was asked to end cleanly at its next epoch; `wait` returns when it has."""

    writer: WriterInfo
    _chain: ManifestChain
    _stream: str
    _watch: WriterWatch

    def wait(self, on_look: Callable[[WriterInfo], None] = _ignore) -> WriterInfo:
        """Block until the writer has ended; returns its last state and epoch. Calls `on_look` every second.

        Raises `CheckpointError` where it died instead, `FencedError` where another took over.
        """
        while True:
            now = self._watch.look()
            if now.is_known and not self.writer.is_same(now):
                return self._left(now)
            if now.is_known:
                self.writer = now
            if now.life is Life.CLOSED:
                return now
            if now.ended:
                raise CheckpointError(
                    f"the writer died before it had ended; nothing that it had committed is lost, and the recovery "
                    f"sensor starts the next. stream={self._stream!r}, life={now.life}, epoch={now.epoch}, "
                    f"dagster_run={now.dagster_run_id}, host={now.host}, pid={now.pid}"
                )
            on_look(now)
            self._chain.clock.sleep_ms(_LOOK_MS)

    def _left(self, successor: WriterInfo) -> WriterInfo:
        """The writer as it left, now that another has opened the stream."""
        lease = lease_of(self._chain, self.writer.term)
        if lease is None or lease.closed is None:
            raise FencedError(
                f"another writer took over before this one had ended. stream={self._stream!r}, "
                f"term={self.writer.term}, theirs={successor.term}, dagster_run={successor.dagster_run_id}"
            )
        return replace(self.writer, life=Life.CLOSED, epoch=lease.epoch, work=None, closed=lease.closed)


def drain(chain: ManifestChain, stream: str, watch: WriterWatch) -> Draining | None:
    """Ask the writer of a stream to end; None where it is known to have ended already.

    A crash leaves the whole request or none. It names the newest term, so it does not apply to later writers.
    """
    writer = watch.look()
    if writer.ended:
        return None
    request = DrainRequest(writer.term, writer.dagster_run_id, chain.clock.now_ms(), this_process().host)
    write_drain(chain.span(), request)
    return Draining(writer, chain, stream, watch)
