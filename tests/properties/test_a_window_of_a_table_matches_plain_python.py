"""Windows over a table whose rows come, change and go, against loops over the rows that are there."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.operators import agg
from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.operators.shared.window_kinds import FixedWindow, Hopping, Tumbling
from dagster_ckpt.operators.windows.window_of_table import WindowOfTable
from dagster_ckpt.operators.windows.windowed_state import WindowOptions
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from tests.properties.aggregates_in_python import exact
from tests.properties.changing_rows import KIND, RANDOMS, SIZES, Bag, histories
from tests.properties.steps_in_python import aggregate as aggregated
from tests.properties.windows_in_python import FixedWindows
from tests.unit.operators.keyed_streams import SHARDS, TIME, Row, Stream, in_any_order, replayed
from tests.worlds.examples import examples

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("window_start", pa.float64()), ("at", TIME)])
VALUES: dict[str, list[Any]] = {
    "k": ["a", "b", None],
    "v": [0, 1, 5, -3, None],
    "window_start": [0.5, -0.5, 2.0, None],  # the name of a column that the step adds
    "at": [*range(-8, 24, 2), 3, None],
}
ROWS = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in VALUES.items()})
HISTORIES = histories(ROWS)
AGGREGATES: dict[str, Aggregation] = {
    "rows": agg.count(),
    "total": agg.sum("v"),
    "exact": agg.sum("window_start"),
    "least": agg.min("v"),
    "most": agg.max("window_start"),
    "kinds": agg.count_distinct("v"),
    "opening": agg.first("v"),
    "closing": agg.last("window_start", by="v"),
}
ORDERED = {**AGGREGATES, "opening": agg.first("v", by="at")}
WINDOWS = st.sampled_from([Tumbling(10), Tumbling(7, 3), Hopping(10, 5), Hopping(10, 4, 1), Hopping(9, 2)])
WORLDS = st.sampled_from([None, ([SHARDS], 1 << 28), ([SHARDS[:1], SHARDS[1:]], 1 << 12)])


def stream_of(window: FixedWindow, keys: tuple[str, ...], world: Any, *, early: bool, delay_us: int = 0) -> Stream:
    options = WindowOptions(window, AGGREGATES, "at", early, "drop")
    operator = WindowOfTable.build(keys, options, InputSpec((), SCHEMA.append(KIND)))
    return Stream(operator, delay_us) if world is None else Stream.on_engine(operator, delay_us, 1000, *world)


@dataclass
class Windows:
    """The rows of each open window, and what the closed ones had."""

    window: FixedWindow
    early: bool
    rows: dict[tuple[Any, int], Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    spelled: dict[str, Row] = field(default_factory=dict)

    def epoch(self, changes: Sequence[Row], watermark_us: int | None) -> tuple[int, list[Row]]:
        """How many rows are late, and the rows of the windows that close."""
        oracle, late = FixedWindows(self.window), 0
        for change in changes:
            row = {name: value for name, value in change.items() if name != KIND.name}
            self.spelled[exact(row)] = row
            starts = [
                start
                for start in oracle.starts(row["at"])
                if self.early or watermark_us is None or start + self.window.size_us > watermark_us
            ]
            late += not starts
            for start in starts:
                sign = 1 if change[KIND.name] in {"insert", "update_postimage"} else -1
                self.rows[row["k"], start][exact(row)] += sign
        if self.early or watermark_us is None:
            return late, []
        over = [key for key in self.rows if key[1] + self.window.size_us <= watermark_us]
        closed = {key: self.rows.pop(key) for key in over}
        return late, self.table(closed)

    def table(self, windows: dict[tuple[Any, int], Counter[str]]) -> list[Row]:
        found = list[Row]()
        for (key, start), counts in windows.items():
            assert all(count >= 0 for count in counts.values())
            rows = [self.spelled[text] for text, count in counts.items() for _ in range(count)]
            for row in aggregated(rows, ["k"], ORDERED):
                bounds = {"window_start": start, "window_end": start + self.window.size_us}
                found.append({"k": key, **bounds, **{name: row[name] for name in AGGREGATES}})
        return found


def changes_of(batches: Sequence[pa.Table]) -> list[Row]:
    plain = [batch.set_column(3, "at", batch.column("at").cast(pa.int64())) for batch in batches]
    return [row for batch in plain for row in batch.to_pylist()]


@examples(20, 3)
@given(HISTORIES, WINDOWS, SIZES, RANDOMS, WORLDS)
def test_with_early_results_the_table_is_that_of_the_rows_that_are_left(
    history: list[list[tuple[str, int, Row]]], window: FixedWindow, size: int, random: Random, world: Any
) -> None:
    stream, bag, oracle = stream_of(window, ("k",), world, early=True), Bag(SCHEMA), Windows(window, early=True)
    table = list[Row]()
    for steps in history:
        batches = bag.epoch(steps, size, random)
        stream.late.clear()
        changes = stream.epoch(*batches)
        late, _ = oracle.epoch(changes_of(batches), None)
        assert len(stream.late) == late, "a row without an event time is in no window"
        table = replayed(table, changes)
        assert in_any_order(table) == in_any_order(oracle.table(oracle.rows))
        assert in_any_order(stream.table()) == in_any_order(table)


@examples(20, 8)
@given(HISTORIES, WINDOWS, SIZES, RANDOMS, WORLDS, st.sampled_from([0, 3, 12]))
def test_without_them_a_window_has_the_rows_that_are_left_when_it_closes(
    history: list[list[tuple[str, int, Row]]],
    window: FixedWindow,
    size: int,
    random: Random,
    world: Any,
    delay_us: int,
) -> None:
    stream = stream_of(window, ("k",), world, early=False, delay_us=delay_us)
    bag, oracle = Bag(SCHEMA), Windows(window, early=False)
    for steps in [*history, None]:
        batches = [] if steps is None else bag.epoch(steps, size, random)
        if steps is None and stream.greatest_us is not None:
            stream.watermark_us = stream.greatest_us + (stream.operator.horizon_us or 0)
        watermark_us = stream.watermark_us
        stream.late.clear()
        changes = stream.epoch(*batches)
        late, closed = oracle.epoch(changes_of(batches), watermark_us)
        assert len(stream.late) == late
        assert in_any_order(changes) == in_any_order(closed)
    assert not any(stream.held().values()), "what is closed leaves nothing behind"
