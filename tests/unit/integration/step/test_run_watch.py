"""A stream at work asks Dagster whether its run is still wanted."""

from typing import Any

import dagster as dg
import pytest

from dagster_ckpt.errors import FencedError
from dagster_ckpt.integration.step.run_watch import LOOK_MS, RunWatch, Stop, requested_stop
from tests.worlds.clock import StillClock


class Instance:
    """As much of a Dagster instance as is asked; counts the questions."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked = 0

    def get_run_by_id(self, run_id: str) -> Any:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def a_run(status: dg.DagsterRunStatus = dg.DagsterRunStatus.STARTED, **tags: str) -> dg.DagsterRun:
    return dg.DagsterRun(job_name="j", run_id="r", status=status, tags=tags)


def watch(instance: Any, clock: StillClock | None = None) -> RunWatch:
    return RunWatch(instance, "r", clock or StillClock())


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED])
def test_a_canceled_run_ends_even_where_dagsters_interruption_was_lost(status: dg.DagsterRunStatus) -> None:
    assert watch(Instance(a_run(status))).stop_reason() == Stop.CANCELED


def test_a_run_that_was_declared_failed_stops_without_a_clean_end() -> None:
    with pytest.raises(FencedError, match="dagster_run=r"):
        watch(Instance(a_run(dg.DagsterRunStatus.FAILURE))).stop_reason()


def test_a_deleted_run_ends() -> None:
    assert watch(Instance(None)).stop_reason() == Stop.GONE


def test_a_run_that_is_asked_to_drain_ends() -> None:
    run = dg.DagsterRun(
        job_name="j", run_id="r", status=dg.DagsterRunStatus.STARTED, tags={"dagster_ckpt/drain": "deploy"}
    )
    assert requested_stop(run) is Stop.DRAIN


def test_a_live_run_goes_on_and_dagster_is_not_asked_all_the_time() -> None:
    clock, instance = StillClock(), Instance(a_run())
    live = watch(instance, clock)
    for _ in range(100):
        assert live.stop_reason() is None
        clock.sleep_ms(200)
    assert instance.asked == 100 * 200 // LOOK_MS


def test_a_dagster_that_does_not_answer_stops_no_stream() -> None:
    clock, instance = StillClock(), Instance(OSError("database is locked"))
    live = watch(instance, clock)
    assert live.stop_reason() is None
    instance.answer = a_run(dg.DagsterRunStatus.CANCELING)
    assert live.stop_reason() is None
    clock.sleep_ms(LOOK_MS)
    assert live.stop_reason() == Stop.CANCELED
    instance.answer = a_run()
    clock.sleep_ms(LOOK_MS)
    assert live.stop_reason() == Stop.CANCELED, "a reason to stop stays"
