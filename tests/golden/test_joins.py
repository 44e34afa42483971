"""What Flink's tests expect of interval and window joins: one row an epoch, and each epoch is a restart.

The empty interval is an error with us. An unmatched right row has its window's bounds with us, and null with Flink.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest
from typing import Any

import pytest

from dagster_ckpt.operators.joins.join_types import LEFT, RIGHT
from dagster_ckpt.operators.shared.window_kinds import Tumbling
from tests.golden.cases import cases_of, micros
from tests.unit.operators.joined_streams import Batch, Joined, Row, Watermark, in_dicts, interval_join, window_join

SECOND = 1_000_000
DELAYS = (SECOND, SECOND)


def one_by_one(lefts: Sequence[Row], rights: Sequence[Row]) -> list[Batch]:
    """A row of the left, one of the right, and so on."""
    pairs = zip_longest([(LEFT, [row]) for row in lefts], [(RIGHT, [row]) for row in rights])
    return [batch for batch in chain.from_iterable(pairs) if batch is not None]


def fed(stream: Joined, batches: Iterable[Batch], watermark: Watermark) -> tuple[list[Row], list[Row]]:
    """What comes out, and what is late, in an epoch for each row, with one after it that its watermark is for."""
    out, late = [], []
    for batch in batches:
        out += stream.epoch(batch, watermark_us=watermark.us)
        late += [row for _, row in stream.late]
        watermark.move([batch])
        out += stream.epoch(watermark_us=watermark.us)
    return out, late


def counted(rows: Iterable[Sequence[Any]]) -> Counter[Row]:
    return Counter(map(tuple, rows))


def test_rows_of_an_interval() -> None:
    file = cases_of("interval_join.json")
    (case,) = (case for case in file["cases"] if case["kind"] == "inner")
    stream, _ = in_dicts(interval_join(-5 * SECOND, 5 * SECOND))
    watermark = Watermark(DELAYS)
    for part in ("before", "after"):
        lefts = [(str(key), micros(at), 0) for key, at in file["left"][part]]
        rights = [(str(key), micros(at), number) for number, key, at in file["right"][part]]
        out, _ = fed(stream, one_by_one(lefts, rights), watermark)
        wanted = [(str(key), micros(ordered), micros(shipped)) for key, ordered, shipped in case[f"out_{part}"]]
        assert counted((key, ordered, shipped) for key, ordered, _, shipped, _ in out) == counted(wanted)


@pytest.mark.parametrize("how", ["inner", "left", "right"])
def test_rows_of_a_window(how: str) -> None:
    file = cases_of("window_join.json")
    (case,) = (case for case in file["cases"] if case["kind"].startswith(how))
    operator = window_join(Tumbling(5 * SECOND), how)
    stream, _ = in_dicts(operator)
    watermark = Watermark(DELAYS)
    late = []
    for part in ("before", "after"):
        lefts, rights = (
            [(name, micros(at), int(id_[1:]) * 1000 + number) for at, id_, number, name in file[side][part]]
            for side in ("left", "right")
        )
        out, its_late = fed(stream, one_by_one(lefts, rights), watermark)
        late += its_late
        if part == "after":
            out += stream.epoch(watermark_us=max(row[1] for row in lefts if row[1] is not None) + operator.horizon_us)
        wanted = [(micros(row[0]), micros(row[1]), *row[2:]) for row in case[f"out_{part}"]]
        assert counted(map(as_flink_has_it, out)) == counted(wanted)
    assert [row[2] // 1000 for row in late] == [4, 4]


def as_flink_has_it(row: Row) -> Row:
    """Window, name, and of both sides id and number; nothing of the left's where there is only a right row."""
    name, start, end, left_time, left_value, _, right_value = row
    if left_time is None:
        start = end = name = None
    return (start, end, name, *_id_and_number("L", left_value), *_id_and_number("R", right_value))


def _id_and_number(side: str, value: int | None) -> tuple[str | None, int | None]:
    return (None, None) if value is None else (f"{side}{value // 1000}", value % 1000)
