"""`python -m demo` plays the demo; `python -m demo ui` starts Dagster's UI alone, on what the last demo left."""

import os
import sys
import time
from contextlib import ExitStack

from rich.console import Console

from demo import run_folder
from demo.feeder import drop
from demo.flights import Year, prepared
from demo.report import Report
from demo.stage import played, ready_dagster
from demo.story import Plan, play
from demo.weather import prepared_weather

KEEP = os.environ.get("KEEP", "0") not in ("", "0")
"""Whether the UI stays up after the demo."""


def main(arguments: list[str]) -> int:
    """Returns the exit status: 0 where all went well, 1 where not, 2 for words we do not know, 130 after Ctrl-C."""
    report = Report(Console())
    match arguments:
        case []:
            return played(demo, report)
        case ["ui"]:
            return played(ui, report)
        case _:
            report.trouble("usage: python -m demo [ui]")
            return 2


def demo(report: Report) -> int:
    """The whole story."""
    began_s = time.monotonic()
    report.title("A year of flights through twelve exactly-once streams, three of them in SQL")
    year = _year(report)
    folder = run_folder.fresh()
    with ExitStack() as at_the_end:
        dagster = ready_dagster(folder, folder.environment, report, at_the_end)
        equal = play(Plan(), year.days, folder, dagster, report)
        if KEEP:
            at_the_end.pop_all()
            report.say("ui", f"[bold]{dagster.url}[/] stays up; end it with: kill -INT {dagster.process.pid}")
    report.say("time", f"{time.monotonic() - began_s:.0f} s in all")
    return 0 if equal else 1


def ui(report: Report) -> int:
    """Dagster alone, until Ctrl-C. Where there was no demo yet, its input is the whole year."""
    report.title("Dagster on the streams of the demo")
    folder = run_folder.current()
    if folder is None:
        folder = run_folder.fresh()
        for day in _year(report).days:
            drop(day, folder.inbox)
    with ExitStack() as at_the_end:
        dagster = ready_dagster(folder, folder.environment, report, at_the_end)
        report.say("end", "with Ctrl-C")
        try:
            return dagster.process.wait()
        except KeyboardInterrupt:
            return 0


def _year(report: Report) -> Year:
    year = prepared(run_folder.PREPARED)
    report.say(
        "flights",
        f"{year.flights:,} of 2013, a file a day; {year.cancelled:,} were cancelled and are left out: no departure",
    )
    records = prepared_weather(run_folder.PREPARED_WEATHER)
    report.say("weather", f"{records:,} hourly records, a file a day")
    return year


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
