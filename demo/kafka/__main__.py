"""`python -m demo.kafka` plays the demo: `make demo-kafka` installs the servers that it starts."""

import os
import random
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from demo import run_folder
from demo.flights import prepared
from demo.kafka.places import RUNS, Places
from demo.kafka.producer import Flights
from demo.kafka.servers import started
from demo.kafka.story import Plan, play
from demo.report import Report
from demo.stage import played, ready_dagster

WORKSPACE = Path(__file__).with_name("workspace.yaml")


def demo(report: Report) -> int:
    """The whole story; returns the exit status."""
    began_s = time.monotonic()
    seed = int(os.environ.get("SEED") or random.randrange(10_000))
    report.title("A year of flights, from Kafka to everywhere, exactly once")
    year = prepared(run_folder.PREPARED)
    report.say("flights", f"{year.flights:,} of 2013, as JSON; {year.cancelled:,} were cancelled and are left out")
    folder = run_folder.fresh(RUNS)
    with ExitStack() as at_the_end:
        servers = at_the_end.enter_context(started())
        report.say("servers", f"Kafka and PostgreSQL, started in {time.monotonic() - began_s:.0f} s")
        places = Places(folder.path, servers.broker.address, servers.database.url)
        dagster = ready_dagster(folder, places.environment, report, at_the_end, WORKSPACE)
        equal = play(Plan(), seed, places, Flights(places.broker, year.days), servers, dagster, report)
    report.say("time", f"{time.monotonic() - began_s:.0f} s in all")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(played(demo, Report(Console())))
