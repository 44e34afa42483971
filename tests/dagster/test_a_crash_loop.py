"""A stream whose runs fail over and over: when the sensor stops, what it says then, and what starts it again."""

import logging
from typing import Any

import dagster as dg
import pytest

from dagster_ckpt import FencedError, Recovery, StoreUnavailableError
from dagster_ckpt.errors import CheckpointDeclinedError
from tests.dagster.sensor_world import SensorWorld, a_stream, a_world

FAILURE = dg.DagsterRunStatus.FAILURE
POISON = (
    "an epoch could not be completed. reason=ValueError: not a carrier, epoch={}, shards=[{}], hosts=['h (task {})']"
)


def poison(number: int) -> CheckpointDeclinedError:
    return CheckpointDeclinedError(POISON.format(number, number, number * 7))


def asked(world: SensorWorld) -> dg.RunRequest:
    """The run that the sensor asks for when the back-off is over."""
    for _ in range(30):
        for request in world.tick().run_requests or []:
            return request
    raise AssertionError("the sensor asks for no run")


def replaced(world: SensorWorld) -> dg.DagsterRun:
    """That run, started."""
    return world.move(world.launch(asked(world)), dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED)


def the_loop(world: SensorWorld, name: str = "s", runs: int = 3, **fields: Any) -> dg.DagsterRun:
    """That many runs in a row fail with the same error in the epoch after the stream's newest."""
    run = world.started(name, **fields)
    for number in range(1, runs + 1):
        world.open(name, run)
        world.fail(run, name, poison(number))
        if number < runs:
            run = replaced(world)
    return run


def test_the_third_same_error_at_one_epoch_stops_relaunches_and_fails_the_check() -> None:
    world = a_world()
    writer = world.open("s", world.started("s"))
    world.commit(writer)
    run = the_loop(world)
    assert world.check("s") is None
    result = world.tick()
    assert not result.run_requests
    assert "3 runs in a row failed with the same error, without a new epoch: manual action needed" in str(
        result.skip_reason
    )
    check = world.check("s")
    assert check is not None
    assert not check.passed
    assert check.metadata["last_epoch"].value == writer.manifest.epoch
    assert check.metadata["failures"].value == 3
    assert check.metadata["error"].value == f"CheckpointDeclinedError: {poison(3)}"
    assert check.metadata["dagster_run"].value == run.run_id
    for what_to_do in ("materialize the asset by hand", "code_version", "from_epoch"):
        assert what_to_do in str(check.description)
    assert world.is_quiet()
    # The other check does not promise what the sensor no longer does.
    dead = world.check("s", "is_live")
    assert dead is not None
    assert not dead.passed
    assert f"Everything up to epoch {writer.manifest.epoch} is committed." in str(dead.description)
    assert str(dead.description).endswith(
        "The sensor no longer restarts it: the check no_crash_loop says why and what to do."
    )


def test_an_error_with_angle_brackets_survives_dagsters_markdown() -> None:
    world = a_world()
    run = world.started("s")
    for number in (1, 2, 3):
        world.fail(run, "s", ValueError("no carrier in <lambda>"))
        if number < 3:
            run = replaced(world)
    world.tick()
    check = world.check("s")
    assert check is not None
    assert r"no carrier in \<lambda>" in str(check.description)
    assert check.metadata["error"].value == "ValueError: no carrier in <lambda>"


def evaluations(world: SensorWorld) -> int:
    """How many times the sensor has reported the check: its events belong to no run."""
    return len(world.reports("no_crash_loop"))


def test_the_check_fails_once_for_each_run_even_if_the_cursor_is_lost() -> None:
    world = a_world()
    the_loop(world)
    world.ticks(60)
    world.cursor = None
    world.ticks(60)
    assert evaluations(world) == 1
    the_loop(world)
    world.ticks(60)
    assert evaluations(world) == 2


def test_the_count_survives_a_lost_cursor_and_a_restart_of_everything_but_dagsters_database() -> None:
    world = a_world()
    run = world.started("s")
    for number in (1, 2, 3):
        world.fail(run, "s", poison(number))
        world.cursor = None
        world.load(world.streams)
        if number < 3:
            run = replaced(world)
    assert world.is_quiet()
    check = world.check("s")
    assert check is not None
    assert check.metadata["failures"].value == 3


def test_a_committed_epoch_other_errors_and_deaths_without_an_error_are_no_loop() -> None:
    world = a_world()
    run = world.started("s")
    for number in range(1, 8):
        world.commit(world.open("s", run))
        world.fail(run, "s", poison(number))
        run = replaced(world)
        assert run.tags["dagster_ckpt/same_error"].startswith("1 CheckpointDeclinedError:")
    world = a_world(a_stream("s", recovery=Recovery(max_attempts=7)))
    run = world.started("s")
    for error in (KeyError("delay"), ValueError("delay"), KeyError("delay"), ValueError("delay")):
        world.fail(run, "s", error)
        run = replaced(world)
    world = a_world()
    run = world.started("s")
    silent: list[BaseException | None]
    silent = [None, FencedError("mine=1"), StoreUnavailableError("no answer"), dg.DagsterExecutionInterruptedError()]
    for word in silent:
        if word is None:
            world.move(run, FAILURE)
        else:
            world.fail(run, "s", word)
        run = replaced(world)
        assert "dagster_ckpt/same_error" not in run.tags


def test_workers_that_die_without_an_error_use_up_the_attempts_and_then_the_check_fails_too() -> None:
    world = a_world(a_stream("s", recovery=Recovery(max_attempts=2, backoff="1s")))
    run = world.started("s")
    for _ in range(2):
        world.move(run, FAILURE)
        run = replaced(world)
    world.move(run, FAILURE)
    assert world.ticks(30) == []
    check = world.check("s")
    assert check is not None
    assert (check.metadata["failures"].value, check.metadata["error"].value) == (3, "died without an error")


def test_an_error_before_the_step_began_counts_as_well() -> None:
    world = a_world()
    run = world.started("s")
    for number in (1, 2, 3):
        failure = dg.DagsterEvent(
            event_type_value="PIPELINE_FAILURE", job_name=run.job_name, event_specific_data=_no_resource(), message=""
        )
        world.instance.report_dagster_event(failure, run_id=run.run_id)
        if number < 3:
            run = replaced(world)
    assert world.is_quiet()
    check = world.check("s")
    assert check is not None
    assert check.metadata["error"].value == "ValueError: no such warehouse"


def _no_resource() -> Any:
    @dg.resource
    def broken() -> None:
        raise ValueError("no such warehouse")

    @dg.op(required_resource_keys={"broken"})
    def needs() -> None: ...

    @dg.job(resource_defs={"broken": broken})
    def one_step() -> None:
        needs()

    result = one_step.execute_in_process(raise_on_error=False)
    [failure] = [event for event in result.all_events if event.event_type is dg.DagsterEventType.RUN_FAILURE]
    return failure.event_specific_data


def test_materializing_by_hand_ends_it_and_resets_the_count() -> None:
    world = a_world()
    the_loop(world)
    world.tick()
    by_hand = world.started("s")
    assert world.ticks(30) == []
    world.fail(by_hand, "s", poison(9))
    request = asked(world)
    assert request.tags["dagster_ckpt/attempt"] == "1"
    assert request.tags["dagster_ckpt/same_error"].startswith("1 ")


def test_a_person_who_re_executes_the_failed_run_ends_it_although_dagster_copies_its_tags() -> None:
    world = a_world()
    last = the_loop(world)
    world.tick()
    again = world.started("s", tags=world.look(last).tags, parent_run_id=last.run_id, root_run_id=last.run_id)
    world.fail(again, "s", poison(9))
    request = asked(world)
    assert request.tags["dagster_ckpt/attempt"] == "1"
    # Dagster's own run retries are no person: they go on counting.
    world = a_world()
    last = the_loop(world, runs=2)
    tags = {**world.look(last).tags, "dagster/retry_number": "1"}
    retry = world.started("s", tags=tags, parent_run_id=last.run_id, root_run_id=last.run_id)
    world.fail(retry, "s", poison(9))
    request = asked(world)
    assert request.tags["dagster_ckpt/attempt"] == "2"


def test_new_code_ends_it_and_a_reload_of_the_same_code_does_not() -> None:
    world = a_world(a_stream("s", code_version="1"))
    the_loop(world)
    assert world.is_quiet()
    world.load([a_stream("s", code_version="1")])
    assert world.is_quiet()
    world.load([a_stream("s", code_version="2")])
    [request] = world.tick().run_requests or []
    assert request.tags["dagster_ckpt/attempt"] == "1"
    assert request.tags["dagster_ckpt/launched_for"] == "2"
    assert "dagster_ckpt/same_error" not in request.tags
    world.launch(request)
    assert world.is_quiet()


def test_a_check_that_cannot_be_reported_is_reported_at_the_next_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    world = a_world()
    the_loop(world)

    def busy(*args: object) -> None:
        raise OSError("database is locked")

    logging.getLogger("dagster").setLevel(logging.CRITICAL)
    monkeypatch.setattr(world.instance, "report_runless_asset_event", busy)
    assert not world.tick().run_requests
    monkeypatch.undo()
    world.tick()
    assert world.check("s") is not None
