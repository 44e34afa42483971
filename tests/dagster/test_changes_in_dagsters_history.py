"""What people change in the store, by command line or in Python, appears in Dagster's history of the asset."""

import dagster as dg
import pytest

from dagster_ckpt import StreamHistory
from dagster_ckpt.ids import Epoch
from dagster_ckpt.storage.leases.process_identity import this_process
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
    assert heard(world) == ["Resharded: 8 shards from the next epoch on."]
    assert heard(world, "copy") == ["Forked from epoch 3 of s."]
    assert newest(world, "copy").metadata["forked_from"].value == "s@3"
    world.tick(FULL_LOOK_S)
    assert heard(world)[1:] == ["Epoch 3 is forked to copy, and kept for it."]
    assert heard(world, "copy") == ["Forked from epoch 3 of s."]


def test_pins_are_reported_within_five_minutes_and_survive_a_restart_of_the_code_server() -> None:
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
