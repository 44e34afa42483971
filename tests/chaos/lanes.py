"""The streams under fire by name, what each one's table must be, and how many rows of it were lost or doubled.

The right answer is plain pandas over all input files. It imports neither Spark nor Dagster nor what is tested.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

PLACE_VARIABLE = "DAGSTER_CKPT_TEST_PLACE"
INTERVAL_VARIABLE = "DAGSTER_CKPT_TEST_INTERVAL"
LANES_VARIABLE = "DAGSTER_CKPT_TEST_LANES"
"""Which of the streams there are, parted by commas: `USUAL` if it is not set."""

STORE_VARIABLE = "DAGSTER_CKPT_TEST_STORE"
"""Another store than the folder in the place: its URL and its options, as JSON."""

SPARK_VARIABLE = "DAGSTER_CKPT_TEST_SPARK"
"""Settings of Spark beside the usual ones, as JSON."""

SCHEMA = "id long, key long, value long"
RETAINED = 8
WINDOW_MS = 1_000
DELAY_MS = 2_000
"""The windows of `swept` and the delay of its watermark. A row's event time is its id, in milliseconds."""

_KEYS_MAX = 100_000


def inbox_in(place: Path) -> Path:
    """The folder into which rows are dropped."""
    return place / "inbox"


def checkpoints_in(place: Path) -> str:
    """The URL of the store."""
    return (place / "checkpoints").as_uri()


@dataclass(frozen=True)
class Wrong:
    """How a table differs from what it must be.

    `lost` and `doubled` count input rows that are in it too seldom and too often; `other` rows of the table that are
    wrong although they hold the right number of input rows.
    """

    lost: int = 0
    doubled: int = 0
    other: int = 0

    def __bool__(self) -> bool:
        """True where there is any difference."""
        return bool(self.lost or self.doubled or self.other)


def _per_key(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.groupby("key").agg(rows=("value", "size"), total=("value", "sum"), greatest=("value", "max"))


def wrong_aggregate(table: pd.DataFrame, rows: pd.DataFrame) -> Wrong:
    """What is wrong with a table of one row per key, given all input rows."""
    expected = _per_key(rows)
    if not table["key"].is_unique:
        return Wrong(other=int(table["key"].duplicated().sum()))
    actual = table.set_index("key")
    keys = expected.index.union(actual.index)
    more = actual["rows"].reindex(keys, fill_value=0) - expected["rows"].reindex(keys, fill_value=0)
    same = keys[more == 0]
    columns = ["rows", "total", "greatest"]
    unequal = (actual.loc[same, columns] != expected.loc[same, columns]).any(axis=1)
    return Wrong(int(-more[more < 0].sum()), int(more[more > 0].sum()), int(unequal.sum()))


def wrong_windows(table: pd.DataFrame, rows: pd.DataFrame) -> Wrong:
    """What is wrong with a table of one row per key and closed window, given all input rows, whose times are ids."""
    starts = rows["id"] // WINDOW_MS * WINDOW_MS
    closed = rows[starts + WINDOW_MS <= rows["id"].max() - DELAY_MS]
    began = table["window_start"].astype("int64") // 1_000
    # Keys are small numbers, so key and window make one number that only they have.
    return wrong_aggregate(
        table.assign(key=began * _KEYS_MAX + table["key"]),
        closed.assign(key=starts[closed.index] * _KEYS_MAX + closed["key"]),
    )


def wrong_copy(table: pd.DataFrame, rows: pd.DataFrame) -> Wrong:
    """What is wrong with a table that must have each input row exactly once."""
    times = table["id"].value_counts()
    expected = rows.set_index("id")
    lost = expected.index.difference(times.index)
    doubled = int((times - 1).sum())
    known = table.drop_duplicates("id").set_index("id")
    invented = known.index.difference(expected.index)
    both = known.index.intersection(expected.index)
    columns = ["key", "value"]
    unequal = (known.loc[both, columns] != expected.loc[both, columns]).any(axis=1)
    return Wrong(len(lost), doubled, len(invented) + int(unequal.sum()))


GROUPS = 7
"""So many groups of keys has `stepped`."""


def wrong_shares(table: pd.DataFrame, rows: pd.DataFrame) -> Wrong:
    """What is wrong with a table of one row per key that also has the totals of its group, given all input rows."""
    if wrong := wrong_aggregate(table, rows):
        return wrong
    groups = rows.groupby(rows["key"] % GROUPS)["value"].agg(["size", "sum"])
    expected = groups.loc[table["key"] % GROUPS]
    unequal = (table["of_rows"].to_numpy() != expected["size"].to_numpy()) | (
        table["of_total"].to_numpy() != expected["sum"].to_numpy()
    )
    return Wrong(other=int(unequal.sum()))


Judge = Callable[[pd.DataFrame, pd.DataFrame], Wrong]

LANES: dict[str, Judge] = {
    "keyed": wrong_aggregate,
    "appended": wrong_copy,
    "swept": wrong_windows,
    "stepped": wrong_shares,
}
"""Every stream, with what tells its table from the right one."""

CONTINUOUS = ("keyed", "appended", "stepped")
"""Those that never end by themselves."""

USUAL = ("keyed", "appended", "swept")
"""Those that are under fire where nobody says otherwise: two cores have no room for a fourth JVM."""


def rows_of(inbox: Path) -> pd.DataFrame:
    """All input rows there are."""
    return pd.concat([pd.read_parquet(file) for file in sorted(inbox.glob("*.parquet"))], ignore_index=True)
