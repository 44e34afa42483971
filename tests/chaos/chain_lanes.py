"""The chain under fire: three streams, each of which reads the one before it, and what each one's table must be."""

import pandas as pd

from tests.chaos.lanes import Judge, Wrong, wrong_aggregate, wrong_copy

MORE_THAN = 0
"""The keys whose total is greater are in `positive`. Totals walk about it, so keys come and go."""


def wrong_selection(table: pd.DataFrame, rows: pd.DataFrame) -> Wrong:
    """What is wrong with a table of one row for each key with a total of more than `MORE_THAN`, given the input."""
    totals = rows.groupby("key")["value"].transform("sum")
    return wrong_aggregate(table, rows[totals > MORE_THAN])


CHAIN: dict[str, Judge] = {"ids": wrong_copy, "totals": wrong_aggregate, "positive": wrong_selection}
"""Every stream, from the sources down, with what tells its table from the right one."""
