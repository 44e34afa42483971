"""The proof: each stream's table against the batch computation of the same input."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow as pa

from demo.batch import EXPECTED
from demo.comparison import difference
from demo.report import Report


def prove(read: Callable[[str], pa.Table], flights: Path, weather: Path, report: Report) -> dict[str, bool]:
    """For each stream, whether the table that `read` gives is what the files in these folders must lead to.

    Rows that differ are reported.
    """
    equal = {}
    for stream, expected in EXPECTED.items():
        found = difference(pl.DataFrame(read(stream)), expected.of(flights, weather), expected.key)
        report.difference(stream, found)
        equal[stream] = not found
    return equal
