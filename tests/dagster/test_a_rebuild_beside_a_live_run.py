"""The sensor and a Dagster run that rebuilds a stream beside its live run."""

from typing import Any

import dagster as dg
import pytest

from dagster_ckpt.ids import EMPTY
from dagster_ckpt.integration.dagster_names import REBUILD_TAG
from dagster_ckpt.integration.recovery.dagster_runs import instance_id
from dagster_ckpt.protocol.lease import Lease, LeaseHolder
from dagster_ckpt.storage.leases.heartbeat import NOT_OPEN
from dagster_ckpt.storage.writer.stream_writer import StreamWriter
from tests.dagster.sensor_world import ELSEWHERE, WAITS, SensorWorld, a_stream, a_world

REBUILD: dict[str, Any] = {"ops": {"c": {"config": {"rebuild": True, "rebuild_pace": 0.5}}}}


@pytest.fixture
def world() -> SensorWorld:
    return a_world(a_stream("c", mode="continuous"))


class Rebuilding:
    """A live run, and one that rebuilds its stream. Both beat until they are told not to."""

    def __init__(self, world: SensorWorld) -> None:
        self.world = world
        self.live = world.started("c")
        self.writer: StreamWriter | None = world.open("c", self.live)
        world.commit(self.writer)
        self.run = world.started("c", run_config=REBUILD)
        holder = LeaseHolder(self.run.run_id, instance_id(world.instance), ELSEWHERE)
        self.beat: Lease | None = Lease(NOT_OPEN, holder, 30_000, EMPTY)

    def ticks(self, count: int) -> list[dg.RunRequest]:
        requests: list[dg.RunRequest] = []
        for _ in range(count):
            if self.writer is not None:
                self.world.beat("c", self.writer.term)
            if self.beat is not None:
                self.beat = self.beat.beaten(EMPTY)
                self.world._write_lease("c", self.beat)
            requests += self.world.tick().run_requests or []
        return requests


def test_both_go_on_beside_each_other(world: SensorWorld) -> None:
    assert not Rebuilding(world).ticks(400), "longer than any run may take to start"


def test_the_one_that_rebuilds_is_started_again_where_it_died_and_goes_on_with_the_same_request(
    world: SensorWorld,
) -> None:
    rebuilding = Rebuilding(world)
    rebuilding.ticks(3)
    rebuilding.beat = None
    [request] = rebuilding.ticks(20)
    assert request.run_key == f"c after {rebuilding.run.run_id}"
    assert request.run_config == REBUILD
    assert request.tags[REBUILD_TAG] == rebuilding.run.run_id
    assert world.look(rebuilding.run).status is dg.DagsterRunStatus.FAILURE
    assert world.look(rebuilding.live).status is dg.DagsterRunStatus.STARTED, "the live one is left alone"
    again = world.launch(request)
    assert not rebuilding.ticks(3)
    assert again.tags[REBUILD_TAG] == rebuilding.run.run_id


def test_the_stream_is_left_to_it_once_the_live_run_was_asked_to_end(world: SensorWorld) -> None:
    rebuilding = Rebuilding(world)
    rebuilding.ticks(3)
    assert rebuilding.writer is not None
    world.close("c", rebuilding.writer.term, "drain")
    world.move(rebuilding.live, dg.DagsterRunStatus.SUCCESS)
    rebuilding.writer = None
    assert not rebuilding.ticks(20)
    rebuilding.beat = None
    request = rebuilding.ticks(20)[0]
    assert (request.run_config, request.tags[REBUILD_TAG]) == (REBUILD, rebuilding.run.run_id)


def test_a_younger_live_run_that_was_asked_to_end_is_not_followed_by_another(world: SensorWorld) -> None:
    rebuilding = Rebuilding(world)
    rebuilding.ticks(3)
    younger = world.started("c")
    writer = rebuilding.writer = world.open("c", younger)
    world.move(rebuilding.live, dg.DagsterRunStatus.FAILURE)
    assert not rebuilding.ticks(3)
    rebuilding.writer = None
    world.close("c", writer.term, "drained, as was asked for on elsewhere")
    world.move(younger, dg.DagsterRunStatus.SUCCESS)
    assert not rebuilding.ticks(30)
    world.move(rebuilding.run, dg.DagsterRunStatus.FAILURE)
    rebuilding.beat = None
    assert rebuilding.ticks(3)[0].run_key == f"c after {younger.run_id}", "nothing takes over any more"


def test_the_run_that_has_taken_over_is_relaunched_as_an_ordinary_one(world: SensorWorld) -> None:
    rebuilding = Rebuilding(world)
    # What has taken over notes who asked for it, as a rollback does.
    world.open("c", rebuilding.run, from_epoch=EMPTY)
    request = next(each for each in world.ticks(60) if each.run_key == f"c after {rebuilding.run.run_id}")
    assert request.run_config == {}
    assert REBUILD_TAG not in request.tags


def test_a_run_queued_to_rebuild_waits_for_its_turn(world: SensorWorld) -> None:
    live = world.started("c")
    writer = world.open("c", live)
    waiting = world.run("c", run_config=REBUILD)
    for _ in range(100):
        world.beat("c", writer.term)
        assert not world.tick().run_requests
    assert world.look(waiting).status is WAITS
