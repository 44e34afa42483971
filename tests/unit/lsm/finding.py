"""Keys searched in one run or view, for tests."""

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flatten, take
from dagster_ckpt.lsm.layer_search import find, start_probe
from dagster_ckpt.lsm.runs.run import ABSENT, Run
from dagster_ckpt.lsm.runs.view import View
from dagster_ckpt.lsm.table import Hashes


def positions(view: View | Run, hashes: Hashes, keys: pa.Table) -> Positions:
    """The position of each key in the run, or `ABSENT`; the keys in any order."""
    layer = [View(view) if isinstance(view, Run) else view]
    order = np.argsort(hashes, kind="stable")
    hashes, keys = hashes[order], take(flatten(keys), order)
    match = find(start_probe(layer, hashes, np.arange(len(hashes))), hashes, keys)
    found = np.full(len(hashes), ABSENT, dtype=np.int64)
    found[order[match.probe.queries]] = match.at
    return found
