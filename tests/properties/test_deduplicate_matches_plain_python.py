"""Deduplication, its input cut into any epochs and batches, against loops over lists."""

import struct
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.operators.rows.deduplicate import Deduplicate
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from tests.unit.operators.keyed_streams import SHARDS, TIME, Row, Stream, in_any_order, replayed
from tests.worlds.event_times import ENDS_OF_INT64, is_out_of_range
from tests.worlds.examples import examples

KEYS = ("k", "part")
SCHEMA = pa.schema(
    [("v", pa.int64()), ("k", pa.string()), ("f", pa.float64()), ("at", TIME), ("part", pa.int16()), ("s", pa.string())]
)
ROWS = st.fixed_dictionaries(
    {
        "v": st.sampled_from([1, 2, 2**63 - 1, None]),
        "k": st.sampled_from(["a", "b", None]),
        "f": st.sampled_from([float("nan"), float("-inf"), 0.0, -0.0, 2.5, None]),
        "at": st.integers(-10, 40) | st.integers(-10, 40) | st.integers(-10, 40) | st.none(),
        "part": st.sampled_from([1, None]),
        "s": st.sampled_from(["", "x", "é", None]),
    }
)
EPOCHS = st.lists(st.lists(st.lists(ROWS, max_size=6), max_size=3), min_size=1, max_size=7)
EXPIRIES = st.sampled_from([None, 1, 5, 20])
DELAYS = st.sampled_from([0, 3, 100])
Key = tuple[Any, ...]


def total(value: Any) -> Any:
    """A float by its bits, everything else as it is, null after all."""
    if isinstance(value, float):
        [bits] = struct.unpack(">q", struct.pack(">d", value))
        return (False, bits if bits >= 0 else bits ^ 0x7FFFFFFFFFFFFFFF)
    return (value is None, value.encode() if isinstance(value, str) else value or 0)


def best(rows: Iterable[Row], keep: str, times: bool, by: Sequence[str] = ()) -> Row:
    """The row that is kept of these."""
    names = list(dict.fromkeys([*by, *(["at"] if times else []), "v", "f", "at", "s"]))
    if keep == "first":
        return min(rows, key=lambda row: [total(row[name]) for name in names])
    return max(rows, key=lambda row: [(row[name] is not None, total(row[name])) for name in names])


@dataclass
class Oracle:
    keep: str
    times: bool
    expire_after_us: int | None
    by: tuple[str, ...] = ()
    kept: dict[Key, Row] = field(default_factory=dict)

    def epoch(self, rows: Iterable[Row], watermark_us: int | None) -> tuple[list[Row], list[Row]]:
        """The rows that were late, and those that came out or are the table."""
        late, new = [], defaultdict[Key, list[Row]](list)
        for row in rows:
            if self.expire_after_us is not None and (
                row["at"] is None
                or is_out_of_range(row["at"])
                or (watermark_us is not None and row["at"] < watermark_us)
            ):
                late.append(row)
            else:
                new[row["k"], row["part"]].append(row)
        out = []
        if self.keep == "first":
            self._forget(watermark_us)
        for key, its in new.items():
            if self.keep == "last" or self.by:
                kept = [self.kept[key]] if key in self.kept else []
                self.kept[key] = best([*its, *kept], self.keep, self.times, self.by)
            elif key not in self.kept:
                self.kept[key] = best(its, "first", self.times, self.by)
                out.append(self.kept[key])
        if self.keep == "last":
            self._forget(watermark_us)
        appends = self.keep == "first" and self.expire_after_us is not None
        return late, out if appends else list(self.kept.values())

    def _forget(self, watermark_us: int | None) -> None:
        if self.expire_after_us is not None and watermark_us is not None:
            until = watermark_us - self.expire_after_us
            self.kept = {key: row for key, row in self.kept.items() if row["at"] > until}


def agree(stream: Stream, oracle: Oracle, cut: list[list[list[Row]]]) -> None:
    table: list[Row] = []
    for batches in (*cut, []):
        seen, watermark_us = len(stream.late), stream.watermark_us
        changes = stream.epoch(*(pa.Table.from_pylist(batch, schema=SCHEMA) for batch in batches))
        late, wanted = oracle.epoch([row for batch in batches for row in batch], watermark_us)
        assert in_any_order(stream.late[seen:]) == in_any_order(late)
        if stream.operator.pipeline.appends:
            assert in_any_order(changes) == in_any_order(wanted)
        else:
            table = replayed(table, changes)
            assert in_any_order(table) == in_any_order(wanted)
            assert in_any_order(stream.table()) == in_any_order(table), "the change log leads to the table"


@st.composite
def operators(draw: st.DrawFn) -> tuple[Deduplicate, Oracle]:
    keep, times, expire_after_us = draw(st.sampled_from(["first", "last"])), draw(st.booleans()), draw(EXPIRIES)
    by = draw(st.sampled_from([(), (), ("s",), ("f", "v"), ("at", "s")]))
    if expire_after_us is not None and (keep == "first" or by[:1] != ("at",)):
        by = ()
    times = times or (keep == "last" and not by) or expire_after_us is not None
    event_time = "at" if times else None
    operator = Deduplicate.build(KEYS, InputSpec((), SCHEMA), keep, event_time, expire_after_us, by=by)
    return operator, Oracle(keep, times, expire_after_us, by)


@examples(100, 40)
@given(EPOCHS, operators(), DELAYS, st.sampled_from([1, 2, 1000]))
def test_every_epoch_keeps_the_rows_it_should(
    cut: list[list[list[Row]]], pair: tuple[Deduplicate, Oracle], delay_us: int, distinct: int
) -> None:
    operator, oracle = pair
    agree(Stream(operator, delay_us, distinct), oracle, cut)


FAR_EPOCHS = st.lists(
    st.lists(
        st.lists(st.tuples(ROWS, ENDS_OF_INT64).map(lambda pair: {**pair[0], "at": pair[1]}), max_size=5), max_size=2
    ),
    min_size=1,
    max_size=6,
)


@examples(50, 20)
@given(
    FAR_EPOCHS,
    st.sampled_from(["first", "last"]),
    st.sampled_from([1, 20, 1 << 60, (1 << 62) - 1]),
    st.sampled_from([0, 3, 1 << 62]),
)
def test_rows_near_the_ends_of_64_bits_are_late_or_kept_for_as_long_as_they_should(
    cut: list[list[list[Row]]], keep: str, expire_after_us: int, delay_us: int
) -> None:
    operator = Deduplicate.build(KEYS, InputSpec((), SCHEMA), keep, "at", expire_after_us)
    agree(Stream(operator, delay_us), Oracle(keep, True, expire_after_us), cut)


@examples(25, 10)
@given(
    EPOCHS,
    operators(),
    DELAYS,
    st.sampled_from([1, 1000]),
    st.sampled_from([[SHARDS], [SHARDS[:1], SHARDS[1:]]]),
    st.sampled_from([1 << 12, 1 << 28]),
)
def test_the_same_over_the_real_engine(
    cut: list[list[list[Row]]],
    pair: tuple[Deduplicate, Oracle],
    delay_us: int,
    distinct: int,
    tasks: list[tuple[Any, ...]],
    memory_bytes: int,
) -> None:
    operator, oracle = pair
    agree(Stream.on_engine(operator, delay_us, distinct, tasks, memory_bytes), oracle, cut)


@examples(75, 30)
@given(st.lists(ROWS, max_size=20), st.lists(st.integers(0, 20), max_size=6), EXPIRIES)
def test_the_newest_rows_are_the_same_however_rows_in_order_are_cut_into_epochs(
    rows: list[Row], places: list[int], expire_after_us: int | None
) -> None:
    rows = sorted((row for row in rows if row["at"] is not None), key=lambda row: row["at"])
    tables = []
    for cuts in (places, ()):
        edges = [0, *sorted({min(place, len(rows)) for place in cuts}), len(rows)]
        stream = Stream(Deduplicate.build(KEYS, InputSpec((), SCHEMA), "last", "at", expire_after_us))
        for first, last in pairwise(edges):
            stream.epoch(pa.Table.from_pylist(rows[first:last], schema=SCHEMA))
        stream.epoch()
        assert stream.late == []
        tables.append(in_any_order(stream.table()))
    assert tables[0] == tables[1]
