"""Which epochs a step has loaded through the IO manager: what it materializes names them, and the result of a check."""

from collections import OrderedDict
from threading import Lock

import dagster as dg

_STEPS_KEPT = 64

_loaded: OrderedDict[tuple[str, str], dict[str, int]] = OrderedDict()
_lock = Lock()


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
