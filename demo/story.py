"""What happens in the demo, in order."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dagster_ckpt import CheckpointStore
from demo.batch import EXPECTED
from demo.course import LOOK_S, Course, Patience
from demo.dagster_api import DagsterApi
from demo.dagster_dev import DagsterDev
from demo.errors import DemoError
from demo.feeder import Feeder, drop
from demo.past import fork, roll_back, tell_forward
from demo.processes import kill
from demo.proof import prove
from demo.report import Kill, Outcome, Report
from demo.run_folder import PREPARED_WEATHER, RunFolder
from demo.standing import standing
from demo.watch import Watch

IN_TIME = [
    *("departures_with_weather", "delays_by_hour", "aircraft_rotations", "worst_routes"),
    *("punctuality_by_day", "top_aircraft"),
]
"""They work through what there is, in one Dagster run, when all of it is there."""

FOLLOWING = "late_carriers"
"""It reads what another stream commits, epoch by epoch."""

JOINING = "slow_routes"
"""It is in SQL, and reads what two other streams commit."""

STREAMS = [stream for stream in EXPECTED if stream not in IN_TIME]
"""They work from the beginning to the end, each in a Dagster run of its own."""

END_S = 60.0
"""How long the Dagster runs may take to end once they were asked to."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The course of the demo.

    `first_days` are there when the streams begin. The second victim reads the first. Both are killed once the first has
    committed `kill_at` days, and the second has read half of them. Where nothing moves for `stall_s` we give up.
    """

    days_per_second: float = 6.0
    first_days: int = 14
    victims: tuple[str, str] = ("delay_by_carrier", JOINING)
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
        course = Course(Patience(plan.stall_s, watch, dagster.api), feeder, bars)
        course.until(lambda: watch.began({*STREAMS} - {FOLLOWING, JOINING}), days=plan.first_days)
        report.say(
            "feeder", f"every stream that reads flights has begun; dropping {plan.days_per_second:g} days a second"
        )
        first, second = plan.victims
        course.until(
            lambda: watch.standings[first].days >= plan.kill_at and watch.standings[second].days >= plan.kill_at // 2,
            days=plan.kill_at,
        )
        strikes = {stream: _strike(stream, watch.store, dagster, report) for stream in plan.victims}
        kills: dict[str, Kill] = {}
        course.until(lambda: _all_recovered(strikes, kills, watch, report), days=len(days))
        course.until(lambda: watch.through(len(days)), days=len(days))
    report.say("end", "every day is committed in every stream; ending the Dagster runs")
    end_runs(dagster.api)
    watch.look(time.monotonic())  # a run that ends may have committed once more
    roll_back(FOLLOWING, watch.store, report)
    rates = {stream: watch.rows_per_second(stream) for stream in STREAMS}
    rates |= _go_on(plan, len(days), folder, dagster, report)
    fork(first, f"dev/{first}", watch.store, report)
    equal = prove(lambda stream: watch.store.stream(stream).read(), folder.inbox, PREPARED_WEATHER, report)
    report.outcome(
        [
            Outcome(stream, standing(watch.store, stream), rates[stream], equal[stream], kills.get(stream))
            for stream in EXPECTED
        ]
    )
    return all(equal.values())


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
    report.say("kill", f"SIGKILL to process {worker}, the worker of {stream}, at epoch {epoch}; recovery is automatic")
    return Strike(epoch, at_s)


def _all_recovered(strikes: Mapping[str, Strike], kills: dict[str, Kill], watch: Watch, report: Report) -> bool:
    """Whether each stream has committed since its kill; adds those that have to `kills`, and reports them."""
    for stream, strike in strikes.items():
        epoch = watch.standings[stream].epoch
        if stream not in kills and epoch > strike.epoch:
            kills[stream] = Kill(strike.epoch, epoch, time.monotonic() - strike.at_s)
            seconds = f"{kills[stream].seconds:.1f} s after the kill"
            report.say("recovery", f"by the sensor: epoch {epoch} of {stream}, {seconds}")
    return kills.keys() == strikes.keys()


def _go_on(plan: Plan, days: int, folder: RunFolder, dagster: DagsterDev, report: Report) -> dict[str, float]:
    """Bring the stream that went back forward again, draw the report, and work the streams that end.

    Returns how many rows a second each of the latter took in.
    """
    api, began_s = dagster.api, time.monotonic()
    watch = Watch(CheckpointStore(folder.store), [*STREAMS, *IN_TIME], began_s)
    patience = Patience(plan.stall_s, watch, api)
    api.launch(f"{FOLLOWING}_job")
    in_time = api.launch("flights_in_time_job")
    report.say("in time", f"{', '.join(IN_TIME)}: one after another in one Dagster run, over the whole year")
    patience.until(lambda: watch.standings[FOLLOWING].days >= days)
    tell_forward(FOLLOWING, watch.store, report)
    drawn = api.launch("carrier_report_job")
    patience.until(lambda: not any(api.run(run).unfinished for run in (in_time, drawn)))
    for run in (in_time, drawn):
        if (status := api.run(run).status) != "SUCCESS":
            raise DemoError(f"a Dagster run ended as it should not. run={run}, status={status}")
    watch.look(time.monotonic())
    report.say("in time", f"all of it in {time.monotonic() - began_s:.0f} s, Spark's start included")
    report.say("report", f"of two streams, aligned: {os.path.relpath(folder.report)}")
    end_runs(api)
    return {stream: watch.rows_per_second(stream) for stream in IN_TIME}


def end_runs(api: DagsterApi) -> None:
    """Ask every Dagster run to end, and wait. Raises DemoError where one does not."""
    api.terminate([run.id for run in api.runs() if run.unfinished])
    deadline = time.monotonic() + END_S
    while unfinished := [run for run in api.runs() if run.unfinished]:
        if time.monotonic() > deadline:
            raise DemoError(f"these Dagster runs did not end. seconds={END_S:.0f}, runs={unfinished}")
        time.sleep(LOOK_S)
