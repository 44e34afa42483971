"""What each demo has around its story: signals, a Dagster that is ready, and what is shown after an error."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from demo import dagster_dev
from demo.dagster_dev import DagsterDev
from demo.errors import DemoError
from demo.report import Report
from demo.run_folder import RunFolder


def played(demo: Callable[[Report], int], report: Report) -> int:
    """Play it; returns its exit status, or 1 where it gave up and 130 after Ctrl-C."""
    # A plain kill goes the way of Ctrl-C, past all that has to be ended. So does Ctrl-C itself, which a script that
    # started us with & made us ignore.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        return demo(report)
    except DemoError as error:
        report.trouble(str(error))
        return 1
    except KeyboardInterrupt:
        report.say("end", "interrupted; every process is ended")
        return 130


def ready_dagster(
    folder: RunFolder,
    environment: Mapping[str, str],
    report: Report,
    at_the_end: ExitStack,
    workspace: Path = dagster_dev.WORKSPACE,
) -> DagsterDev:
    """A Dagster that can launch runs; it ends with all it started, and after an error its log is shown."""
    began_s = time.monotonic()
    dagster = dagster_dev.start(folder.home, folder.log, environment, keep_open=[folder.lock], workspace=workspace)
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
