"""Dagster's daemon in the simulation: it evaluates the product's sensor over and over, from cursor to run requests."""

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self, cast

import dagster as dg

from dagster_ckpt.errors import StoreUnavailableError
from dagster_ckpt.integration.recovery import sensor
from dagster_ckpt.integration.recovery.live_check import LiveReports
from dagster_ckpt.integration.recovery.manual_changes import ChangeWatch
from dagster_ckpt.integration.recovery.stream_status import StatusReader
from tests.simulation.dagster import Dagster

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process
    from tests.simulation.world import World

TICK_MS = 10_000
"""The most of a tick that the sensor counts."""


@dataclass
class _InstanceOfTick:
    """The instance as one tick sees it: what it declares failed is judged."""

    dagster: Dagster
    began_ms: int

    def __getattr__(self, name: str) -> Any:
        return getattr(self.dagster.instance, name)

    def report_run_failed(self, run: dg.DagsterRun, message: str | None = None) -> None:
        self.dagster.instance.now_ms = self.dagster.world.scheduler.now_ms
        self.dagster.declared_failed(run.run_id, self.began_ms)
        self.dagster.instance.report_run_failed(run, message)

    def report_runless_asset_event(self, event: dg.AssetCheckEvaluation | dg.AssetObservation) -> None:
        if isinstance(event, dg.AssetObservation):
            self.dagster.counts["changes reported"] += 1
            return
        self.dagster.counts["checks failed"] += not event.passed
        self.dagster.instance.report_runless_asset_event(event)


@dataclass
class _Log:
    """What the sensor logs is for people; what it catches may only be a store that does not answer.

    Or a folder that a person has removed while the sensor read it: `was_removed`.
    """

    was_removed: Callable[[], bool]

    def exception(self, text: str, *values: object) -> None:
        error = sys.exception()
        if error is not None and not isinstance(error, StoreUnavailableError) and not self.was_removed():
            raise error

    def _ignored(self, text: str, *values: object) -> None:
        return

    info = warning = error = _ignored


class InTurn:
    """Stands in for `ThreadPoolExecutor`: what is submitted happens at once, in the strand that submits it."""

    def __init__(self, *options: object) -> None:
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return

    def submit(self, call: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(call(*arguments))
        except Exception as error:  # noqa: BLE001  (as an executor does)
            future.set_exception(error)
        return future


def evaluate_the_sensor(world: "World", process: "Process") -> None:
    """The daemon: evaluates the product's sensor over and over, launches what it requests, then keeps its cursor."""
    dagster, clock, chance = world.dagster, world.clock_of(process), world.chance
    status_reader, live_reports, change_watch = StatusReader(clock), LiveReports(), ChangeWatch()
    while True:
        clock.sleep_ms(TICK_MS)
        resets = dagster.resets

        def was_removed(resets: int = resets) -> bool:
            return dagster.resets > resets

        epochs = {stream.name: stream.oracle.epochs for stream in world.all_streams}
        watched = [stream.watched for stream in world.all_streams if stream.begun]
        instance = _InstanceOfTick(dagster, world.scheduler.now_ms)
        context = SimpleNamespace(cursor=dagster.cursor, instance=instance, log=_Log(was_removed))
        result = sensor._evaluate(
            cast(dg.SensorEvaluationContext, context),
            world.root_of(process),
            watched,
            status_reader,
            live_reports,
            change_watch,
        )
        requests: Sequence[dg.RunRequest] = result.run_requests or ()
        for request in requests:
            if not world.calm and chance.random() < 0.2:
                clock.sleep_ms(chance.randrange(5_000))  # and may be killed meanwhile, before it has kept the cursor
            dagster.submit(request, epochs)
        if not was_removed():
            dagster.cursor = result.cursor
