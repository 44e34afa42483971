"""What the sensor asks of the store: nearly nothing at rest, and all of it before it acts."""

import threading
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from dagster_ckpt.ids import Epoch, Term
from dagster_ckpt.protocol.lease import Lease, LeaseHolder, encode_lease
from dagster_ckpt.protocol.object_names import lease_name
from dagster_ckpt.storage.leases.process_identity import this_process
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from tests.dagster.sensor_world import ELSEWHERE, SensorWorld, a_stream, a_world

FAILURE, SUCCESS, STARTED = dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.STARTED
VERBS = ("get", "exists", "list", "put", "put_if_absent", "delete", "get_range", "size", "modified_ms", "folders")


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The verbs that the store is asked, in order."""
    asked: list[str] = []

    def counting(verb: str) -> Any:
        ask = getattr(MemoryObjectStore, verb)

        def counted(*args: Any) -> Any:
            asked.append(verb)
            return ask(*args)

        return counted

    for verb in VERBS:
        monkeypatch.setattr(MemoryObjectStore, verb, counting(verb))
    return asked


def a_stream_with_epochs(world: SensorWorld, name: str = "s", epochs: int = 3) -> tuple[dg.DagsterRun, Term]:
    run = world.started(name)
    writer = world.open(name, run)
    for _ in range(epochs):
        world.commit(writer)
    return run, writer.term


def test_a_look_at_a_stream_live_or_ended_is_two_requests(requests: list[str]) -> None:
    world = a_world(a_stream("s"))
    run, term = a_stream_with_epochs(world)
    world.tick()
    requests.clear()
    world.tick()
    assert requests == ["get", "get"], "the lease, and the next manifest"
    for _ in range(4):
        world.beat("s", term)
        requests.clear()
        world.tick()
        assert requests == ["get", "get"], "the lease, and in turn the mark of the pins and the next manifest"
    world.close("s", term)
    world.move(run, SUCCESS)
    world.tick()
    requests.clear()
    world.tick()
    assert requests == ["get", "get"], "the next manifest, and the mark of the pins"


def test_a_look_lists_nothing_while_epochs_come(requests: list[str]) -> None:
    world = a_world(a_stream("s"))
    run = world.started("s")
    writer = world.open("s", run)
    world.tick()
    world.commit(writer)
    world.commit(writer)
    requests.clear()
    world.tick()
    assert requests == ["get"] * 4, "two new manifests, the one that would come next, and the lease"


def test_a_writer_that_goes_on_with_its_lease_hides_its_successor_from_one_look_at_most() -> None:
    world = a_world(a_stream("s"))
    _, term = a_stream_with_epochs(world)
    world.tick()
    later = world.open("s", world.started("s"), from_epoch=Epoch(2))
    for _ in range(2):
        world.beat("s", term)
        world.tick()
    assert later.term == 5
    [event] = world.instance.fetch_observations(dg.AssetKey("s"), limit=10).records
    assert event.asset_observation is not None
    assert str(event.asset_observation.description).startswith("Rolled back to epoch 2")


def test_what_is_remembered_is_not_trusted_for_ever_nor_before_the_sensor_acts(requests: list[str]) -> None:
    world = a_world(a_stream("s"))
    a_stream_with_epochs(world)
    world.ticks(25)
    requests.clear()
    world.beat("s", Term(1))
    world.tick(310)
    assert "list" in requests, "after five minutes"
    world.ticks(25)
    requests.clear()
    [_] = world.tick().run_requests or []
    assert "list" in requests, "before a relaunch"


def test_a_writer_that_the_sensor_did_not_see_come_is_not_declared_dead() -> None:
    world = a_world(a_stream("s"))
    run, _ = a_stream_with_epochs(world)
    world.tick()
    # Everything is removed and restored by hand while the sensor remembers: the next manifest is not there.
    folder = world.folder("s")
    for name in [*folder.list("manifest"), *folder.list("lease")]:
        folder.delete(name)
    assert world.ticks(120) == []
    assert world.look(run).status is STARTED


def test_dagster_is_asked_once_a_tick_for_the_last_runs_of_all_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    world = a_world(*(a_stream(name) for name in ("a", "b", "c")))
    for name in ("a", "b", "c"):
        run, term = a_stream_with_epochs(world, name)
        world.close(name, term)
        world.move(run, SUCCESS)
    world.tick()
    asked: list[str] = []

    def counted(verb: str) -> Any:
        ask = getattr(dg.DagsterInstance, verb)

        def count(instance: dg.DagsterInstance, given: Any) -> Any:
            asked.append(verb)
            return ask(instance, given)

        return count

    for verb in ("get_asset_records", "get_run_record_by_id"):
        monkeypatch.setattr(dg.DagsterInstance, verb, counted(verb))
    world.tick()
    assert sorted(asked) == ["get_asset_records", *["get_run_record_by_id"] * 3], "of each the run that its lease names"


def test_streams_are_looked_at_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    world = a_world(*(a_stream(name) for name in ("a", "b", "c")))
    together = threading.Barrier(3, timeout=30)
    list_ = MemoryObjectStore.list
    waited: set[str] = set()

    def slow(store: MemoryObjectStore, prefix: str, after: str = "") -> Iterator[str]:
        if threading.current_thread().name not in waited:
            waited.add(threading.current_thread().name)
            together.wait()
        return list_(store, prefix, after)

    monkeypatch.setattr(MemoryObjectStore, "list", slow)
    result = world.tick()
    assert result.skip_reason is not None
    assert result.skip_reason.skip_message == "a, b, c: it has never run"


def beats(world: SensorWorld, run: dg.DagsterRun, counter: int, process: Any = ELSEWHERE) -> None:
    holder = LeaseHolder(run.run_id, "instance", process)
    lease = Lease(Term(0), holder, 30_000, 0, counter)  # type: ignore[arg-type]
    world.folder("s").put(lease_name(Term(0)), encode_lease(lease))


def test_a_run_that_is_killed_before_it_opens_is_recovered_as_soon_as_its_beat_lapses() -> None:
    world = a_world()
    first, term = a_stream_with_epochs(world)
    world.close("s", term)
    world.move(first, SUCCESS)
    run = world.started("s")
    for counter in range(1, 40):
        beats(world, run, counter)
        assert world.tick(10).run_requests == []
    assert world.ticks(25) == [], "six and a half minutes after its start, and alive"
    assert len(world.ticks(5)) == 1
    assert world.look(run).status is FAILURE


def test_a_run_whose_process_is_known_to_be_gone_before_it_opened_is_recovered_at_once() -> None:
    world = a_world()
    run = world.started("s")
    me = this_process()
    beats(world, run, 1, type(me)(me.host, me.boot, me.namespace, me.pid, me.started_ticks + 1))
    assert len(world.tick().run_requests or []) == 1


def test_the_beat_of_another_run_proves_nothing_about_this_one() -> None:
    world = a_world()
    zombie, run = world.started("s"), world.started("s")
    beats(world, run, 1)
    world.ticks(20)
    beats(world, zombie, 7)
    assert world.ticks(100) == []
    assert world.look(run).status is STARTED
    assert len(world.ticks(65)) == 1, "three minutes after its start, as without a beat"


def test_an_epoch_just_before_a_failure_makes_it_the_first_in_a_row_at_once() -> None:
    world = a_world(a_stream("s"))
    run, _ = a_stream_with_epochs(world)
    world.move(run, FAILURE)
    [request] = world.tick().run_requests or []
    again = world.launch(request)
    world.move(again, STARTED)
    writer = world.open("s", again)
    world.tick()
    world.commit(writer)
    world.beat("s", writer.term)
    world.move(again, FAILURE)
    [request] = world.tick().run_requests or []
    assert request.tags["dagster_ckpt/reason"] == "its Dagster run failed; relaunch 1 of 5"
