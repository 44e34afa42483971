"""Which streams one Dagster run works on, how long it may work on them, and that they work one after another.

Dagster's multiprocess executor would start them in parallel, each with a separate Spark.
"""

import errno
import multiprocessing
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import dagster as dg

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.integration.declared import streaming_function
from dagster_ckpt.runtime.run_mode import Mode


def streams_in_run(context: dg.AssetExecutionContext) -> list[str]:
    """The op names of the streaming steps that this Dagster run executes."""
    steps = context.run.step_keys_to_execute
    names = [node.name for node in context.job_def.nodes if streaming_function.of_op(node.definition) is not None]
    return names if steps is None else [name for name in names if name in steps]


def mode_of_run(asked: Mode | None, own: Mode, streams: Sequence[str]) -> Mode:
    """The stream's mode in a Dagster run with these streams. `asked` is from the run config, `own` is the asset's.

    Several streams in one Dagster run work one after another, so none of them may run forever. Raises
    `InvalidPipelineError` if the run config asks for that.
    """
    if len(streams) < 2:
        return asked or own
    if asked is Mode.CONTINUOUS:
        raise InvalidPipelineError(
            "a continuous stream needs a separate Dagster run: launch each stream's job, or leave mode out to process "
            f"the available input, one stream after another. mode={asked}, streams={', '.join(sorted(streams))}"
        )
    return Mode.AVAILABLE_NOW


def works_in_a_child(context: dg.AssetExecutionContext) -> bool:
    """Whether the step runs in a child process that its Dagster run's worker has started.

    Only then may it die with its parent: a worker's parent is the code server, which it outlives.
    """
    if multiprocessing.parent_process() is None:
        return False
    return _starts_children(context.job_def.executor_def.name, context.run.run_config)


def _starts_children(executor: str, run_config: Mapping[str, object]) -> bool:
    if executor == dg.multi_or_in_process_executor.name:
        execution = run_config.get("execution")
        config = execution.get("config") if isinstance(execution, Mapping) else None
        return not (isinstance(config, Mapping) and "in_process" in config)
    return executor == dg.multiprocess_executor.name


_LOOK_MS = 500


@contextmanager
def run_mutex(run_id: str, clock: Clock) -> Iterator[None]:
    """Wait for this Dagster run's mutex on this host, and hold it. If the process dies, the kernel releases it.

    It is a socket in Linux's abstract namespace: a name that one process at a time can bind, and that leaves no file.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as holder:
        while not _bind(holder, f"\0dagster_ckpt/{run_id}"):
            clock.sleep_ms(_LOOK_MS)
        yield


def _bind(holder: socket.socket, name: str) -> bool:
    try:
        holder.bind(name)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    return True
