"""The beat of a run between its start and its opening: written, ended, and never in the way."""

from contextlib import suppress
from datetime import UTC, datetime

from dagster_ckpt.cli.output.writer_text import in_words
from dagster_ckpt.errors import IncompatibleStateError
from dagster_ckpt.history.info.writer_info import WriterInfo, WriterStatus, WriterWatch
from dagster_ckpt.ids import EMPTY, Term
from dagster_ckpt.integration.recovery.start_heartbeat import beating_until_open
from dagster_ckpt.protocol.lease import Lease
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.leases.heartbeat import NOT_OPEN, LeaseHeartbeat, Pulse, read_lease
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.writer.opening import open_manifest
from tests.worlds.clock import StillClock
from tests.worlds.faulty_store import Fault, FaultyStore
from tests.worlds.streams import a_holder, a_store, an_opening

CLOCK = StillClock()


def a_stream() -> ObjectStore:
    store = a_store()
    open_manifest(ManifestChain(store, CLOCK), an_opening())
    return store


def test_a_run_beats_from_its_start_until_it_has_opened() -> None:
    store = a_stream()
    with beating_until_open(store, a_holder("run-2"), 30_000, CLOCK) as beat:
        lease = read_lease(store, NOT_OPEN)
        assert lease is not None
        assert (lease.term, lease.holder, lease.closed) == (Term(0), a_holder("run-2"), None)
        beat.end()
        lease = read_lease(store, NOT_OPEN)
        assert lease is not None
        assert lease.closed == "opened"


def test_a_run_that_fails_before_its_opening_ends_its_beat() -> None:
    store = a_stream()
    try:
        with beating_until_open(store, a_holder("run-2"), 30_000, CLOCK):
            raise ValueError("no such table")
    except ValueError:
        pass
    lease = read_lease(store, NOT_OPEN)
    assert lease is not None
    assert lease.closed == "not opened"


def test_the_run_that_starts_last_has_the_beat() -> None:
    store = a_stream()
    with beating_until_open(store, a_holder("run-2"), 30_000, CLOCK):
        with beating_until_open(store, a_holder("run-3"), 30_000, CLOCK):
            lease = read_lease(store, NOT_OPEN)
        assert lease is not None
        assert lease.holder.dagster_run_id == "run-3"


def test_a_stream_that_is_not_there_yet_gets_no_beat() -> None:
    store = a_store()
    with beating_until_open(store, a_holder("run-1"), 30_000, CLOCK) as beat:
        beat.end()
    assert list(store.list("lease")) == []


def test_a_store_that_refuses_the_beat_does_not_stop_the_run() -> None:
    for verb in ("put", "list"):
        store = FaultyStore(a_stream(), lambda call, verb=verb: Fault.LOST_REQUEST if call.verb == verb else Fault.NONE)  # type: ignore[misc]
        with beating_until_open(store, a_holder("run-2"), 30_000, CLOCK) as beat:
            beat.end()
        assert read_lease(store, NOT_OPEN) is None


def test_the_beat_is_no_lease_of_the_newest_term() -> None:
    store = a_stream()
    with beating_until_open(store, a_holder("run-2"), 30_000, CLOCK):
        newest = ManifestChain(store, CLOCK).newest()
    assert newest is not None
    assert newest.term == 1
    assert read_lease(store, newest.term) is None


def look(store: ObjectStore) -> WriterInfo:
    chain = ManifestChain(store, CLOCK)
    newest = chain.newest()
    assert newest is not None
    return WriterWatch(chain, lambda: newest).look()


def test_after_a_refusal_a_look_says_why_until_another_run_starts() -> None:
    store = a_stream()
    lease = Lease(Term(1), a_holder("run-1"), 30_000, EMPTY)
    LeaseHeartbeat(store, lease, CLOCK, Pulse(CLOCK, 1_000)).end("drained")
    assert (look(store).status(datetime.now(UTC)), look(store).closed) == (WriterStatus.ENDED, "drained")
    with (
        suppress(IncompatibleStateError),
        beating_until_open(store, a_holder("run-2"), 30_000, CLOCK),
    ):
        raise IncompatibleStateError("the pipeline changed. dagster-ckpt rebuild s")
    found = look(store)
    assert (found.status(datetime.now(UTC)), found.dagster_run_id) == (WriterStatus.REFUSED, "run-2")
    assert found.closed == "refused: the pipeline changed. dagster-ckpt rebuild s"
    assert "ended: refused: the pipeline changed" in in_words(found)
    with beating_until_open(store, a_holder("run-3"), 30_000, CLOCK) as beat:
        beat.end()
    assert look(store).closed == "drained"
