"""The check `is_live`: what the sensor reports of a stream, and when it reports nothing."""

import dagster as dg
import pytest

from dagster_ckpt.errors import CheckpointDeclinedError, InvalidPipelineError
from dagster_ckpt.integration.dagster_names import unfit
from tests.dagster.sensor_world import ELSEWHERE, SensorWorld, a_stream, a_world

FAILURE, SUCCESS, CANCELED = dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.CANCELED
STARTING, STARTED = dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED


def states(world: SensorWorld) -> list[tuple[bool, object]]:
    """What the sensor has reported, in order."""
    return [(each.passed, each.metadata["state"].value) for each in world.reports("is_live")]


def live_for(world: SensorWorld, name: str, term: int, seconds: int) -> None:
    for _ in range(seconds // 5):
        world.beat(name, term)  # type: ignore[arg-type]
        assert not world.tick().run_requests


@pytest.mark.parametrize("name", ["s", "c"])
def test_a_quiet_stream_whose_lease_beats_passes_once_and_says_epoch_term_host_and_run(name: str) -> None:
    world = a_world()
    run = world.started(name)
    writer = world.open(name, run)
    world.commit(writer)
    live_for(world, name, writer.term, 600)
    [report] = world.reports("is_live")
    assert report.passed
    shown = {label: value.value for label, value in report.metadata.items()}
    began_s = world.instance.get_run_record_by_id(run.run_id).start_time  # type: ignore[union-attr]
    assert shown == {
        "state": "live",
        "last_epoch": writer.manifest.epoch,
        "term": writer.term,
        "dagster_run": run.run_id,
        "host": ELSEWHERE.host,
        "since": began_s,
    }


def test_a_dead_stream_fails_at_once_and_passes_with_the_next_run_that_opens_it() -> None:
    world = a_world()
    run = world.started("c")
    writer = world.open("c", run)
    live_for(world, "c", writer.term, 100)
    [request] = world.ticks(30)
    assert states(world) == [(True, "live"), (False, "dead")]
    failed = world.check("c", "is_live")
    assert failed is not None
    assert failed.severity is dg.AssetCheckSeverity.ERROR
    assert failed.description == (
        "Not running, and it should: its lease was not renewed for 30 s; relaunch 1 of 5. It has no epoch yet. "
        "The recovery sensor restarts it."
    )
    again = world.move(world.launch(request), STARTING, STARTED)
    world.step(again, "c", "STEP_START")
    world.ticks(10)
    assert len(states(world)) == 2, "a run on its way is no verdict"
    live_for(world, "c", world.open("c", again).term, 100)
    assert states(world) == [(True, "live"), (False, "dead"), (True, "live")]


def test_a_failed_run_is_dead_although_its_lease_has_not_lapsed_yet() -> None:
    world = a_world()
    run = world.started("c")
    writer = world.open("c", run)
    live_for(world, "c", writer.term, 10)
    world.fail(run, "c", CheckpointDeclinedError("a shard declined"))
    world.tick()
    assert states(world)[-1] == (False, "dead")


def test_a_stream_that_cannot_work_as_written_is_dead_and_no_restart_is_promised() -> None:
    world = a_world()
    run = world.started("s")
    world.open("s", run)
    world.instance.add_run_tags(run.run_id, {"dagster_ckpt/unfit": unfit(run.run_id, "s")})
    world.fail(run, "s", InvalidPipelineError("no such column"))
    world.tick()
    dead = world.check("s", "is_live")
    assert dead is not None
    assert dead.description == (
        "Not running, and it should: its pipeline is invalid: fix it and start the stream again "
        "(InvalidPipelineError: no such column). It has no epoch yet."
    )


def test_an_ended_run_of_an_available_now_stream_passes_and_a_canceled_one_warns() -> None:
    world = a_world()
    for status, closed in ((SUCCESS, "input_done"), (CANCELED, "interrupted: DagsterExecutionInterruptedError")):
        run = world.started("s")
        writer = world.open("s", run)
        live_for(world, "s", writer.term, 100)
        world.close("s", writer.term, closed)
        world.move(run, status)
        world.ticks(600, every_s=10)
    assert states(world) == [(True, "live"), (True, "ended"), (True, "live"), (False, "canceled")]
    shown = world.check("s", "is_live")
    assert shown is not None
    assert shown.severity is dg.AssetCheckSeverity.WARN
    assert "Materialize starts it again" in str(shown.description)


def test_between_a_clean_end_and_the_next_run_a_continuous_stream_is_not_dead() -> None:
    world = a_world()
    run = world.started("c")
    writer = world.open("c", run)
    world.report_live("c", run, writer)
    live_for(world, "c", writer.term, 100)
    world.close("c", writer.term, "run_for")
    world.move(run, SUCCESS)
    [request] = world.tick().run_requests or []
    world.launch(request)
    world.ticks(100)
    assert states(world) == []
    shown = world.check("c", "is_live")
    assert shown is None, "in progress, of the run that waits"


def test_a_stream_that_has_never_run_has_no_verdict() -> None:
    world = a_world(a_stream("s"), a_stream("c", mode="continuous"))
    world.ticks(60)
    assert states(world) == []


def test_what_the_run_reported_itself_is_not_reported_again_also_after_a_restart_of_the_sensor() -> None:
    world = a_world()
    run = world.started("c")
    writer = world.open("c", run)
    world.tick()
    world.report_live("c", run, writer)
    for _ in range(3):
        live_for(world, "c", writer.term, 100)
        world.cursor = None
        world.load(world.streams)
    assert states(world) == []
    shown = world.check("c", "is_live")
    assert shown is not None
    assert shown.passed


def test_a_second_run_that_fails_beside_the_live_one_does_not_leave_the_check_failed() -> None:
    world = a_world()
    run = world.started("c")
    writer = world.open("c", run)
    world.report_live("c", run, writer)
    live_for(world, "c", writer.term, 10)
    second = world.started("c")
    live_for(world, "c", writer.term, 10)
    assert world.check("c", "is_live") is None, "in progress, of the second run"
    world.move(second, FAILURE)
    live_for(world, "c", writer.term, 10)
    assert states(world) == [(True, "live")]
    shown = world.check("c", "is_live")
    assert shown is not None
    assert shown.metadata["dagster_run"].value == run.run_id


def test_a_live_stream_costs_the_database_one_look_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    world = a_world()
    run = world.started("c")
    writer = world.open("c", run)
    world.report_live("c", run, writer)
    looks = []
    read = dg.DagsterInstance.get_latest_asset_check_evaluation_record

    def counted(instance: dg.DagsterInstance, key: dg.AssetCheckKey) -> object:
        looks.append(key.name)
        return read(instance, key)

    monkeypatch.setattr(dg.DagsterInstance, "get_latest_asset_check_evaluation_record", counted)
    live_for(world, "c", writer.term, 1_000)
    assert looks == ["is_live"]
