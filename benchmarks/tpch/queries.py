"""The 22 queries of TPC-H, with the parameters by which its specification validates results.

One differs: what share of the total a part must have in query 11 depends on the scale, and here it is always 0.3 %.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from benchmarks.tpch.tables import KEYS

QUERIES: Mapping[str, str] = {
    path.stem: path.read_text() for path in sorted((Path(__file__).parent / "sql").glob("*.sql"))
}
"""The text of each, by its number, `01` to `22`."""


def tables_of(text: str) -> list[str]:
    """The tables that a query reads."""
    return [table for table in KEYS if re.search(rf"\b{table}\b", text)]
