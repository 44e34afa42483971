"""A pool of Dagster's that limits a stream's step: what a killed worker holds of it, and what the sensor does then."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_ckpt.ids import Epoch
from dagster_ckpt.integration.recovery.crash_loop_check import evaluation_passed, show_pass
from tests.dagster.sensor_world import SensorWorld, a_stream

FAILURE, STARTING, STARTED = dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED


@pytest.fixture
def world(tmp_path: Path) -> SensorWorld:
    """`s` in a pool with one slot. Dagster keeps no slots in memory."""
    world = SensorWorld(dg.DagsterInstance.local_temp(str(tmp_path)), [a_stream("s", pool="spark")])
    slots(world).set_concurrency_slots("spark", 1)
    return world


def slots(world: SensorWorld) -> Any:
    return world.instance.event_log_storage


def holders(world: SensorWorld) -> list[str]:
    return [slot.run_id for slot in slots(world).get_concurrency_info("spark").claimed_slots]


def claim(world: SensorWorld, run: dg.DagsterRun, step: str = "s") -> bool:
    """What Dagster does before it starts a step."""
    return bool(slots(world).claim_concurrency_slot("spark", run.run_id, step).is_claimed)


def a_killed_worker(world: SensorWorld, step: str = "s") -> dg.DagsterRun:
    """It has claimed a slot and freed none."""
    run = world.started("s")
    assert claim(world, run, step)
    world.open("s", run)
    return world.move(run, FAILURE)


def test_a_stream_has_a_pool_only_where_the_user_asks_for_one() -> None:
    assert a_stream("s").op.pool is None
    assert a_stream("s", pool="spark").op.pool == "spark"


def test_the_slot_of_a_killed_worker_is_freed_for_the_run_that_waits_for_it(world: SensorWorld) -> None:
    dead = a_killed_worker(world)
    [request] = world.tick().run_requests or []
    waits = world.launch(request)
    assert holders(world) == [dead.run_id], "Dagster frees nothing by itself"
    world.tick()
    assert holders(world) == []
    assert claim(world, waits)
    world.tick()
    assert holders(world) == [waits.run_id], "a live run keeps its slot"


def test_the_slot_is_freed_also_for_a_run_that_has_started_and_whose_step_waits(world: SensorWorld) -> None:
    a_killed_worker(world)
    [request] = world.tick().run_requests or []
    world.move(world.launch(request), STARTING, STARTED)
    world.tick()
    assert holders(world) == []


def test_a_run_that_waits_for_a_slot_of_a_live_run_is_neither_timed_out_nor_reported(world: SensorWorld) -> None:
    @dg.job
    def other() -> None: ...

    live = world.move(world.instance.create_run_for_job(other), STARTING, STARTED)
    assert claim(world, live, "other_step")
    waits = world.move(world.run("s"), STARTING, STARTED)
    assert world.ticks(400, every_s=10) == []
    assert world.look(waits).status is STARTED
    assert holders(world) == [live.run_id]
    assert world.check("s") is None


@pytest.mark.parametrize("limit", [0, 1])
def test_a_slot_that_nothing_will_free_fails_the_check_which_says_what_to_do(world: SensorWorld, limit: int) -> None:
    @dg.job
    def other() -> None: ...

    dead = world.move(world.instance.create_run_for_job(other), STARTING, STARTED)
    assert claim(world, dead, "other_step")
    world.move(dead, FAILURE)
    if not limit:
        slots(world).free_concurrency_slots_for_run(dead.run_id)
        slots(world).set_concurrency_slots("spark", 0)
    world.run("s")
    world.ticks(50, every_s=10)
    assert world.check("s") is None
    assert world.ticks(40, every_s=10) == []
    check = world.check("s")
    assert check is not None
    assert not check.passed
    assert f"dagster instance concurrency set spark {limit + 1}" in str(check.description)
    assert (dead.run_id in str(check.description)) == bool(limit)


def test_a_run_that_has_waited_in_vain_and_then_works_passes_the_check(world: SensorWorld) -> None:
    slots(world).set_concurrency_slots("spark", 0)
    waits = world.run("s")
    world.ticks(90, every_s=10)
    failed = world.check("s")
    assert failed is not None
    assert not failed.passed
    slots(world).set_concurrency_slots("spark", 1)
    world.move(waits, STARTING, STARTED)
    passed = evaluation_passed(dg.AssetKey("s"), Epoch(2))
    world.evaluate(waits, passed)
    assert world.check("s") == failed, "Dagster shows what the run reports where the run was created"
    for _ in range(2):
        show_pass(world.instance, waits.run_id, passed)
        assert world.check("s") == passed
    assert world.reports("no_crash_loop") == [failed, passed]
