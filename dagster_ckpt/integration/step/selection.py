"""Which streams one Dagster run works on, and how long it may work on them."""

import multiprocessing
from collections.abc import Mapping, Sequence

import dagster as dg

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
