import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.ids import Term
from dagster_ckpt.protocol.lease import interruption
from dagster_ckpt.storage.leases.heartbeat import LeaseHeartbeat, read_lease
from dagster_ckpt.storage.writer.stream_writer import open_stream
from tests.worlds.streams import a_store, an_opening


def test_an_interrupt_as_a_stream_is_opened_closes_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    store, begin = a_store(), LeaseHeartbeat.begin

    def interrupted(heartbeat: LeaseHeartbeat) -> None:
        begin(heartbeat)
        raise KeyboardInterrupt

    monkeypatch.setattr(LeaseHeartbeat, "begin", interrupted)
    with pytest.raises(KeyboardInterrupt):
        open_stream(store, an_opening(), SystemClock())
    lease = read_lease(store, Term(1))
    assert lease is not None
    assert lease.closed == interruption("KeyboardInterrupt")


def test_an_interrupt_as_a_stream_is_opened_again_closes_the_new_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    store = a_store()
    writer = open_stream(store, an_opening(), SystemClock())
    end = LeaseHeartbeat.end

    def interrupted(heartbeat: LeaseHeartbeat, reason: str) -> None:
        end(heartbeat, reason)
        if reason == "reopened":
            raise KeyboardInterrupt

    monkeypatch.setattr(LeaseHeartbeat, "end", interrupted)
    with pytest.raises(KeyboardInterrupt):
        writer.reopen()
    lease = read_lease(store, Term(2))
    assert lease is not None
    assert lease.closed == interruption("KeyboardInterrupt")
