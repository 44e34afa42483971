"""The instance that the simulation plays answers the sensor's glue as one of Dagster's own does."""

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from dagster_ckpt.errors import StoreUnavailableError
from dagster_ckpt.ids import EMPTY
from dagster_ckpt.integration.dagster_names import ATTEMPT_TAG, STREAM_TAG
from dagster_ckpt.integration.recovery.crash_loop import Cause
from dagster_ckpt.integration.recovery.crash_loop_check import evaluation_failed, report
from dagster_ckpt.integration.recovery.dagster_runs import LastRuns, newest_run, run_view, unfinished_runs
from dagster_ckpt.integration.recovery.decision import GaveUp
from dagster_ckpt.integration.recovery.relaunch import declare_failed
from dagster_ckpt.integration.recovery.stream_status import StreamStatus
from dagster_ckpt.integration.recovery.stream_view import RunState
from tests.simulation.dagster import watched_stream
from tests.simulation.instance import SimulatedInstance

WATCHED = watched_stream("carriers", lease_timeout_ms=30_000)
STREAM = WATCHED.asset
NOT_OPENED = StreamStatus(None, None)
TAGS = {STREAM_TAG: STREAM.stream, ATTEMPT_TAG: "2"}
ERROR = StoreUnavailableError("the store did not answer")


@pytest.fixture
def real() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def simulated() -> Any:
    return SimulatedInstance()


@dg.asset(key=STREAM.key)
def carriers() -> None:
    raise ERROR


def _run_that_fails(instance: Any) -> None:
    if isinstance(instance, SimulatedInstance):
        run = dg.DagsterRun(STREAM.job_name, run_id="one", tags=TAGS, status=dg.DagsterRunStatus.STARTED)
        instance.create(run, STREAM.key)
        error: Any = SimpleNamespace(cls_name="StoreUnavailableError", message=str(ERROR), cause=None)
        instance.errors["one"] = STREAM.op_name, error
        instance.set_status("one", dg.DagsterRunStatus.FAILURE)
        return
    jobs = [dg.define_asset_job(STREAM.job_name, selection=[carriers])]
    job = dg.Definitions(assets=[carriers], jobs=jobs).resolve_job_def(STREAM.job_name)
    assert not job.execute_in_process(instance=instance, tags=TAGS, raise_on_error=False).success


def _run_that_succeeds(instance: Any) -> None:
    if isinstance(instance, SimulatedInstance):
        run = dg.DagsterRun(STREAM.job_name, run_id="two", execution_plan_snapshot_id=STREAM.op_name)
        instance.create(run, STREAM.key)
        instance.set_status("two", dg.DagsterRunStatus.SUCCESS)
        return

    @dg.asset(key=STREAM.key)
    def carriers() -> None: ...

    jobs = [dg.define_asset_job(STREAM.job_name, selection=[carriers])]
    job = dg.Definitions(assets=[carriers], jobs=jobs).resolve_job_def(STREAM.job_name)
    assert job.execute_in_process(instance=instance).success


def _run_that_is_killed(instance: Any) -> str:
    run = dg.DagsterRun(STREAM.job_name, run_id=_id(2), tags=TAGS, status=dg.DagsterRunStatus.STARTED)
    if isinstance(instance, SimulatedInstance):
        instance.create(run, STREAM.key)
    else:
        instance.add_run(run)
    return run.run_id


def _id(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012}"


def _newest_run(
    instance: dg.DagsterInstance, unfinished: Sequence[dg.RunRecord], named: str | None
) -> dg.RunRecord | None:
    return newest_run(instance, STREAM, unfinished, LastRuns(instance, [STREAM.key]), named)


def test_view_of_a_failed_run(real: dg.DagsterInstance, simulated: Any) -> None:
    views = []
    for instance in (real, simulated):
        _run_that_fails(instance)
        record = _newest_run(instance, unfinished_runs(instance), None)
        assert record is not None
        views.append(run_view(instance, record.dagster_run, STREAM, NOT_OPENED))
    assert views[0] == views[1]
    assert views[0].state is RunState.FAILED
    assert views[0].error is not None
    assert views[0].error.cause is Cause.NO_ANSWER
    assert views[0].attempt == 2


def test_declaring_a_killed_run_failed(real: dg.DagsterInstance, simulated: Any) -> None:
    for instance in (real, simulated):
        _run_that_fails(instance)
        killed = _run_that_is_killed(instance)
        unfinished = unfinished_runs(instance)
        assert [record.dagster_run.run_id for record in unfinished] == [killed]
        # The run that the lease names, or else the youngest one.
        for named in (killed, None):
            assert _newest_run(instance, unfinished, named) == unfinished[0]
        run = unfinished[0].dagster_run
        view = run_view(instance, run, STREAM, NOT_OPENED)
        assert (view.state, view.error, view.reached) == (RunState.STARTED, None, True)
        assert declare_failed(instance, run, "it was killed")
        assert not declare_failed(instance, run, "once more")
        assert not unfinished_runs(instance)
        ended = _newest_run(instance, (), killed)
        assert ended is not None
        assert run_view(instance, ended.dagster_run, STREAM, NOT_OPENED).state is RunState.FAILED


def test_a_failed_check_is_reported_once(real: dg.DagsterInstance, simulated: Any) -> None:
    for instance in (real, simulated):
        run = dg.DagsterRun(STREAM.job_name, run_id=_id(3))
        failed = evaluation_failed(STREAM.key, run, EMPTY, GaveUp(5, None, same=False))
        assert report(instance, run, failed)
        assert not report(instance, run, failed)


def test_a_run_that_found_the_stream_live_is_not_the_streams(real: dg.DagsterInstance, simulated: Any) -> None:
    for instance in (real, simulated):
        _run_that_fails(instance)
        named = _newest_run(instance, (), None)
        assert named is not None
        _run_that_succeeds(instance)
        last = _newest_run(instance, (), None)
        assert last is not None
        assert last.dagster_run.status is dg.DagsterRunStatus.SUCCESS
        assert _newest_run(instance, (), named.dagster_run.run_id) == named
