"""Which epochs a step loads through the IO manager: what it materializes names them, and the result of a check.

Inputs of one asset with `consistency: "aligned"` all come from one cut. Dagster loads them one by one, while the
streams continue. So the snapshot is taken with the first of them, and kept for the others of the same attempt of the
same step.
"""

from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock
from typing import Any, Literal

import dagster as dg

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.history import CheckpointStore, Snapshot
from dagster_ckpt.integration.dagster_names import stream_name_of

CONSISTENCY = "consistency"
ALIGNED: Literal["aligned"] = "aligned"
_CHOICES = ("latest", ALIGNED)
_KEPT = 16

_taken: OrderedDict[tuple[object, ...], Snapshot] = OrderedDict()
_lock = Lock()


def plain_value(metadata: Mapping[str, Any], name: str) -> Any:
    """A value of an input's metadata, unwrapped from Dagster's `MetadataValue`; None where it is missing."""
    value = metadata.get(name)
    return value.value if isinstance(value, dg.MetadataValue) else value


def is_aligned(metadata: Mapping[str, Any]) -> bool:
    """Whether an input must come from one cut with others. Raises `InvalidPipelineError` for invalid metadata."""
    consistency = plain_value(metadata, CONSISTENCY)
    if consistency not in (None, *_CHOICES):
        raise InvalidPipelineError(f"an input's consistency is 'latest' or 'aligned'. consistency={consistency!r}")
    epoch = plain_value(metadata, "epoch")
    if consistency is not None and epoch is not None:
        raise InvalidPipelineError(
            f"an input has either an epoch or a consistency: leave out one of the two. "
            f"consistency={consistency!r}, epoch={epoch}"
        )
    return bool(consistency == ALIGNED)


def aligned_snapshot(context: dg.InputContext, store: CheckpointStore) -> Snapshot:
    """The aligned snapshot of the streams of all aligned inputs. Each input of a step gets the same."""
    as_of = plain_value(context.definition_metadata or {}, "as_of")
    try:
        step = context.step_context
    except dg.DagsterInvariantViolationError:
        return store.snapshot([stream_name_of(context.asset_key)], ALIGNED, as_of)  # loaded outside of any run
    keys = step.assets_def.keys_by_input_name if step.assets_def is not None else {context.name: context.asset_key}
    streams = []
    for name, given in sorted(context.op_def.ins.items()):
        metadata = given.metadata or {}
        if name in keys and is_aligned(metadata):
            if plain_value(metadata, "as_of") != as_of:
                raise InvalidPipelineError(
                    f"aligned inputs have one time: give all of them the same as_of, or none. "
                    f"input={name}, as_of={plain_value(metadata, 'as_of')}, other={context.name}, as_of={as_of}"
                )
            streams.append(stream_name_of(keys[name]))
    attempt = (step.run_id, step.step.key, step.previous_attempt_count, store.url, tuple(streams))
    with _lock:
        if attempt not in _taken:
            _taken[attempt] = store.snapshot(streams, ALIGNED, as_of)
            while len(_taken) > _KEPT:
                _taken.popitem(last=False)
        return _taken[attempt]


_STEPS_KEPT = 64

_loaded: OrderedDict[tuple[str, str], dict[str, int]] = OrderedDict()


def remember_loaded(context: dg.InputContext, stream: str, epoch: int) -> None:
    """The step of this input has loaded that epoch: the assets that it materializes get it as metadata.

    Nothing where the input is loaded outside of a run.
    """
    try:
        step = context.step_context
    except dg.DagsterInvariantViolationError:
        return
    for output in step.step.step_outputs:
        if output.properties.asset_key is not None:
            step.add_output_metadata({f"epoch/{stream}": dg.MetadataValue.int(epoch)}, output.name)
    with _lock:
        _loaded.setdefault((step.run_id, step.step.key), {})[stream] = epoch
        while len(_loaded) > _STEPS_KEPT:
            _loaded.popitem(last=False)


def epochs_loaded_by(run_id: str, step: str) -> dict[str, int]:
    """The epochs that this step has loaded in this process, by stream."""
    with _lock:
        return dict(_loaded.get((run_id, step), {}))
