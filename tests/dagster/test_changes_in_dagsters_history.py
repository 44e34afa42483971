"""What people change in the store, by command line or in Python, appears in Dagster's history of the asset."""

import dagster as dg
import pytest

from dagster_ckpt import StreamHistory
from dagster_ckpt.errors import StoreUnavailableError
from dagster_ckpt.ids import Epoch
from dagster_ckpt.protocol.object_names import PINS_CHANGED
from dagster_ckpt.storage.leases.process_identity import this_process
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from tests.dagster.sensor_world import SensorWorld, a_stream, a_world

SUCCESS = dg.DagsterRunStatus.SUCCESS
FULL_LOOK_S = 310


def history(world: SensorWorld, name: str = "s") -> StreamHistory:
    return StreamHistory(world.address.open(), name, world.clock)


def an_ended_stream(world: SensorWorld, epochs: int = 3) -> dg.DagsterRun:
    """The sensor has seen it; its epochs are 2, 3, ..."""
    run = world.started("s")
    writer = world.open("s", run)
    for _ in range(epochs):
        world.commit(writer)
    world.close("s", writer.term)
    world.move(run, SUCCESS)
    world.tick()
    return run


def heard(world: SensorWorld, name: str = "s") -> list[str | None]:
    """What the asset's history says, oldest first."""
    records = world.instance.fetch_observations(dg.AssetKey(name), limit=100).records
    return [each.asset_observation.description for each in reversed(records) if each.asset_observation]


def newest(world: SensorWorld, name: str = "s") -> dg.AssetObservation:
    [record] = world.instance.fetch_observations(dg.AssetKey(name), limit=1).records
    assert record.asset_observation is not None
    return record.asset_observation


def test_a_rollback_by_hand_is_in_the_history_at_the_next_tick_and_once() -> None:
    world = a_world(a_stream("s"))
    an_ended_stream(world)
    assert heard(world) == []
    history(world).rollback(2)
    made_at = history(world).manifest().time_ms / 1000
    world.tick()
    assert heard(world) == ["Rolled back to epoch 2; epochs 3 to 4 are abandoned."]
    figures = {label: value.value for label, value in newest(world).metadata.items()}
    me = this_process()
    assert figures == {
        "change": "rollback",
        "changed_at": made_at,
        "epoch": 2,
        "version": 5,
        "host": me.host,
        "process": me.pid,
        "abandoned_epochs": "3 to 4",
    }
    world.ticks(700)
    world.load(world.streams)  # the code server starts again
    world.ticks(700)
    assert len(heard(world)) == 1


def test_a_rollback_that_the_next_run_has_already_built_on_is_reported_too() -> None:
    world = a_world(a_stream("s"))
    an_ended_stream(world)
    history(world).rollback(3)
    writer = world.open("s", world.started("s"))
    world.commit(writer)
    world.load(world.streams)
    world.tick()
    assert heard(world) == ["Rolled back to epoch 3; epoch 4 is abandoned."]


def test_a_rollback_by_run_config_leads_to_its_dagster_run() -> None:
    world = a_world(a_stream("s"))
    an_ended_stream(world)
    run = world.started("s")
    world.open("s", run, from_epoch=Epoch(2))
    world.tick()
    assert newest(world).metadata["dagster_run"] == dg.MetadataValue.dagster_run(run.run_id)


def test_a_reshard_and_a_fork_are_reported() -> None:
    world = a_world(a_stream("s"), a_stream("copy"))
    an_ended_stream(world)
    history(world).reshard(8)
    history(world).fork("copy", epoch=3)
    world.tick()
    assert heard(world) == [
        "Resharded: 8 shards from the next epoch on.",
        "Epoch 3 is forked to copy, and kept for it.",
    ]
    assert heard(world, "copy") == ["Forked from epoch 3 of s."]
    assert newest(world, "copy").metadata["forked_from"].value == "s@3"
    world.tick(FULL_LOOK_S)
    assert (len(heard(world)), len(heard(world, "copy"))) == (2, 1)


def test_a_pin_of_a_stream_that_has_ended_is_reported_at_the_next_tick_and_once() -> None:
    world = a_world(a_stream("s"))
    an_ended_stream(world)
    world.clock.sleep_ms(1_000)
    history(world).pin(3, "before-migration")
    world.tick()
    history(world).unpin("before-migration")
    world.tick()
    world.ticks(FULL_LOOK_S * 2)
    world.load(world.streams)  # the code server starts again
    world.ticks(FULL_LOOK_S)
    assert heard(world) == [
        "Epoch 3 is pinned as 'before-migration'.",
        "The pin 'before-migration' of epoch 3 is removed.",
    ]


def test_a_pin_of_a_live_stream_is_reported_with_the_next_beat_of_its_lease() -> None:
    world = a_world(a_stream("s"))
    writer = world.open("s", world.started("s"))
    world.commit(writer)
    world.tick()
    world.beat("s", writer.term)
    world.tick()
    world.clock.sleep_ms(1_000)
    history(world).pin(2, "before-migration")
    for beats in (True, False, True):  # every ten seconds; the sensor ticks every five
        assert heard(world) == []
        if beats:
            world.beat("s", writer.term)
        world.tick()
        if heard(world):
            break
    assert heard(world) == ["Epoch 2 is pinned as 'before-migration'."]


def test_a_pin_whose_mark_could_not_be_written_is_made_and_reported_within_five_minutes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = a_world(a_stream("s"))
    an_ended_stream(world)
    world.clock.sleep_ms(1_000)
    put = MemoryObjectStore.put

    def refused(store: MemoryObjectStore, name: str, data: bytes) -> None:
        if name.endswith(PINS_CHANGED):
            raise StoreUnavailableError("the disk is full")
        put(store, name, data)

    with monkeypatch.context() as full:
        full.setattr(MemoryObjectStore, "put", refused)
        history(world).pin(3, "before-migration")
    assert "the disk is full" in caplog.text
    world.tick()
    assert heard(world) == []
    world.tick(FULL_LOOK_S)
    assert heard(world) == ["Epoch 3 is pinned as 'before-migration'."]


def test_pins_survive_a_restart_of_the_code_server() -> None:
    world = a_world(a_stream("s"))
    an_ended_stream(world)
    world.clock.sleep_ms(1_000)
    history(world).pin(3, "before-migration")
    world.tick(FULL_LOOK_S)
    assert heard(world) == ["Epoch 3 is pinned as 'before-migration'."]
    world.load(world.streams)
    world.clock.sleep_ms(1_000)
    history(world).pin(2, "older")  # while no sensor watches
    world.ticks(FULL_LOOK_S)
    assert heard(world)[1:] == ["Epoch 2 is pinned as 'older'."]
    history(world).unpin("older")
    world.ticks(FULL_LOOK_S + 5)
    assert heard(world)[2:] == ["The pin 'older' of epoch 2 is removed."]


def test_pins_from_before_the_sensor_first_saw_the_stream_are_no_news() -> None:
    world = a_world(a_stream("s"))
    run = world.started("s")
    writer = world.open("s", run)
    world.commit(writer)
    history(world).pin(2, "of long ago")
    world.ticks(FULL_LOOK_S * 2)
    assert heard(world) == []


def test_a_dagster_that_stores_no_event_does_not_delay_recovery(monkeypatch: pytest.MonkeyPatch) -> None:
    world = a_world(a_stream("c", mode="continuous"))
    run = world.started("c")
    writer = world.open("c", run)
    world.commit(writer)
    world.close("c", writer.term)
    world.move(run, SUCCESS)
    world.tick()
    history(world, "c").rollback(0)

    def locked(event: object) -> None:
        raise OSError("database is locked")

    with monkeypatch.context() as broken:
        broken.setattr(world.instance, "report_runless_asset_event", locked)
        assert len(world.tick().run_requests or []) == 1
    world.tick()
    assert heard(world, "c") == ["Rolled back to epoch 0; epochs 1 to 2 are abandoned."]
