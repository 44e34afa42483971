"""A trigger's time as the state of a step over a changing table grows."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.disk import check_disk
from benchmarks.inputs import Inbox
from benchmarks.ours import Ours
from benchmarks.plan import Spread, Table, TableGrowth
from benchmarks.progress import Tell
from benchmarks.retired import RetiredFiles
from benchmarks.session import read_inbox, start
from dagster_ckpt import CheckpointStore, Stream, agg, over
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.runtime.spark.session import open_session


@dataclass(frozen=True)
class TableFigures:
    """Of each counted trigger its seconds, and those its last step's slowest task worked."""

    seconds: list[float]
    step_seconds: list[float]
    state_bytes: int


@dataclass(frozen=True)
class WayOfTable:
    """A step over the totals of as many inputs; what pandas says must come of these: `columns` in any order."""

    inputs: int
    columns: tuple[str, ...]
    ours: Callable[[TableGrowth, list[Stream]], Stream]
    truth: Callable[[TableGrowth, list[pd.DataFrame]], pd.DataFrame]


def run_table_growth(growth: TableGrowth, folder: Path, tell: Tell) -> dict[str, object]:
    """The figures as JSON has them. Raises RuntimeError where disk is short or the table is not what its input says."""
    way = WAYS[growth.table]
    check_disk(folder, 2 * way.inputs * growth.keys)
    tell(f"{growth.keys:,} keys are put in")
    spark = start(folder)
    inboxes = [Inbox(folder / f"inbox{number}", growth.keys, Spread.UNIFORM, number) for number in range(way.inputs)]
    store = folder / "store"
    ours = Ours(way.ours(growth, _totals(spark, inboxes)), store, retained=1)
    for inbox in inboxes:
        inbox.put_each_key(growth.fill_rows)
    ours.work(seen=RetiredFiles(store).seen)
    tell(f"triggers of {growth.rows:,} rows at {growth.keys:,} keys")
    for inbox in inboxes:
        inbox.put(growth.warm + growth.counted, growth.rows)
    manifests: list[Manifest] = []
    seconds = ours.work(seen=manifests.append)
    spark.stop()
    tell(f"is the table of {growth.keys:,} keys right?")
    found = CheckpointStore(store.as_uri()).stream("totals").read()
    _check(way, found, way.truth(growth, [_table_of(inbox) for inbox in inboxes]))
    counted = slice(growth.warm, growth.warm + growth.counted)
    figures = TableFigures(
        seconds=[round(one, 4) for one in seconds[counted]],
        step_seconds=[round(each.steps[-1].milliseconds / 1_000, 4) for each in manifests[counted]],
        state_bytes=manifests[-1].statistics.state_bytes,
    )
    return asdict(figures)


def _totals(spark: SparkSession, inboxes: list[Inbox]) -> list[Stream]:
    """Of each input the running totals of its keys: a table whose rows change."""
    session = open_session(spark)
    tables = []
    for number, inbox in enumerate(inboxes):
        rows = Stream(read_inbox(session, inbox.folder)).key_by("k")
        tables.append(rows.aggregate(**{f"rows{number}": agg.count(), f"total{number}": agg.sum("w")}))
    return tables


def _table_of(inbox: Inbox) -> pd.DataFrame:
    """Of each key: `k`, `rows`, `total`."""
    return inbox.sums().to_pandas()


def _check(way: WayOfTable, found: pa.Table, expected: pd.DataFrame) -> None:
    columns = list(way.columns)
    mine, theirs = (
        frame[columns].astype("int64").sort_values(columns, ignore_index=True)
        for frame in (found.to_pandas(), expected)
    )
    if not mine.equals(theirs):
        raise RuntimeError(f"the table is wrong. rows={len(mine)}, expected={len(theirs)}")


def _grouped(growth: TableGrowth, table: Stream) -> Stream:
    groups = growth.keys // growth.group
    return table.with_column("g", f"k % {groups}").key_by("g")


def _in_groups(growth: TableGrowth, table: pd.DataFrame) -> pd.DataFrame:
    """With the group and the place in it, the highest total first and then the least other columns."""
    grouped = table.assign(g=table["k"] % (growth.keys // growth.group))
    ordered = grouped.sort_values(["g", "total", "k"], ascending=[True, False, True])
    return ordered.assign(place=ordered.groupby("g").cumcount() + 1)


def _our_join(_: TableGrowth, tables: list[Stream]) -> Stream:
    left, right = tables
    return left.key_by("k").join(right.key_by("k"))


def _join_truth(_: TableGrowth, tables: list[pd.DataFrame]) -> pd.DataFrame:
    left, right = tables
    return left.merge(right, on="k", suffixes=("0", "1"))


def _our_top(growth: TableGrowth, tables: list[Stream]) -> Stream:
    return _grouped(growth, tables[0]).top(3, by=["total0 desc", "k asc"], rank="place")


def _top_truth(growth: TableGrowth, tables: list[pd.DataFrame]) -> pd.DataFrame:
    ordered = _in_groups(growth, tables[0])
    return ordered[ordered["place"] <= 3]


def _our_over(growth: TableGrowth, tables: list[Stream]) -> Stream:
    return _grouped(growth, tables[0]).over(["total0 desc", "k asc"], place=over.row_number())


def _over_truth(growth: TableGrowth, tables: list[pd.DataFrame]) -> pd.DataFrame:
    return _in_groups(growth, tables[0])


def _our_least(growth: TableGrowth, tables: list[Stream]) -> Stream:
    return _grouped(growth, tables[0]).aggregate(least=agg.min("total0"))


def _least_truth(growth: TableGrowth, tables: list[pd.DataFrame]) -> pd.DataFrame:
    return _in_groups(growth, tables[0]).groupby("g", as_index=False).agg(least=("total", "min"))


def _our_intersect(_: TableGrowth, tables: list[Stream]) -> Stream:
    left, right = tables
    return left.select("k", "rows0 AS rows").intersect(right.select("k", "rows1 AS rows"))


def _intersect_truth(_: TableGrowth, tables: list[pd.DataFrame]) -> pd.DataFrame:
    left, right = (table[["k", "rows"]] for table in tables)
    return left.merge(right)


WAYS: Mapping[Table, WayOfTable] = {
    Table.JOIN: WayOfTable(2, ("k", "total0", "total1"), _our_join, _join_truth),
    Table.TOP: WayOfTable(1, ("g", "k", "place"), _our_top, _top_truth),
    Table.OVER: WayOfTable(1, ("g", "k", "place"), _our_over, _over_truth),
    Table.LEAST: WayOfTable(1, ("g", "least"), _our_least, _least_truth),
    Table.INTERSECT: WayOfTable(2, ("k", "rows"), _our_intersect, _intersect_truth),
}
