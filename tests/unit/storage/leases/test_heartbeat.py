import time

import pytest

from dagster_ckpt.errors import StoreUnavailableError
from dagster_ckpt.ids import Epoch, Term
from dagster_ckpt.protocol.lease import Lease
from dagster_ckpt.protocol.object_names import lease_name
from dagster_ckpt.storage.leases.heartbeat import LeaseHeartbeat, read_lease
from dagster_ckpt.storage.leases.liveness import Pulse
from dagster_ckpt.storage.stores.object_store import ObjectStore
from tests.worlds.clock import StillClock
from tests.worlds.faulty_store import Call, Fault, FaultyStore
from tests.worlds.streams import a_holder, a_store

QUICK = Lease(Term(3), a_holder(), timeout_ms=30, epoch=Epoch(2))


def _until(store: ObjectStore, counter: int) -> Lease:
    """The lease once it has reached that counter."""
    for _ in range(1000):
        lease = read_lease(store, QUICK.term)
        if lease is not None and lease.counter >= counter:
            return lease
        time.sleep(0.005)
    raise AssertionError(f"the lease never reached {counter=}")


def test_a_lease_is_there_at_once_beats_by_itself_and_is_closed_at_the_end() -> None:
    store = a_store()
    heartbeat = LeaseHeartbeat(store, QUICK)
    heartbeat.begin()
    assert read_lease(store, QUICK.term) is not None
    _until(store, 4)
    heartbeat.reached(Epoch(7))
    assert _until(store, heartbeat.lease.counter + 2).epoch == 7
    heartbeat.end("success")
    closed = read_lease(store, QUICK.term)
    assert closed is not None
    assert closed.closed == "success"
    time.sleep(0.05)
    assert read_lease(store, QUICK.term) == closed, "no beat comes after the end"


def test_a_store_that_does_not_answer_or_breaks_is_tried_again_at_the_next_beat() -> None:
    store = FaultyStore(a_store())
    calls = 0

    def sometimes(call: Call) -> Fault:
        nonlocal calls
        calls += call.verb == "put"
        if calls == 2:
            raise RuntimeError("a surprise")
        return Fault.LOST_REQUEST if calls in (1, 3, 4) else Fault.NONE

    store.decide = sometimes
    heartbeat = LeaseHeartbeat(store, QUICK)
    heartbeat.begin()
    _until(store.inner, 5)
    store.decide = lambda _: Fault.LOST_REQUEST
    heartbeat.end("success")


def test_a_lease_that_is_stopped_lapses_as_if_the_writer_had_died() -> None:
    store = a_store()
    heartbeat = LeaseHeartbeat(store, QUICK)
    heartbeat.begin()
    heartbeat.stop()
    time.sleep(0.03)
    last = read_lease(store, QUICK.term)
    time.sleep(0.05)
    assert last is not None
    assert read_lease(store, QUICK.term) == last
    assert last.closed is None


def test_no_lease_and_a_damaged_one_are_the_same_and_an_unreadable_store_is_no_verdict() -> None:
    store = FaultyStore(a_store())
    assert read_lease(store, Term(3)) is None
    store.put(lease_name(Term(3)), b"\xff rubbish")
    assert read_lease(store, Term(3)) is None
    store.decide = lambda _: Fault.LOST_REQUEST
    with pytest.raises(StoreUnavailableError):
        read_lease(store, Term(3))


def test_a_lease_stops_beating_while_the_work_it_speaks_for_hangs_and_beats_again_when_that_moves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, clock = a_store(), StillClock()
    pulse = Pulse(clock, silence_ms_max=720_000)
    heartbeat = LeaseHeartbeat(store, QUICK, pulse)
    heartbeat.begin()
    clock.sleep_ms(720_000)
    _until(store, 3)
    clock.sleep_ms(1)
    time.sleep(0.05)  # a beat that was on its way
    hung = read_lease(store, QUICK.term)
    time.sleep(0.1)
    assert read_lease(store, QUICK.term) == hung, "it beats on while the work hangs"
    assert [record.getMessage() for record in caplog.records] == [
        "the work has not moved for 720 s: its lease is left to lapse, so another may take over. term=3"
    ]
    pulse.sign()
    assert hung is not None
    _until(store, hung.counter + 2)
    heartbeat.end("success")
