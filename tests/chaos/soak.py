"""`python -m tests.chaos.soak` lets two streams commit as often as they can for a long time: does anything grow?"""

import json
import os
import shutil
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks import facts
from tests.chaos.cluster import Cluster
from tests.chaos.feeder import Feeder
from tests.chaos.flatness import verdict
from tests.chaos.gauges import GROWS, TOLERANCES, Gauge, Gauges
from tests.chaos.lanes import CONTINUOUS, INTERVAL_VARIABLE, USUAL
from tests.chaos.services import ROOT
from tests.chaos.world import until

WORK = ROOT / ".work"
INTERVAL = "100ms"
FILES_PER_SECOND = 5.0
LOOK_S = 1.0

SOAKED = [lane for lane in CONTINUOUS if lane in USUAL]

console = Console(highlight=False, soft_wrap=True)


@click.command()
@click.option("--minutes", default=30.0, show_default=True, help="For how long, once both streams work.")
@click.option("--every", default=30.0, show_default=True, help="Seconds between two samples.")
@click.option("--results", type=click.Path(path_type=Path), default=WORK / "soak.json", help="Written anew.")
def main(minutes: float, every: float, results: Path) -> None:
    """Sample memory, files and times of two streams at a high epoch rate, and say of each whether it is flat."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    place = WORK / "soak" / f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}"
    place.mkdir(parents=True)
    samples = soak(place, minutes * 60, every)
    verdicts = _verdicts(samples)
    about = {"minutes": minutes, "commit": facts.commit(ROOT), "machine": facts.machine()}
    results.parent.mkdir(parents=True, exist_ok=True)
    results.write_text(json.dumps({**about, "verdicts": verdicts, "samples": samples}, indent=1))
    shutil.rmtree(place)
    console.print(_table(verdicts))
    if not all(each["flat"] for each in verdicts):
        sys.exit(1)


def soak(place: Path, seconds: float, every_s: float) -> list[dict[str, Any]]:
    """The samples, each with its second, the load, and the gauges of each lane."""
    samples: list[dict[str, Any]] = []
    with Cluster(place, {INTERVAL_VARIABLE: INTERVAL}) as cluster, Feeder(place, FILES_PER_SECOND):
        gauges = {lane: Gauge(cluster, lane) for lane in SOAKED}
        cluster.wait_until_ready()
        until("both streams commit", lambda: all(cluster.standing(lane).rows for lane in SOAKED))
        began_s = time.monotonic()
        next_s = began_s + every_s
        while time.monotonic() - began_s < seconds:
            time.sleep(LOOK_S)
            for gauge in gauges.values():
                gauge.look()
            if time.monotonic() >= next_s:
                next_s += every_s
                lanes = {lane: gauge.read() for lane, gauge in gauges.items()}
                samples.append({"second": round(time.monotonic() - began_s), "load": os.getloadavg()[0], **lanes})
                _tell(samples[-1]["second"], lanes)
    return samples


def _tell(second: int, lanes: dict[str, Gauges | None]) -> None:
    for lane, gauges in lanes.items():
        if gauges is None:
            console.print(f"{second:>5} s  {lane:<9} is not at work")
            continue
        rss = " ".join(f"{gauges[name] / 2**20:.0f}" for name in ("driver_rss", "jvm_rss", "python_workers_rss"))
        console.print(
            f"{second:>5} s  {lane:<9} {gauges['epochs']:>4} epochs, p50 {gauges['epoch_p50_ms']:.0f} ms, "
            f"rss {rss} MiB, {gauges['files']} files, manifest {gauges['manifest_bytes']} bytes"
        )


def _verdicts(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for lane in SOAKED:
        for name, tolerance in TOLERANCES.items():
            series = [sample[lane][name] for sample in samples if sample[lane] is not None]
            said = verdict(series, tolerance)
            found.append(
                {
                    "lane": lane,
                    "gauge": name,
                    "middle": said.middle,
                    "last": said.last,
                    "bound": said.bound,
                    "judged": (lane, name) not in GROWS,
                    "flat": said.is_flat or (lane, name) in GROWS,
                }
            )
    return found


def _table(verdicts: list[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("stream", "gauge"):
        table.add_column(heading, no_wrap=True)
    for heading in ("middle third", "last third", "at most"):
        table.add_column(heading, justify="right")
    table.add_column("flat")
    for each in verdicts:
        word = ("yes" if each["flat"] else "[red]no[/]") if each["judged"] else "grows by design"
        unit, size = ("MiB", 2**20) if each["gauge"].endswith("_rss") or each["gauge"] == "bytes" else ("", 1)
        numbers = (f"{each[part] / size:,.1f} {unit}".strip() for part in ("middle", "last", "bound"))
        table.add_row(each["lane"], each["gauge"], *numbers, word)
    return table


if __name__ == "__main__":
    main()
