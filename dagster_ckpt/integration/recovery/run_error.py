"""What a failed Dagster run failed with, from the one place that surely knows: its own event log."""

import re
from typing import Any

import dagster as dg

from dagster_ckpt.integration.recovery.crash_loop import RunError

_NO_WORD = {
    # The process was ended from outside: nobody knows why.
    "ChildProcessCrashException",
    "DagsterExecutionInterruptedError",
    "KeyboardInterrupt",
    # Another writer is at work.
    "FencedError",
}
"""Errors that say nothing of the stream: starting it again is the right answer to each of them."""

_MASTER_IS_UNAVAILABLE = re.compile(
    # The scheduler backend of a standalone cluster; and what raises in the driver, whose context it stops in a thread
    # of its own, depends on how far the driver had come.
    r"All masters are unresponsive"
    r"|stopped SparkContext.*was stopped at:\s+org\.apache\.spark\.SparkContext\$\$anon"
    r'|"org\.apache\.spark\.SparkEnv\$\.get\(\)" is null'
    # Kubernetes and YARN, from within the constructor of the context.
    r"|calling None\.org\.apache\.spark\.api\.java\.JavaSparkContext\b.*"
    r"(?:ConnectException|UnknownHostException|SocketTimeoutException|NoRouteToHostException|ConnectTimeoutException"
    r"|Connection refused|Connection timed out|Failed to connect)",
    re.DOTALL,
)
"""What Spark raises where its master, or what stands for one, cannot be reached."""


def run_error(instance: dg.DagsterInstance, run: dg.DagsterRun, step: str) -> RunError | None:
    """The error that ended this step of the run, or the run itself before it came to that. None: there is no word."""
    wanted = {dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE}
    found: RunError | None = None
    for record in instance.get_records_for_run(run.run_id, of_type=wanted).records:
        event = record.event_log_entry.dagster_event
        if event is None:
            continue
        own_step = event.event_type is dg.DagsterEventType.STEP_FAILURE and event.step_key == step
        if own_step or event.event_type is dg.DagsterEventType.RUN_FAILURE:
            found = _read(getattr(event.event_specific_data, "error", None)) if own_step or found is None else found
    return found


def _read(error: Any) -> RunError | None:
    """Dagster's record of an exception: `cls_name`, `message` (which repeats the class) and `cause`."""
    if error is None:
        return None
    while error.cause is not None and str(error.cls_name).startswith("Dagster"):
        error = error.cause  # Dagster's own wrapping says only where
    kind = str(error.cls_name or "").rpartition(".")[2]
    if kind in _NO_WORD:
        return None
    message = str(error.message).strip()
    unavailable = kind == "StoreUnavailableError" or _MASTER_IS_UNAVAILABLE.search(message) is not None
    return RunError(kind, message.partition(f"{kind}: ")[2] or message, unavailable)
