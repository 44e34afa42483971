"""Running aggregates whose keys leave, or whose rows are taken back, against loops over lists."""

from collections import defaultdict
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.operators import agg
from dagster_ckpt.operators.aggregates.aggregate import RunningAggregate
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from tests.unit.operators.keyed_streams import SHARDS, TIME, Row, Stream, in_any_order, replayed
from tests.worlds.event_times import ENDS_OF_INT64, is_out_of_range
from tests.worlds.examples import examples

KEYS = ("k", "part")
SCHEMA = pa.schema([("k", pa.string()), ("part", pa.int16()), ("v", pa.int64()), ("s", pa.string()), ("at", TIME)])
ROWS = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", None]),
        "part": st.sampled_from([1, None]),
        "v": st.integers(-5, 5) | st.none(),
        "s": st.sampled_from(["", "x", "é", None]),
        "at": st.integers(-10, 60) | st.integers(-10, 60) | st.integers(-10, 60) | st.none(),
    }
)
EPOCHS = st.lists(st.lists(st.lists(ROWS, max_size=6), max_size=3), min_size=1, max_size=8)
AGGREGATES = {
    "rows": agg.count(),
    "total": agg.sum("v"),
    "kinds": agg.count_distinct("s"),
    "opening": agg.collect("s", 2),
}
Key = tuple[Any, ...]


def expected(key: Key, rows: list[Row]) -> Row:
    values = [row["v"] for row in rows if row["v"] is not None]
    timed = [(row["at"], row["s"]) for row in rows if row["s"] is not None and row["at"] is not None]
    return {
        **dict(zip(KEYS, key, strict=True)),
        "rows": len(rows),
        "total": sum(values) if values else None,
        "kinds": len({row["s"] for row in rows} - {None}),
        "opening": [s for _, s in sorted(timed)[:2]],
    }


def agree(stream: Stream, cut: list[list[list[Row]]], expire_after_us: int) -> None:
    table: list[Row] = []
    members: dict[Key, list[Row]] = defaultdict(list)
    for batches in (*cut, []):
        seen, watermark_us = len(stream.late), stream.watermark_us
        changes = stream.epoch(*(pa.Table.from_pylist(batch, schema=SCHEMA) for batch in batches))
        late = []
        for key, rows in list(members.items()):
            last = max((row["at"] for row in rows if row["at"] is not None), default=None)
            if last is not None and watermark_us is not None and last + expire_after_us <= watermark_us:
                del members[key]
        for row in (row for batch in batches for row in batch):
            time = row["at"]
            if time is not None and (is_out_of_range(time) or (watermark_us is not None and time < watermark_us)):
                late.append(row)
            else:
                members[row["k"], row["part"]].append(row)
        table = replayed(table, changes)
        assert in_any_order(table) == in_any_order(expected(key, rows) for key, rows in members.items())
        assert in_any_order(stream.table()) == in_any_order(table), "the change log leads to the table"
        assert in_any_order(stream.late[seen:]) == in_any_order(late)
        timed = [key for key, rows in members.items() if any(row["at"] is not None for row in rows)]
        assert stream.held() == {"groups": len(members), "expiries": len(timed)}


def stream_options() -> Any:
    return st.sampled_from([1, 5, 20]), st.sampled_from([0, 3, 100]), st.sampled_from([1, 2, 1000])


def operator(expire_after_us: int) -> RunningAggregate:
    return RunningAggregate.build(KEYS, AGGREGATES, InputSpec((), SCHEMA), "at", expire_after_us)


@examples(100, 40)
@given(EPOCHS, *stream_options())
def test_keys_expire_and_return(cut: list[list[list[Row]]], expire_after_us: int, delay_us: int, distinct: int) -> None:
    agree(Stream(operator(expire_after_us), delay_us, distinct), cut, expire_after_us)


FAR_EPOCHS = st.lists(
    st.lists(
        st.lists(st.tuples(ROWS, ENDS_OF_INT64).map(lambda pair: {**pair[0], "at": pair[1]}), max_size=5), max_size=2
    ),
    min_size=1,
    max_size=6,
)


@examples(25, 10)
@given(
    FAR_EPOCHS,
    st.sampled_from([1, 20, 1 << 60, (1 << 62) - 1]),
    st.sampled_from([0, 3, 1 << 62]),
    st.sampled_from([1, 1000]),
)
def test_rows_near_the_ends_of_64_bits_are_late_or_keep_their_keys_for_as_long_as_they_should(
    cut: list[list[list[Row]]], expire_after_us: int, delay_us: int, distinct: int
) -> None:
    agree(Stream.on_engine(operator(expire_after_us), delay_us, distinct, [SHARDS], 1 << 28), cut, expire_after_us)


@examples(20, 4)
@given(
    EPOCHS,
    *stream_options(),
    st.sampled_from([[SHARDS], [SHARDS[:1], SHARDS[1:]]]),
    st.sampled_from([1 << 12, 1 << 28]),
)
def test_the_same_over_the_real_engine(
    cut: list[list[list[Row]]],
    expire_after_us: int,
    delay_us: int,
    distinct: int,
    tasks: list[tuple[Any, ...]],
    memory_bytes: int,
) -> None:
    stream = Stream.on_engine(operator(expire_after_us), delay_us, distinct, tasks, memory_bytes)
    agree(stream, cut, expire_after_us)


CHANGES = pa.schema([("k", pa.string()), ("i", pa.int64()), ("d", pa.decimal128(20, 2)), ("_change_type", pa.string())])
VALUES = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", None]),
        "i": st.integers(-(2**40), 2**40) | st.none(),
        "d": st.integers(-(10**9), 10**9).map(lambda cents: Decimal(cents) / 100) | st.none(),
    }
)
UPSTREAM = st.lists(st.dictionaries(st.integers(0, 5), VALUES | st.none(), max_size=5), min_size=1, max_size=6)
"""For each epoch what some rows of the upstream table are now; None: they are gone."""
EXACT = {
    "rows": agg.count(),
    "values": agg.count("i"),
    "sum": agg.sum("i"),
    "mean": agg.avg("i"),
    "cents": agg.sum("d"),
}


def summed(key: str | None, rows: list[Row]) -> Row:
    whole, cents = ([row[name] for row in rows if row[name] is not None] for name in "id")
    return {
        "k": key,
        "rows": len(rows),
        "values": len(whole),
        "sum": sum(whole) if whole else None,
        "mean": sum(whole) / len(whole) if whole else None,
        "cents": sum(cents, Decimal("0.00")) if cents else None,
    }


@examples(100, 40)
@given(UPSTREAM, st.randoms(use_true_random=False), st.integers(1, 9), st.booleans())
def test_an_aggregate_of_a_table_that_changes_is_that_of_its_rows(
    epochs: list[dict[int, Row | None]], chance: Any, size: int, on_engine: bool
) -> None:
    operator = RunningAggregate.build(("k",), EXACT, InputSpec((), CHANGES), updating=True)
    stream = Stream.on_engine(operator, 0, 2, [SHARDS], 1 << 28) if on_engine else Stream(operator)
    upstream: dict[int, Row] = {}
    table: list[Row] = []
    for epoch in epochs:
        log: list[Row] = []
        for number, now in epoch.items():
            was = upstream.pop(number, None)
            if was is not None:
                log.append({**was, "_change_type": "update_preimage" if now else "delete"})
            if now is not None:
                log.append({**now, "_change_type": "update_postimage" if was else "insert"})
                upstream[number] = now
        chance.shuffle(log)
        parts = [log[start : start + size] for start in range(0, len(log), size)]
        table = replayed(table, stream.epoch(*(pa.Table.from_pylist(part, schema=CHANGES) for part in parts)))
        members: dict[Any, list[Row]] = defaultdict(list)
        for row in upstream.values():
            members[row["k"]].append(row)
        wanted = [summed(key, rows) for key, rows in members.items()]
        assert in_any_order(table) == in_any_order(wanted)
        assert in_any_order(stream.table()) == in_any_order(table), "the change log leads to the table"
