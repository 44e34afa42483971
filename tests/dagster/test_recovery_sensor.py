"""The recovery sensor against a real Dagster instance, with Dagster runs in every state."""

import logging
from dataclasses import replace

import dagster as dg
import pytest

from dagster_ckpt import FencedError, InvalidPipelineError, Recovery, StoreUnavailableError, build_recovery_sensor
from dagster_ckpt.ids import EMPTY, Epoch
from dagster_ckpt.integration.dagster_dev import DevWatch
from dagster_ckpt.integration.dagster_names import unfit
from dagster_ckpt.protocol.lease import interruption
from dagster_ckpt.protocol.object_names import lease_name
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.leases.process_identity import this_process
from dagster_ckpt.storage.operations.manual_opening import roll_back
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from dagster_ckpt.storage.writer.opening import Takeover
from tests.dagster.sensor_world import a_stream, a_world

STARTED, SUCCESS = dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.SUCCESS
VERSION = next(iter(a_stream("c").specs)).code_version
"""Of the function that all these streams have."""
FAILURE, CANCELED = dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED


def test_it_is_on_as_soon_as_it_is_deployed_and_brings_its_jobs() -> None:
    world = a_world()
    assert world.sensor.name == "streaming_recovery"
    assert world.sensor.default_status is dg.DefaultSensorStatus.RUNNING
    assert (world.sensor.minimum_interval_seconds or 99) < 5, "Dagster looks every 5 s: a minimum of 5 would make it 10"
    job = world.definitions.resolve_job_def("s_job")
    assert job.executor_def == dg.in_process_executor
    assert job.tags["dagster_ckpt/stream"] == "s"


def test_it_watches_only_streams() -> None:
    @dg.asset
    def ordinary() -> None: ...

    with pytest.raises(InvalidPipelineError, match="asset=ordinary"):
        build_recovery_sensor([ordinary])


def test_a_stream_that_has_never_run_is_left_alone() -> None:
    result = a_world().tick()
    assert not result.run_requests
    assert "never run" in str(result.skip_reason)


def test_autostart_starts_a_stream_that_has_never_run_once() -> None:
    world = a_world(a_stream("c", mode="continuous", autostart=True, run_tags={"team": "ops"}))
    [request] = world.tick().run_requests or []
    assert request.job_name == "c_job"
    assert request.tags == {"team": "ops", "dagster_ckpt/stream": "c", "dagster_ckpt/launched_for": VERSION}
    world.launch(request)
    assert world.is_quiet()


def test_a_daemon_that_outlives_its_killed_dagster_dev_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = a_world(a_stream("c", mode="continuous", autostart=True))
    with monkeypatch.context() as killed:
        killed.setattr(DevWatch, "has_ended", lambda _: True)
        result = world.tick()
        assert not result.run_requests
        assert "dagster dev has ended" in str(result.skip_reason)
    assert len(world.tick().run_requests or []) == 1


def test_a_live_run_is_left_alone_for_as_long_as_it_beats() -> None:
    world = a_world()
    run = world.started("s")
    writer = world.open("s", run)
    for _ in range(30):
        world.beat("s", writer.term)
        assert not world.tick(20).run_requests
    assert world.look(run).status is STARTED


def test_a_lapsed_lease_is_declared_failed_and_relaunched_in_one_tick() -> None:
    world = a_world()
    run = world.started("s", run_config={"ops": {"s": {"config": {"from_epoch": 0, "run_for": "1 hour"}}}})
    writer = world.open("s", run)
    assert world.ticks(30) == []
    assert world.look(run).status is STARTED
    [request] = world.tick().run_requests or []
    assert world.look(run).status is FAILURE
    assert request.job_name == "s_job"
    assert request.run_config == {"ops": {"s": {"config": {"run_for": "1 hour"}}}}
    assert request.tags == {
        "dagster_ckpt/stream": "s",
        "dagster_ckpt/launched_for": VERSION,
        "dagster_ckpt/attempt": "1",
        "dagster_ckpt/epoch": "0",
        "dagster_ckpt/replaces": run.run_id,
        "dagster_ckpt/reason": "its lease was not renewed for 30 s; relaunch 1 of 5",
        "dagster_ckpt/may_fence": str(writer.term),
    }
    assert request.run_key is not None
    world.launch(request)
    assert world.is_quiet()


def test_a_sensor_that_crashed_between_its_two_acts_relaunches_at_its_next_tick() -> None:
    world = a_world()
    run = world.started("s")
    world.open("s", run)
    world.ticks(30)
    [lost] = world.tick().run_requests or []
    [again] = world.tick().run_requests or []
    assert again.run_key == lost.run_key, "so that Dagster launches only one of the two"


def test_a_process_known_to_be_dead_needs_no_lapse() -> None:
    world = a_world()
    me = this_process()
    dead = type(me)(me.host, me.boot, me.namespace, me.pid, me.started_ticks + 1)
    world.open("s", world.started("s"), process=dead)
    assert len(world.tick().run_requests or []) == 1


def test_a_live_process_on_this_host_is_not_dead() -> None:
    world = a_world()
    world.open("s", world.started("s"), process=this_process())
    assert not world.tick().run_requests


def test_a_sensor_that_was_off_for_hours_first_watches_again() -> None:
    world = a_world()
    run = world.started("s")
    world.open("s", run)
    world.tick()
    assert not world.tick(7_200).run_requests
    assert world.look(run).status is STARTED


def test_a_cursor_that_was_reset_only_costs_time() -> None:
    world = a_world()
    world.open("s", world.started("s"))
    world.ticks(25)
    world.cursor = None
    assert world.ticks(30) == []
    assert len(world.ticks(5)) == 1


def test_a_run_that_dagster_reports_failed_needs_no_lapse() -> None:
    world = a_world()
    run = world.started("s")
    writer = world.open("s", run)
    world.move(run, FAILURE)
    [request] = world.tick().run_requests or []
    assert request.tags["dagster_ckpt/may_fence"] == str(writer.term)


def test_a_run_that_died_before_it_opened_is_recovered() -> None:
    world = a_world()
    world.move(world.started("s"), FAILURE)
    [request] = world.tick().run_requests or []
    assert "dagster_ckpt/may_fence" not in request.tags


def test_a_run_that_did_not_open_within_three_minutes_is_recovered() -> None:
    world = a_world()
    run = world.started("s")
    assert world.ticks(180) == []
    assert len(world.ticks(5)) == 1
    assert world.look(run).status is FAILURE


def test_a_run_in_the_queue_may_wait_for_ever() -> None:
    world = a_world()
    world.run("s")
    assert world.is_quiet()


@pytest.mark.parametrize("statuses", [[], [dg.DagsterRunStatus.STARTING]])
def test_a_run_whose_launch_died_with_dagster_is_declared_failed_and_recovered(
    statuses: list[dg.DagsterRunStatus],
) -> None:
    world = a_world()
    run = world.move(world.run("s", status=dg.DagsterRunStatus.NOT_STARTED), *statuses)
    assert world.ticks(180) == []
    [request] = world.ticks(5)
    assert request.tags["dagster_ckpt/attempt"] == "1"
    assert world.look(run).status is FAILURE, "its worker, should it come yet, is told by Dagster not to begin"


def test_a_run_that_is_busy_with_another_step_is_not_timed_out() -> None:
    world = a_world()
    run = world.run("s", "ordinary", job="__ASSET_JOB")
    world.move(run, dg.DagsterRunStatus.STARTING, STARTED)
    world.step(run, "ordinary", "STEP_START")
    assert world.is_quiet()
    world.step(run, "s", "STEP_START")
    assert world.ticks(180) == []
    assert len(world.ticks(5)) == 1


def test_a_stream_that_waits_for_its_turn_beside_another_of_its_run_is_not_timed_out() -> None:
    world = a_world()
    run = world.started("s", "c", job="__ASSET_JOB")
    world.step(run, "c", "STEP_START")
    world.instance.add_run_tags(run.run_id, {"dagster_ckpt/turn": "s"})
    writer = world.open("s", run)
    for _ in range(22):
        world.beat("s", writer.term)
        assert not world.tick(10).run_requests
    world.close("s", writer.term)
    world.instance.add_run_tags(run.run_id, {"dagster_ckpt/turn": "c"})
    assert {request.job_name for request in world.ticks(220, every_s=10)} == {"c_job"}


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.CANCELING, CANCELED])
def test_a_canceled_stream_waits_for_a_person(status: dg.DagsterRunStatus) -> None:
    world = a_world()
    for name in ("s", "c"):
        run = world.started(name)
        world.open(name, run)
        world.move(run, status)
    assert world.is_quiet()


@pytest.mark.parametrize("name", ["s", "c"])
def test_a_run_whose_process_was_ended_from_outside_dagster_is_recovered(name: str) -> None:
    world = a_world()
    run = world.started(name)
    world.close(name, world.open(name, run).term, interruption("DagsterExecutionInterruptedError"))
    world.move(run, FAILURE)
    [request] = world.tick().run_requests or []
    assert request.tags["dagster_ckpt/attempt"] == "1"
    assert "dagster_ckpt/may_fence" not in request.tags, "a closed lease needs no fencing"
    world.launch(request)
    assert world.is_quiet()


def test_a_success_ends_an_available_now_stream_and_the_next_run_of_a_continuous_one_follows() -> None:
    world = a_world()
    for name in ("s", "c"):
        run = world.started(name)
        world.close(name, world.open(name, run).term)
        world.move(run, SUCCESS)
    [request] = world.tick().run_requests or []
    assert request.job_name == "c_job"
    assert request.tags == {"dagster_ckpt/stream": "c", "dagster_ckpt/launched_for": VERSION}


def test_after_an_available_now_run_of_a_continuous_asset_the_next_one_is_continuous() -> None:
    world = a_world()
    run = world.started("c", run_config={"ops": {"c": {"config": {"mode": "available_now"}}}})
    world.close("c", world.open("c", run).term)
    world.move(run, SUCCESS)
    [request] = world.tick().run_requests or []
    assert request.run_config == {}


def test_a_continuous_run_of_an_available_now_asset_stays_continuous() -> None:
    world = a_world()
    run = world.started("s", run_config={"ops": {"s": {"config": {"mode": "continuous", "take_over": True}}}})
    world.close("s", world.open("s", run).term)
    world.move(run, SUCCESS)
    [request] = world.tick().run_requests or []
    assert request.run_config == {"ops": {"s": {"config": {"mode": "continuous"}}}}


def test_a_worker_that_died_after_its_stream_had_ended_is_followed_by_the_next() -> None:
    world = a_world()
    run = world.started("c")
    world.close("c", world.open("c", run).term)
    assert world.ticks(180, every_s=10) == []
    [request] = world.ticks(10, every_s=10)
    assert world.look(run).status is FAILURE
    assert request.tags == {"dagster_ckpt/stream": "c", "dagster_ckpt/launched_for": VERSION}


def test_a_run_whose_check_still_works_long_after_the_stream_goes_on() -> None:
    @dg.asset_check(asset="s")
    def slow() -> dg.AssetCheckResult:
        raise NotImplementedError

    world = a_world()
    world.checks = [slow]
    world.load(world.streams)
    run = world.started("s")
    world.close("s", world.open("s", run).term)
    world.step(run, "s_slow", "STEP_START")
    assert world.ticks(200, every_s=10) == []
    assert world.look(run).status is STARTED
    world.step(run, "s_slow", "STEP_SKIPPED")  # as good an end as any
    world.ticks(170, every_s=10)
    assert world.look(run).status is STARTED, "its worker has only just got the last word to write"
    world.ticks(20, every_s=10)
    assert world.look(run).status is FAILURE


def test_a_worker_whose_process_is_gone_after_its_stream_had_ended_is_noticed_at_once() -> None:
    world = a_world()
    me = this_process()
    run = world.started("c")
    dead = replace(me, started_ticks=me.started_ticks + 1)
    world.close("c", world.open("c", run, process=dead).term)
    [request] = world.tick().run_requests or []
    assert world.look(run).status is FAILURE
    assert request.tags == {"dagster_ckpt/stream": "c", "dagster_ckpt/launched_for": VERSION}


def test_the_process_of_a_step_that_has_one_of_its_own_may_be_gone_while_the_run_goes_on() -> None:
    world = a_world()
    me = this_process()
    run = world.started("s", "ordinary", job="__ASSET_JOB")
    dead = replace(me, started_ticks=me.started_ticks + 1)
    world.close("s", world.open("s", run, process=dead).term)
    world.step(run, "ordinary", "STEP_START")
    assert world.is_quiet()
    assert world.look(run).status is STARTED


def test_a_run_that_failed_in_another_asset_leaves_the_stream_alone() -> None:
    world = a_world()
    run = world.started("s", "ordinary", job="__ASSET_JOB")
    world.close("s", world.open("s", run).term)
    world.step(run, "ordinary", "STEP_START")
    world.move(run, FAILURE)
    assert world.is_quiet()


def test_a_stream_that_was_never_reached_because_another_asset_failed_is_left_alone() -> None:
    world = a_world(a_stream("s", deps=["ordinary"]))
    result = world.definitions.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=world.instance, raise_on_error=False
    )
    assert not result.success
    last_run_id = world.instance.get_asset_records([dg.AssetKey("s")])[0].asset_entry.last_run_id
    assert last_run_id == result.run_id
    assert world.is_quiet()
    world.instance.dispose()  # of the folder that a real run makes


def test_a_worker_that_died_before_it_reached_the_stream_is_replaced() -> None:
    world = a_world()
    run = world.run("s", "ordinary", job="__ASSET_JOB")
    world.move(run, dg.DagsterRunStatus.STARTING, STARTED)
    world.step(run, "ordinary", "STEP_START")
    world.move(run, FAILURE)
    assert len(world.tick().run_requests or []) == 1


def test_the_relaunch_of_a_run_from_the_asset_page_carries_its_own_config_alone() -> None:
    world = a_world()
    config = {"ops": {"s": {"config": {"run_for": "2 hours"}}, "c": {"config": {"run_for": "3 hours"}}}}
    run = world.started("s", "c", job="__ASSET_JOB", run_config=config, tags={"dagster/priority": "3", "mine": "1"})
    for name in ("s", "c"):
        world.open(name, run)
    world.move(run, FAILURE)
    requests = {request.job_name: request for request in world.tick().run_requests or []}
    assert requests["s_job"].run_config == {"ops": {"s": {"config": {"run_for": "2 hours"}}}}
    assert requests["c_job"].run_config == {"ops": {"c": {"config": {"run_for": "3 hours"}}}}
    for request in requests.values():
        assert not {"dagster/priority", "mine"} & set(request.tags)


def test_two_streams_recover_in_one_tick() -> None:
    world = a_world()
    for name in ("s", "c"):
        world.open(name, world.started(name))
    assert {request.job_name for request in world.ticks(35)} == {"s_job", "c_job"}


def test_a_stream_that_cannot_be_judged_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    world = a_world()
    runs = {name: world.started(name) for name in ("s", "c")}
    for name, run in runs.items():
        world.open(name, run)
    answer = MemoryObjectStore.get

    def get(store: MemoryObjectStore, name: str) -> bytes:
        if name.startswith("s/"):
            raise StoreUnavailableError("the store sleeps. name=" + name)
        return answer(store, name)

    monkeypatch.setattr(MemoryObjectStore, "get", get)
    logging.getLogger("dagster").setLevel(logging.CRITICAL)
    assert {request.job_name for request in world.ticks(60)} == {"c_job"}
    assert world.look(runs["s"]).status is STARTED, "an unreadable store is no verdict"
    monkeypatch.undo()
    assert {request.job_name for request in world.ticks(35)} >= {"s_job"}


def test_a_store_that_has_vanished_is_no_verdict() -> None:
    world = a_world()
    run = world.started("s")
    world.open("s", run)
    world.tick()
    folder = world.folder("s")
    for name in list(folder.list("")):
        folder.delete(name)
    assert world.is_quiet()
    assert world.look(run).status is STARTED


def test_a_rollback_that_a_killed_run_never_did_is_reported_and_not_done_by_the_next(
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = a_world()
    first = world.started("s")
    world.open("s", first)
    world.move(first, CANCELED)
    run = world.started("s", run_config={"ops": {"s": {"config": {"from_epoch": 0}}}})
    world.move(run, FAILURE)
    world.ticks(30)
    [request] = world.tick().run_requests or []
    assert request.run_config == {}
    assert request.tags["dagster_ckpt/not_rolled_back"] == "0"
    assert "the rollback to epoch 0 was not done" in capsys.readouterr().err


def test_a_rollback_that_was_done_is_not_reported_as_lost() -> None:
    world = a_world()
    run = world.started("s", run_config={"ops": {"s": {"config": {"from_epoch": 0}}}})
    world.open("s", run, from_epoch=Epoch(0))
    for name in list(world.folder("s").list("lease")):
        world.folder("s").delete(name)  # killed before it wrote its lease
    world.move(run, FAILURE)
    world.ticks(30)
    [request] = world.tick().run_requests or []
    assert "dagster_ckpt/not_rolled_back" not in request.tags


def test_attempts_count_up_wait_longer_and_are_used_up() -> None:
    world = a_world(a_stream("s", recovery=Recovery(max_attempts=3, backoff="10s")))
    run = world.started("s")
    waits = []
    for attempt in (1, 2, 3):
        world.move(run, FAILURE)
        ticks = 1
        while not (requests := world.tick().run_requests or []):
            ticks += 1
        [request] = requests
        assert request.tags["dagster_ckpt/attempt"] == str(attempt)
        waits.append(5 * (ticks - 1))
        run = world.launch(request)
        assert not world.tick().run_requests
        world.move(run, dg.DagsterRunStatus.STARTING, STARTED)
    assert waits == [0, 10, 20]
    world.move(run, FAILURE)
    assert world.is_quiet()


def test_a_committed_epoch_gives_all_attempts_back() -> None:
    world = a_world()
    run = world.started("s")
    world.open("s", run)
    for _ in range(12):
        world.move(run, FAILURE)
        [request] = world.tick().run_requests or []
        assert request.tags["dagster_ckpt/attempt"] == "1"
        run = world.move(world.launch(request), dg.DagsterRunStatus.STARTING, STARTED)
        world.commit(world.open("s", run))


def test_what_a_rollback_has_left_behind_was_progress_too() -> None:
    world = a_world()
    run = world.started("s")
    world.commit(world.open("s", run))
    for _ in range(3):
        world.move(run, FAILURE)
        [request] = world.tick().run_requests or []
        assert request.tags["dagster_ckpt/attempt"] == "1"
        run = world.move(world.launch(request), dg.DagsterRunStatus.STARTING, STARTED)
        world.commit(world.open("s", run))
        roll_back(ManifestChain(world.folder("s"), world.clock), EMPTY, Takeover.ALWAYS)
    world.move(run, FAILURE)
    [request] = world.tick().run_requests or []
    world.move(world.launch(request), FAILURE)
    assert not world.tick().run_requests, "a rollback alone is none: the second relaunch has to wait"
    [request] = world.tick().run_requests or []
    assert request.tags["dagster_ckpt/attempt"] == "2"


def test_after_a_rollback_by_hand_under_a_live_writer_one_run_follows_as_soon_as_that_one_has_noticed() -> None:
    world = a_world()
    run = world.started("c")
    writer = world.open("c", run)
    world.commit(writer)
    roll_back(ManifestChain(world.folder("c"), world.clock), EMPTY, Takeover.ALWAYS)
    assert not world.tick().run_requests, "its end is waited for"
    with pytest.raises(FencedError) as fenced:
        writer.look_for_another()
    world.fail(run, "c", fenced.value)
    [request] = world.tick().run_requests or []
    assert "dagster_ckpt/may_fence" not in request.tags, "the rollback has closed its lease: nobody need be fenced"
    following = world.move(world.launch(request), dg.DagsterRunStatus.STARTING, STARTED)
    successor = world.open("c", following)
    for _ in range(10):
        world.beat("c", successor.term)
        assert not world.tick().run_requests


def test_a_writer_that_was_taken_over_and_has_noticed_is_not_started_beside_the_other() -> None:
    world = a_world()
    older, newer = world.started("c"), world.started("c")
    writer = world.open("c", older)
    term = world.open("c", newer).term
    with pytest.raises(FencedError) as fenced:
        writer.look_for_another()
    world.folder("c").delete(lease_name(term))
    world.fail(older, "c", fenced.value)
    assert not world.tick().run_requests, "nor in the moment before the other has written its lease"


def test_a_run_that_dagster_retries_is_left_to_dagster() -> None:
    world = a_world()
    run = world.started("s", tags={"dagster/will_retry": "true"})
    world.open("s", run)
    world.move(run, FAILURE)
    assert world.is_quiet()


def test_a_retry_that_dagster_promised_and_never_launches_is_not_waited_for_for_ever() -> None:
    """Dagster's daemon gives up, and leaves its mark: where the run came from a script, or its backfill has ended.

    So it does where run retries were just enabled (it begins behind the newest event) or disabled again, and where the
    run's job was renamed.
    """
    world = a_world()
    run = world.started("s", tags={"dagster/will_retry": "true"})
    writer = world.open("s", run)
    world.move(run, FAILURE)
    assert world.is_quiet(), "Dagster's daemon may be busy"
    request, *_ = world.ticks(1_000, every_s=10)
    assert request.tags["dagster_ckpt/replaces"] == run.run_id
    assert request.tags["dagster_ckpt/may_fence"] == str(writer.term)


def test_the_retries_that_dagster_promises_a_dead_run_are_left_to_dagster() -> None:
    settings = {"run_retries": {"enabled": True, "max_retries": 2}}
    with dg.instance_for_test(overrides=settings) as instance:
        world = a_world()
        world.instance = instance
        run = world.started("s")
        world.open("s", run)
        assert world.ticks(60) == []
        assert world.look(run).status is FAILURE


def test_a_pipeline_that_cannot_work_is_left_to_a_person() -> None:
    world = a_world()
    run = world.started("s")
    world.instance.add_run_tags(run.run_id, {"dagster_ckpt/unfit": unfit(run.run_id, "s")})
    world.move(run, FAILURE)
    assert world.is_quiet()
    tags_copied_by_dagster = world.look(run).tags
    world.move(world.started("s", tags=tags_copied_by_dagster), FAILURE)
    assert len(world.tick().run_requests or []) == 1


def test_a_writer_of_another_dagster_instance_is_not_ours() -> None:
    world = a_world()
    theirs = world.move(world.started("c"), CANCELED)
    world.move(world.started("s"), FAILURE)
    world.open("s", theirs, instance="another Dagster")
    assert world.is_quiet()


def test_a_second_run_that_was_turned_away_beside_a_live_one_is_not_recovered() -> None:
    world = a_world()
    live = world.started("c")
    writer = world.open("c", live)
    turned_away = world.started("c")
    for _ in range(10):
        world.beat("c", writer.term)
        assert not world.tick().run_requests
    world.move(turned_away, FAILURE)
    for _ in range(10):
        world.beat("c", writer.term)
        assert not world.tick().run_requests
    world.close("c", writer.term)
    world.move(live, CANCELED)
    assert world.is_quiet(), "the live one was canceled by a person: that is the newest word"


def test_a_run_that_waits_in_the_queue_is_seen_although_a_live_run_claims_the_asset() -> None:
    world = a_world()
    live = world.started("c")
    writer = world.open("c", live)
    queued = world.run("c")
    claim = dg.AssetMaterialization("c")
    world.instance.report_runless_asset_event(claim)
    assert world.instance.get_asset_records([dg.AssetKey("c")])[0].asset_entry.last_run_id != queued.run_id
    world.close("c", writer.term)
    world.move(live, SUCCESS)
    assert world.is_quiet()


def test_a_dead_run_of_long_ago_is_forgotten() -> None:
    world = a_world()
    world.open("s", world.started("s"))
    newer = world.started("s")
    world.close("s", world.open("s", newer).term)
    world.move(newer, CANCELED)
    assert world.is_quiet()


def test_a_live_run_of_old_code_is_drained_and_the_next_one_follows() -> None:
    world = a_world(a_stream("c", mode="continuous", code_version="1"))
    run = world.started("c", tags={"dagster_ckpt/code_version": "1"})
    writer = world.open("c", run)
    world.tick()
    assert "dagster_ckpt/drain" not in world.look(run).tags
    world.load([a_stream("c", mode="continuous", code_version="2")])
    assert not world.tick().run_requests
    assert world.look(run).tags["dagster_ckpt/drain"] == "code_version 1 -> 2"
    world.close("c", writer.term)
    world.move(run, SUCCESS)
    [request] = world.tick().run_requests or []
    assert "dagster_ckpt/drain" not in request.tags


@pytest.mark.parametrize("known", [None, "1"])
def test_a_code_location_that_was_not_reloaded_does_not_drain_what_it_launched_itself(known: str | None) -> None:
    world = a_world(a_stream("c", mode="continuous", code_version=known))
    run = world.started("c")
    for by_the_sensor in (False, True, True):
        # What a run at work says of itself: its worker has loaded the file as it is now.
        world.instance.add_run_tags(run.run_id, {"dagster_ckpt/code_version": "2"})
        writer = world.open("c", run)
        world.tick()
        drained = "dagster_ckpt/drain" in world.look(run).tags
        assert drained != by_the_sensor
        world.close("c", writer.term)
        world.move(run, SUCCESS)
        [request] = world.tick().run_requests or []
        run = world.move(world.launch(request), dg.DagsterRunStatus.STARTING, STARTED)
    world.instance.add_run_tags(run.run_id, {"dagster_ckpt/code_version": "2"})
    world.open("c", run)
    world.load([a_stream("c", mode="continuous", code_version="3")])
    world.tick()
    assert world.look(run).tags["dagster_ckpt/drain"] == "code_version 2 -> 3"


def test_it_never_writes_to_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    world = a_world()
    world.open("s", world.started("s"))

    def forbidden(*args: object) -> None:
        raise AssertionError("the sensor only reads")

    for verb in ("put", "put_if_absent", "delete"):
        monkeypatch.setattr(MemoryObjectStore, verb, forbidden)
    assert len(world.ticks(40)) >= 1
