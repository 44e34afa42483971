"""Multi-get: the newest word of each key, newest run first, and only keys not yet found go on to the next."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flatten, stack, take
from dagster_ckpt.lsm.run import ABSENT
from dagster_ckpt.lsm.table import Found, Hashes
from dagster_ckpt.lsm.view import View


@dataclass(frozen=True)
class Answer:
    """What a multi-get over n keys found: the keys that have a row, the rows, and the keys no run said a word about.

    `asked` are the positions (among the n keys) of `rows`, in any order; `unknown` those that went through all runs.
    """

    asked: Positions
    rows: pa.Table
    unknown: Positions


def look_up(views: Iterable[View], hashes: Hashes, keys: pa.Table, schema: pa.Schema) -> Answer:
    """Search n distinct keys in the views, newest first. A tombstone ends the search: the key has no row."""
    keys = flatten(keys)
    unknown = np.arange(len(hashes))
    parts: list[tuple[Positions, pa.Table]] = []
    for view in views:
        if len(unknown) == 0:
            break
        everything = len(unknown) == len(hashes)
        rest = (hashes, keys) if everything else (hashes[unknown], take(keys, unknown))
        at = view.find(*rest)
        said = np.flatnonzero(at != ABSENT)
        if len(said) == 0:
            continue
        asked, at = unknown[said], at[said]
        unknown = np.delete(unknown, said)
        if view.run.tombstones is not None:
            alive = ~view.run.tombstones[at]
            asked, at = asked[alive], at[alive]
        parts.append((asked, take(view.run.columns(), at)))
    asked, rows = _joined(parts, schema)
    return Answer(asked, rows, unknown)


def found_of(n: int, parts: Sequence[tuple[Positions, pa.Table]], schema: pa.Schema) -> Found:
    """The rows of n keys, in the order of the keys: each part says which keys its rows belong to."""
    asked, rows = _joined(parts, schema)
    present = np.zeros(n, dtype=np.bool_)
    present[asked] = True
    if len(asked) > 1 and (asked[1:] < asked[:-1]).any():
        place = np.cumsum(present) - 1
        row_of_place = np.empty(len(asked), dtype=np.int64)
        row_of_place[place[asked]] = np.arange(len(asked))
        rows = take(rows, row_of_place)
    return Found(present, rows)


def _joined(parts: Sequence[tuple[Positions, pa.Table]], schema: pa.Schema) -> tuple[Positions, pa.Table]:
    parts = [part for part in parts if len(part[0])]
    if not parts:
        return np.zeros(0, dtype=np.int64), flatten(schema.empty_table())
    return np.concatenate([asked for asked, _ in parts]), stack([rows for _, rows in parts])
