"""The sensor and a Dagster run that found its stream live: that run is never taken for the stream's."""

import dagster as dg
import pytest

from tests.dagster.sensor_world import SensorWorld, a_stream, a_world

SUCCESS, CANCELED = dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.CANCELED


@pytest.fixture
def world() -> SensorWorld:
    return a_world(a_stream("c", mode="continuous"))


def beside(world: SensorWorld) -> dg.DagsterRun:
    """A run, with more steps to do, that has found the stream live."""
    run = world.started("c", job="__ASSET_JOB")
    world.succeed(run, "c")
    return run


def test_it_does_not_replace_the_live_run_as_the_streams(world: SensorWorld) -> None:
    live = world.started("c")
    writer = world.open("c", live)
    world.move(beside(world), SUCCESS)
    for _ in range(30):
        world.beat("c", writer.term)
        assert not world.tick(20).run_requests
    assert {request.run_key for request in world.ticks(60)} == {f"c after {live.run_id}"}, "the live run has died"


def test_a_stream_that_ended_is_started_again_although_other_steps_go_on_beside_it(world: SensorWorld) -> None:
    live = world.started("c")
    writer = world.open("c", live)
    busy = beside(world)
    world.close("c", writer.term, "run_for")
    world.move(live, SUCCESS)
    [request] = world.tick().run_requests or []
    assert request.run_key == f"c after {live.run_id}"
    world.launch(request)
    assert world.is_quiet()
    assert world.look(busy).status is dg.DagsterRunStatus.STARTED, "it is not declared failed"


@pytest.mark.parametrize("last", [SUCCESS, dg.DagsterRunStatus.FAILURE])
def test_a_stream_that_was_canceled_stays_so_although_the_other_run_ended_later(
    world: SensorWorld, last: dg.DagsterRunStatus
) -> None:
    live = world.started("c")
    writer = world.open("c", live)
    later = beside(world)
    world.close("c", writer.term, "canceled")
    world.move(live, dg.DagsterRunStatus.CANCELING, CANCELED)
    world.move(later, last)
    assert world.is_quiet()


def test_a_run_that_waits_behind_it_is_the_streams(world: SensorWorld) -> None:
    live = world.started("c")
    writer = world.open("c", live)
    world.move(beside(world), SUCCESS)
    world.run("c")
    world.close("c", writer.term, "run_for")
    world.move(live, SUCCESS)
    assert world.is_quiet(), "the next run waits in the queue"
