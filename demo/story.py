"""What happens in the demo, in order."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from dagster_ckpt import CheckpointStore
from demo.batch import EXPECTED
from demo.comparison import difference
from demo.dagster_api import DagsterApi
from demo.dagster_dev import DagsterDev
from demo.errors import DemoError
from demo.feeder import Feeder, drop
from demo.processes import kill
from demo.report import Kill, Outcome, Report
from demo.run_folder import RunFolder
from demo.standing import standing
from demo.watch import Watch

STREAMS = list(EXPECTED)

LOOK_S = 0.2
"""How often we look."""

END_S = 60.0
"""How long the Dagster runs may take to end once they were asked to."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The course of the demo. The kill comes once `kill_at` days were dropped; `stall_s`: nothing moves, we give up."""

    days_per_second: float = 6.0
    first_days: int = 7
    victim: str = "delay_by_carrier"
    kill_at: int = 180
    stall_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Strike:
    """A kill that nobody has recovered from yet: the newest epoch once the worker was dead, and the time it died."""

    epoch: int
    at_s: float


def play(plan: Plan, days: Sequence[Path], folder: RunFolder, dagster: DagsterDev, report: Report) -> bool:
    """Run the year through the streams of a ready Dagster; returns whether every table equals the batch computation."""
    store = CheckpointStore(folder.store)
    # Something is there already when the streams begin.
    for day in days[: plan.first_days]:
        drop(day, folder.inbox)
    for stream in STREAMS:
        dagster.api.launch(f"{stream}_job")
    report.say("streams", f"{', '.join(STREAMS)}: a Dagster run each")
    feeder = Feeder(days, folder.inbox, plan.days_per_second, fed=plan.first_days)
    watch = Watch(store, STREAMS, time.monotonic())
    struck = _through_the_year(plan, feeder, watch, dagster, report)
    report.say("end", "the whole year is committed; ending the Dagster runs")
    _end_runs(dagster.api)
    return _prove(watch, folder, {plan.victim: struck}, report)


def _through_the_year(plan: Plan, feeder: Feeder, watch: Watch, dagster: DagsterDev, report: Report) -> Kill:
    """Feed and watch until every day is in every stream; in the middle, kill the victim's worker."""
    days = len(feeder.days)
    strike: Strike | None = None
    recovered: Kill | None = None
    with report.bars(STREAMS, days) as bars:
        while recovered is None or not watch.through(days):
            now_s = time.monotonic()
            # The second half waits for the kill, and the kill for the stream: a slow start cannot move it to the end.
            feeder.feed(now_s, until=plan.kill_at if strike is None else days)
            watch.look(now_s)
            bars.show(feeder.fed, watch.standings)
            victim = watch.standings[plan.victim]
            if strike is None and feeder.fed >= plan.kill_at and victim.days >= plan.kill_at // 2:
                strike = _strike(plan.victim, watch.store, dagster, report)
            elif strike is not None and recovered is None and victim.epoch > strike.epoch:
                recovered = Kill(strike.epoch, victim.epoch, time.monotonic() - strike.at_s)
                report.say(
                    "recovery",
                    f"by the sensor; epoch {victim.epoch} is committed {recovered.seconds:.1f} s after the kill",
                )
            if now_s - watch.moved_s > plan.stall_s:
                raise DemoError(f"no stream has committed anything for {plan.stall_s:.0f} s. runs={dagster.api.runs()}")
            time.sleep(LOOK_S)
    return recovered


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


def _end_runs(api: DagsterApi) -> None:
    api.terminate([run.id for run in api.runs() if run.unfinished])
    deadline = time.monotonic() + END_S
    while unfinished := [run for run in api.runs() if run.unfinished]:
        if time.monotonic() > deadline:
            raise DemoError(f"these Dagster runs did not end. seconds={END_S:.0f}, runs={unfinished}")
        time.sleep(LOOK_S)


def _prove(watch: Watch, folder: RunFolder, kills: dict[str, Kill], report: Report) -> bool:
    outcomes = []
    for stream, expected in EXPECTED.items():
        table = pl.DataFrame(watch.store.stream(stream).read())
        found = difference(table, expected.of(folder.inbox), expected.key)
        report.difference(stream, found)
        outcomes.append(
            Outcome(
                stream,
                watch.standings[stream],
                watch.seconds(stream),
                table.height,
                equal=not found,
                kill=kills.get(stream),
            )
        )
    report.outcome(outcomes)
    return all(outcome.equal for outcome in outcomes)
