"""What happens in the demo, in order."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dagster_ckpt import CheckpointStore
from demo.batch import EXPECTED
from demo.dagster_api import DagsterApi
from demo.dagster_dev import DagsterDev
from demo.errors import DemoError
from demo.feeder import Feeder, drop
from demo.processes import kill
from demo.proof import prove
from demo.report import Bars, Kill, Outcome, Report
from demo.run_folder import PREPARED_WEATHER, RunFolder
from demo.standing import standing
from demo.watch import Watch

IN_TIME = ["departures_with_weather", "delays_by_hour", "aircraft_rotations"]
"""They work through what there is, in one Dagster run, when all of it is there."""

STREAMS = [stream for stream in EXPECTED if stream not in IN_TIME]
"""They work from the beginning to the end, each in a Dagster run of its own."""

LOOK_S = 0.2
"""How often we look."""

END_S = 60.0
"""How long the Dagster runs may take to end once they were asked to."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The course of the demo.

    `first_days` are there when the streams begin; the kill comes once the victim has committed `kill_at` days; where
    nothing moves for `stall_s` we give up.
    """

    days_per_second: float = 6.0
    first_days: int = 14
    victim: str = "delay_by_carrier"
    kill_at: int = 180
    stall_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Strike:
    """A kill: the newest epoch once the worker was dead, and the time it died."""

    epoch: int
    at_s: float


def play(plan: Plan, days: Sequence[Path], folder: RunFolder, dagster: DagsterDev, report: Report) -> bool:
    """Run the year through the streams of a ready Dagster; returns whether every table equals the batch computation."""
    for day in days[: plan.first_days]:
        drop(day, folder.inbox)
    for stream in STREAMS:
        dagster.api.launch(f"{stream}_job")
    report.say("streams", f"{', '.join(STREAMS)}: launched, a Dagster run each")
    feeder = Feeder(days, folder.inbox, plan.days_per_second, fed=plan.first_days)
    watch = Watch(CheckpointStore(folder.store), STREAMS, time.monotonic())
    with report.bars(STREAMS, len(days)) as bars:
        course = Course(plan, feeder, watch, dagster, report, bars)
        course.until(lambda: watch.all_began, days=plan.first_days)
        report.say("feeder", f"every stream has begun; dropping {plan.days_per_second:g} days a second")
        course.until(lambda: watch.standings[plan.victim].days >= plan.kill_at, days=plan.kill_at)
        strike = _strike(plan.victim, watch.store, dagster, report)
        course.until(lambda: watch.standings[plan.victim].epoch > strike.epoch, days=len(days))
        recovered = Kill(strike.epoch, watch.standings[plan.victim].epoch, time.monotonic() - strike.at_s)
        report.say("recovery", f"by the sensor: epoch {recovered.next_epoch}, {recovered.seconds:.1f} s after the kill")
        course.until(lambda: watch.through(len(days)), days=len(days))
    report.say("end", "every day is committed in every stream; ending the Dagster runs")
    _end_runs(dagster.api)
    watch.look(time.monotonic())  # a run that ends may have committed once more
    in_time = _work_in_time(plan, dagster, watch.store, report)
    equal = prove(lambda stream: watch.store.stream(stream).read(), folder.inbox, PREPARED_WEATHER, report)
    kills = {plan.victim: recovered}
    report.outcome(
        [
            Outcome(stream, now, watch.rows_per_second(stream), equal[stream], kills.get(stream))
            for stream, now in watch.standings.items()
        ]
        + [Outcome(stream, standing(watch.store, stream), in_time[stream], equal[stream]) for stream in IN_TIME]
    )
    return all(equal.values())


@dataclass(frozen=True, slots=True)
class Course:
    """Feeds and watches, one stretch of the way after the other."""

    plan: Plan
    feeder: Feeder
    watch: Watch
    dagster: DagsterDev
    report: Report
    bars: Bars

    def until(self, reached: Callable[[], bool], days: int) -> None:
        """Go on until `reached`, with at most `days` dropped. Raises DemoError where nothing moves for too long."""
        since_s = time.monotonic()
        while not reached():
            now_s = time.monotonic()
            self.feeder.feed(now_s, until=days)
            self.watch.look(now_s)
            self.bars.show(self.feeder.fed, self.watch.standings)
            if now_s - max(self.watch.moved_s, since_s) > self.plan.stall_s:
                runs = ", ".join(f"{run.job} {run.status}" for run in self.dagster.api.runs())
                raise DemoError(f"no stream has committed anything for {self.plan.stall_s:.0f} s. runs=[{runs}]")
            time.sleep(LOOK_S)


def _strike(stream: str, store: CheckpointStore, dagster: DagsterDev, report: Report) -> Strike:
    """SIGKILL the worker of the stream's Dagster run."""
    run = next(run for run in dagster.api.runs() if run.job == f"{stream}_job" and run.unfinished)
    worker = dagster.api.worker(run.id)
    if worker is None:
        raise DemoError(f"Dagster does not say which process works for the stream. stream={stream}, run={run.id}")
    kill(worker, dagster.session)
    at_s = time.monotonic()
    # Read when it is dead: an epoch it committed with its last breath counts as before the kill.
    epoch = standing(store, stream).epoch
    report.say("kill", f"SIGKILL to process {worker}, the worker of {stream}, at epoch {epoch}; nobody acts")
    return Strike(epoch, at_s)


def _work_in_time(plan: Plan, dagster: DagsterDev, store: CheckpointStore, report: Report) -> dict[str, float]:
    """Work the streams of event time through all there is; returns how many rows a second each of them took in."""
    began_s = time.monotonic()
    run = dagster.api.launch("flights_in_time_job")
    report.say("in time", f"{', '.join(IN_TIME)}: one after another in one Dagster run, over the whole year")
    watch = Watch(store, IN_TIME, began_s)
    while dagster.api.run(run).unfinished:
        watch.look(time.monotonic())
        if time.monotonic() - watch.moved_s > plan.stall_s:
            raise DemoError(f"no stream has committed anything for {plan.stall_s:.0f} s. run={run}")
        time.sleep(LOOK_S)
    status = dagster.api.run(run).status
    if status != "SUCCESS":
        raise DemoError(f"a Dagster run ended as it should not. run={run}, status={status}")
    watch.look(time.monotonic())
    report.say("in time", f"all of it in {time.monotonic() - began_s:.0f} s, Spark's start included")
    return {stream: watch.rows_per_second(stream) for stream in IN_TIME}


def _end_runs(api: DagsterApi) -> None:
    api.terminate([run.id for run in api.runs() if run.unfinished])
    deadline = time.monotonic() + END_S
    while unfinished := [run for run in api.runs() if run.unfinished]:
        if time.monotonic() > deadline:
            raise DemoError(f"these Dagster runs did not end. seconds={END_S:.0f}, runs={unfinished}")
        time.sleep(LOOK_S)
