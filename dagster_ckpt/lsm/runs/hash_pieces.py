"""Cuts a range of hashes into pieces of about equal rows, to process in parts a table that is larger than memory."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from dagster_ckpt.hash_range import HashRange
from dagster_ckpt.lsm.runs.run import Run
from dagster_ckpt.lsm.stored_columns import row_bytes
from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.protocol.manifest.manifest import ChangeRef, RunRef


def cut_pieces(runs: Sequence[Run], within: HashRange, rows_max: int) -> Iterator[HashRange]:
    """Adjacent ranges, ascending, that make up `within`, each with about `rows_max` rows of these runs.

    Rows of one hash stay together, so a range may have more. Only the runs' directories are read.
    """
    spans = [(run, _first(run, within.lo), _first(run, within.hi + 1)) for run in runs if len(run)]
    rows = sum(until - start for _, start, until in spans)
    if rows <= rows_max:
        yield within
        return
    parts = -(-rows // rows_max)
    # Even cuts of each run, in proportion to its rows: together they are nearly the cuts of all rows.
    cuts = np.sort(
        np.concatenate(
            [_even_cuts(run, start, until, -(-parts * 4 * (until - start) // rows)) for run, start, until in spans]
        )
    )
    chosen = np.unique(cuts[np.linspace(0, len(cuts), parts, endpoint=False)[1:].astype(np.int64)])
    lo = within.lo
    for cut in chosen.tolist():
        if lo < cut <= within.hi:
            yield HashRange(lo, cut - 1)
            lo = cut
    yield HashRange(lo, within.hi)


def rows_in(bytes_: int, files: Iterable[RunRef | ChangeRef], schema: pa.Schema) -> int:
    """About how many rows of these files take `bytes_` bytes in memory; at least one. `schema` is the table's."""
    rows = file_bytes = 0
    for file in files:
        rows, file_bytes = rows + file.rows, file_bytes + file.bytes
    # A file's integers may be narrower than they are in memory; its strings are not shorter.
    of_a_row = max(row_bytes(schema), file_bytes // rows if rows else 0)
    return max(1, bytes_ // of_a_row)


def _first(run: Run, hash_: int) -> int:
    """About the position of the first row whose hash is not less."""
    directory = run.directory
    cell = (hash_ - directory.least) >> directory.shift
    if cell < 0:
        return 0
    return int(directory.first[cell]) if cell < len(directory.first) else len(run)


def _even_cuts(run: Run, start: int, until: int, count: int) -> Hashes:
    directory = run.directory
    rows = start + (np.arange(count) * (until - start)) // max(count, 1)
    cells = np.searchsorted(directory.first, rows, side="right") - 1
    return np.uint64(directory.least) + (cells.astype(np.uint64) << np.uint64(directory.shift))
