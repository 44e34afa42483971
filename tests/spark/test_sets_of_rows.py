"""Distinct rows, union, intersection and difference as steps, behind steps that change and over rows that only come."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dagster_ckpt import agg
from dagster_ckpt.runtime.declared.stream import Stream
from tests.spark.streams import StreamUnderTest
from tests.spark.test_several_steps import drop, rows_of

Rows = list[tuple[str, str, int]]
Counts = Counter[tuple[Any, ...]]
LEFT: list[Rows] = [
    [("o1", "a", 5), ("o1", "a", 5), ("o2", "b", 7)],
    [("o3", "a", 1), ("o2", "b", 7), ("o4", "c", 2)],
]
RIGHT: list[Rows] = [
    [("o1", "a", 5), ("o9", "d", 3)],
    [("o3", "a", 1), ("o2", "b", 14), ("o1", "a", 5), ("o2", "b", 7)],
]


def once(rows: Counts) -> Counts:
    return Counter(set(rows))


MODELS: dict[str, Callable[[Counts, Counts], Counts]] = {
    "distinct": lambda left, _: once(left),
    "union": lambda left, right: left + right,
    "intersect": lambda left, right: once(left & right),
    "intersect_all": lambda left, right: left & right,
    "subtract": lambda left, right: Counter({row: 1 for row in left if row not in right}),
    "except_all": lambda left, right: left - right,
}


def totals(rows: Rows) -> Counts:
    shops = {shop for _, shop, _ in rows}
    return Counter((shop, sum(amount for _, where, amount in rows if where == shop)) for shop in shops)


OF_ROWS_THAT_COME = ("distinct", "intersect_all")


@pytest.mark.parametrize("method", MODELS)
def test_a_set_of_rows_is_that_of_all_rows_so_far(spark: SparkSession, tmp_path: Path, method: str) -> None:
    changing = method not in OF_ROWS_THAT_COME
    stream, folders = StreamUnderTest(spark, tmp_path, shards=2), (tmp_path / "left", tmp_path / "right")

    def declared(session: SparkSession) -> Stream:
        left, right = (rows_of(session, folder) for folder in folders)
        if changing:
            left, right = (side.key_by("shop").aggregate(total=agg.sum("amount")) for side in (left, right))
        made: Stream = left.distinct() if method == "distinct" else getattr(left, method)(right)
        return made

    for number in range(2):
        for folder, epochs in zip(folders, (LEFT, RIGHT), strict=True):
            drop(folder, number, epochs[number])
        stream.run(declared)
        so_far = [[row for rows in epochs[: number + 1] for row in rows] for epochs in (LEFT, RIGHT)]
        left, right = (totals(rows) if changing else Counter(rows) for rows in so_far)
        assert Counter(tuple(row.values()) for row in stream.rows()) == MODELS[method](left, right)
