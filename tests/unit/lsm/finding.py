"""Keys searched in one run or view, for tests."""

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flatten, take
from dagster_ckpt.lsm.lookup.layer_search import asked_of, find
from dagster_ckpt.lsm.runs.run import ABSENT, Run
from dagster_ckpt.lsm.runs.view import View
from dagster_ckpt.lsm.table import Hashes


def positions(view: View | Run, hashes: Hashes, keys: pa.Table) -> Positions:
    """Where each key lies in the run, or `ABSENT`; the keys in any order."""
    layer = [View(view) if isinstance(view, Run) else view]
    order = np.argsort(hashes, kind="stable")
    hashes, keys = hashes[order], take(flatten(keys), order)
    located = find(asked_of(layer, hashes, np.arange(len(hashes))), hashes, keys)
    found = np.full(len(hashes), ABSENT, dtype=np.int64)
    found[order[located.asked.queries]] = located.at
    return found
