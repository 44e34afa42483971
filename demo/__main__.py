"""`python -m demo` plays the demo; `python -m demo ui` starts Dagster's UI alone, on what the last demo left."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from rich.console import Console

from demo import dagster_dev, run_folder
from demo.dagster_dev import DagsterDev
from demo.errors import DemoError
from demo.feeder import drop
from demo.flights import Year, prepared
from demo.report import Report
from demo.run_folder import RunFolder
from demo.story import Plan, play
from demo.weather import prepared_weather

KEEP = os.environ.get("KEEP", "0") not in ("", "0")
"""Whether the UI stays up after the demo."""


def main(arguments: list[str]) -> int:
    """Returns the exit status: 0 where all went well, 1 where not, 2 for words we do not know, 130 after Ctrl-C."""
    report = Report(Console())
    # A plain kill goes the way of Ctrl-C, past all that has to be ended. So does Ctrl-C itself, which a script that
    # started us with & made us ignore.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        match arguments:
            case []:
                return demo(report)
            case ["ui"]:
                return ui(report)
            case _:
                report.trouble("usage: python -m demo [ui]")
                return 2
    except DemoError as error:
        report.trouble(str(error))
        return 1
    except KeyboardInterrupt:
        report.say("end", "interrupted; every process is ended")
        return 130


def demo(report: Report) -> int:
    """The whole story."""
    began_s = time.monotonic()
    report.title("A year of flights through eight exactly-once streams")
    year = _year(report)
    folder = run_folder.fresh()
    with ExitStack() as at_the_end:
        dagster = _ready_dagster(folder, report, at_the_end)
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
        dagster = _ready_dagster(folder, report, at_the_end)
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


def _ready_dagster(folder: RunFolder, report: Report, at_the_end: ExitStack) -> DagsterDev:
    """A Dagster that can launch runs; it ends with all it started, and after an error its log is shown."""
    began_s = time.monotonic()
    dagster = dagster_dev.start(folder.home, folder.log, folder.environment, keep_open=[folder.lock])
    at_the_end.callback(dagster.end)
    at_the_end.enter_context(_showing_log(dagster, report))
    report.say("dagster", f"starting, its log is {os.path.relpath(dagster.log)}")
    dagster.wait_until_ready()
    report.say("dagster", f"[bold]{dagster.url}[/] is ready after {time.monotonic() - began_s:.0f} s")
    return dagster


@contextmanager
def _showing_log(dagster: DagsterDev, report: Report) -> Iterator[None]:
    """After an error, the last words of Dagster's log and where the rest is."""
    try:
        yield
    except Exception:
        report.log(dagster.last_words(), os.path.relpath(dagster.log))
        raise


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
