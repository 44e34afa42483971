"""`python -m tests.chaos.isolation` lets one of two chains fail for ever: the other's epochs must keep their pace."""

import shutil
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console

from tests.chaos.cluster import Cluster
from tests.chaos.feeder import Feeder
from tests.chaos.rounds import RECOVERY_S_MAX
from tests.chaos.services import ROOT
from tests.chaos.world import until

LOCATION = Path(__file__).with_name("isolation_location.py")
SOUND, BROKEN = ("sound_totals", "sound_positive"), ("broken_totals", "broken_positive")

PACE_KEPT = 0.5
"""What is left of the pace at least. They share a host: each new start of the broken one takes from its cores."""

console = Console(highlight=False, soft_wrap=True)


@click.command()
@click.option("--minutes", default=3.0, show_default=True, help="How long to measure, before and after.")
def main(minutes: float) -> None:
    """Measure how many epochs a minute the sound chain commits, alone and beside one that fails for ever."""
    for number in (signal.SIGINT, signal.SIGTERM):  # past all that has to be ended, as Ctrl-C
        signal.signal(number, signal.default_int_handler)
    place = ROOT / ".work" / "chaos" / f"isolation-{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}"
    place.mkdir(parents=True)
    with Cluster(place, {}, LOCATION) as cluster, Feeder(place):
        cluster.wait_until_ready()
        lanes = (*SOUND, *BROKEN)
        until("every stream commits", lambda: all(cluster.standing(lane).rows for lane in lanes), RECOVERY_S_MAX)
        before = _paces(cluster, minutes)
        (place / "poison").touch()
        until("the poisoned stream fails", lambda: _failures(cluster) > 0, RECOVERY_S_MAX)
        stuck = cluster.standing("broken_totals").epoch
        beside = _paces(cluster, minutes)
        failures, readable = _failures(cluster), cluster.history("broken_positive").read().num_rows
        assert cluster.standing("broken_totals").epoch == stuck, "the poisoned stream commits"
        (place / "poison").unlink()
        until(
            "the broken chain goes on by itself",
            lambda: (
                cluster.standing("broken_totals").epoch > stuck
                and max(each.epoch for each in cluster.history("broken_positive").manifest().consumed) > stuck
            ),
            RECOVERY_S_MAX,
        )
    shutil.rmtree(place)
    console.print(
        f"{failures} failed runs of broken_totals, stuck at epoch {stuck}; {readable} rows of broken_positive"
    )
    kept = True
    for lane in SOUND:
        share = beside[lane] / before[lane]
        kept = kept and share >= PACE_KEPT
        console.print(f"{lane}: {before[lane]:.1f} epochs a minute before, {beside[lane]:.1f} beside it ({share:.0%})")
    if not kept:
        console.print(f"[red]the sound chain has lost its pace[/]: less than {PACE_KEPT:.0%} of it is left")
        sys.exit(1)


def _paces(cluster: Cluster, minutes: float) -> dict[str, float]:
    """Epochs a minute of each stream of the sound chain, from now on."""
    began, began_s = {lane: _epochs(cluster, lane) for lane in SOUND}, time.monotonic()
    time.sleep(minutes * 60)
    took_minutes = (time.monotonic() - began_s) / 60
    return {lane: (_epochs(cluster, lane) - began[lane]) / took_minutes for lane in SOUND}


def _epochs(cluster: Cluster, lane: str) -> int:
    return cluster.history(lane).latest().total_epochs


def _failures(cluster: Cluster) -> int:
    return sum(run.status == "FAILURE" for run in cluster.runs("broken_totals"))


if __name__ == "__main__":
    main()
