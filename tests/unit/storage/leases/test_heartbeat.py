import threading
import time
from dataclasses import replace
from itertools import count

import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import StoreUnavailableError
from dagster_ckpt.ids import Epoch, Term
from dagster_ckpt.protocol.lease import Lease
from dagster_ckpt.protocol.object_names import lease_name
from dagster_ckpt.storage.leases.heartbeat import LeaseHeartbeat, Pulse, read_lease
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
    heartbeat = LeaseHeartbeat(store, QUICK, SystemClock())
    heartbeat.begin()
    assert read_lease(store, QUICK.term) is not None
    _until(store, 4)
    heartbeat.reach(Epoch(7))
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
    heartbeat = LeaseHeartbeat(store, QUICK, SystemClock())
    heartbeat.begin()
    _until(store.inner, 5)
    store.decide = lambda _: Fault.LOST_REQUEST
    heartbeat.end("success")


def test_an_outage_is_warned_of_once_a_period(caplog: pytest.LogCaptureFixture) -> None:
    store, clock = FaultyStore(a_store()), StillClock()
    store.decide = lambda _: Fault.LOST_REQUEST
    heartbeat = LeaseHeartbeat(store, replace(QUICK, timeout_ms=30_000), clock)
    for _ in range(25):
        heartbeat.beat()
        clock.sleep_ms(1_000)
    assert len(caplog.records) == 3

    store.decide = lambda _: Fault.NONE
    heartbeat.beat()
    store.decide = lambda _: Fault.LOST_REQUEST
    heartbeat.beat()
    assert len(caplog.records) == 4, "another outage is another warning"


def test_a_lease_that_is_stopped_lapses_as_if_the_writer_had_died() -> None:
    store = a_store()
    heartbeat = LeaseHeartbeat(store, QUICK, SystemClock())
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
    heartbeat = LeaseHeartbeat(store, QUICK, SystemClock(), pulse)
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


SLOW = replace(QUICK, timeout_ms=3_000)
"""A beat each second."""


@pytest.mark.parametrize(
    ("silence_s", "fault"),
    [(0.9, Fault.NONE), (0, Fault.LOST_REQUEST), (0.9, Fault.LOST_REQUEST)],
    ids=["a slow reply", "a refusal", "silence"],
)
def test_a_request_that_takes_long_or_fails_does_not_delay_the_next_beat(silence_s: float, fault: Fault) -> None:
    store, ends, begins = FaultyStore(a_store()), list[float](), list[float]()
    first = threading.Event()

    def slow(call: Call) -> Fault:
        begins.append(time.monotonic())
        if first.is_set():
            return Fault.NONE
        first.set()
        time.sleep(silence_s)
        ends.append(time.monotonic())
        return fault

    store.decide = slow
    heartbeat = LeaseHeartbeat(store, SLOW, SystemClock())
    heartbeat.begin()
    _until(store.inner, SLOW.counter + 1)
    heartbeat.stop()
    assert begins[1] - ends[0] < 0.6


def test_a_hung_writer_is_looked_at_once_a_period() -> None:
    looks = count()

    class Hangs(Pulse):
        @property
        def beats(self) -> bool:
            next(looks)
            return False

    pulse = Hangs(StillClock(), silence_ms_max=1)
    heartbeat = LeaseHeartbeat(a_store(), replace(QUICK, timeout_ms=300), SystemClock(), pulse)
    heartbeat.begin()
    time.sleep(0.5)
    heartbeat.stop()
    assert 0 < next(looks) <= 5
