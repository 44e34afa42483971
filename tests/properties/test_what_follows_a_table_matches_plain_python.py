"""Operators over the netted changes of an upstream table, against loops over the table as it is after each epoch."""

import struct
from collections.abc import Callable, Iterable
from decimal import ROUND_HALF_UP, Decimal
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.operators import RunningAggregate, agg
from dagster_ckpt.operators.rows.materializer import Materializer
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from tests.unit.operators.keyed_streams import SHARDS, Row, Stream, in_any_order, replayed
from tests.worlds.examples import examples

UPSTREAM = pa.schema(
    [
        ("i", pa.int64()),
        ("k", pa.string()),
        ("d", pa.decimal128(20, 2)),
        ("group", pa.string()),
        ("part", pa.int16()),
        ("f", pa.float64()),
    ]
)
SOURCE = InputSpec((), UPSTREAM.append(pa.field("_change_type", pa.string(), nullable=False)))
KEYS = st.tuples(st.sampled_from(["a", "b", "c", None]), st.sampled_from([1, None]))
CENTS = Decimal("0.01")
VALUES = st.fixed_dictionaries(
    {
        "i": st.integers(-(2**60), 2**60) | st.sampled_from([0, 1, None]),
        "d": st.integers(-(10**19), 10**19).map(lambda cents: cents * CENTS) | st.none(),
        "group": st.sampled_from(["x", "y", None]),
        "f": st.sampled_from([float("nan"), 0.0, -0.0, None]),
    }
)
EPOCHS = st.lists(st.dictionaries(KEYS, VALUES | st.none(), max_size=8), min_size=1, max_size=6)
"""What each epoch of the upstream says of keys: their row from now on, or None where it is deleted."""
Table = dict[tuple[str | None, int | None], Row]
Said = dict[tuple[str | None, int | None], Row | None]


def everything(row: Row) -> bool:
    return True


def some(row: Row) -> bool:
    return row["i"] is not None and row["i"] > 0


ORDERS = st.randoms(use_true_random=False)
CONDITIONS = st.sampled_from([everything, some])
WORLDS = st.sampled_from(
    [
        None,
        ([SHARDS], 1 << 12),
        ([SHARDS[:1], SHARDS[1:]], 1 << 28),
    ]
)
AGGREGATES = {
    "rows": agg.count(),
    "values": agg.count("i"),
    "i_sum": agg.sum("part"),
    "i_avg": agg.avg("i"),
    "d_sum": agg.sum("d"),
    "d_avg": agg.avg("d"),
}
FIRST_VALUES = {
    "least": agg.min("i"),
    "greatest": agg.max("f"),
    "least_word": agg.min("k"),
    "first": agg.first("i", by="f"),
    "last": agg.last("f", by="i"),
    "last_cent": agg.last("d", by="part"),
}


def bits(row: Row) -> str:
    """The row as the change log compares it: NaN is like NaN, and -0.0 is not like 0.0."""
    f = row["f"]
    return repr(sorted({**row, "f": None if f is None else struct.pack(">d", f)}.items()))


def after(table: Table, said: Said) -> Table:
    rows = {key: None if row is None else {"k": key[0], "part": key[1], **row} for key, row in said.items()}
    return {key: row for key, row in {**table, **rows}.items() if row is not None}


def netted(before: Table, now: Table) -> list[Row]:
    """The images of what differs between two tables."""
    images = list[Row]()
    for key in sorted(before.keys() | now.keys(), key=repr):
        was, is_ = before.get(key), now.get(key)
        if was is not None and is_ is not None:
            if bits(was) != bits(is_):
                images += [{**was, "_change_type": "update_preimage"}, {**is_, "_change_type": "update_postimage"}]
        elif is_ is not None:
            images.append({**is_, "_change_type": "insert"})
        elif was is not None:
            images.append({**was, "_change_type": "delete"})
    return images


def follow(
    stream: Stream,
    epochs: Iterable[Said],
    condition: Callable[[Row], bool],
    wanted: Callable[[list[Row]], list[Row]],
    order: Random,
) -> None:
    upstream: Table = {}
    table: list[Row] = []
    for said in epochs:
        before, upstream = upstream, after(upstream, said)
        images = [image for image in netted(before, upstream) if condition(image)]
        order.shuffle(images)
        size = order.choice([1, 3, 100])
        batches = [images[start : start + size] for start in range(0, len(images), size)]
        changes = stream.epoch(*(pa.Table.from_pylist(batch, schema=SOURCE.schema) for batch in batches))
        its_before, table = table, replayed(table, changes)
        assert in_any_order(table) == in_any_order(wanted([row for row in upstream.values() if condition(row)]))
        assert in_any_order(stream.table()) == in_any_order(table), "the change log leads to the table"
        if in_any_order(its_before) == in_any_order(table):
            assert changes == [], "what is as it was is not in the log"


def as_it_is(rows: list[Row]) -> list[Row]:
    return rows


def aggregated(rows: list[Row]) -> list[Row]:
    return [one_of(group, [row for row in rows if row["group"] == group]) for group in {row["group"] for row in rows}]


def one_of(group: str | None, rows: list[Row]) -> Row:
    i, d, part = ([row[name] for row in rows if row[name] is not None] for name in ("i", "d", "part"))
    return {
        "group": group,
        "rows": len(rows),
        "values": len(i),
        "i_sum": sum(part) if part else None,
        "i_avg": as_double(sum(i), len(i)) if i else None,
        "d_sum": sum(d).quantize(CENTS) if d else None,
        "d_avg": (sum(d) / len(d)).quantize(Decimal("1e-6"), ROUND_HALF_UP) if d else None,
    }


def first_values(rows: list[Row]) -> list[Row]:
    return [
        first_value_of(group, [row for row in rows if row["group"] == group])
        for group in {row["group"] for row in rows}
    ]


def first_value_of(group: str | None, rows: list[Row]) -> Row:
    found: Row = {"group": group}
    for name, one in FIRST_VALUES.items():
        assert one.column is not None
        pairs = [(0 if one.by is None else row[one.by], row[one.column]) for row in rows]
        known = [(rank(by), rank(value), value) for by, value in pairs if by is not None and value is not None]
        best = max if one.function in ("max", "last") else min
        value = best(known, key=lambda each: each[:2])[2] if known else None
        found[name] = value + 0.0 if isinstance(value, float) else value
    return found


def rank(value: Any) -> tuple[bool, Any]:
    """NaN comes after any other number."""
    return (value != value, 0 if value != value else value)  # noqa: PLR0124


def as_double(total: int, count: int) -> float:
    """The mean as it is computed from both halves of a total: no digit more or less."""
    return (float((total >> 32) * 2**32) + float(total & 0xFFFFFFFF)) / count


def started(operator: Materializer | RunningAggregate, distinct: int, world: Any) -> Stream:
    return Stream(operator, 0, distinct) if world is None else Stream.on_engine(operator, 0, distinct, *world)


@examples(50, 10)
@given(EPOCHS, CONDITIONS, st.sampled_from([1, 2, 1000]), WORLDS, ORDERS)
def test_a_mirror_is_the_upstreams_rows_that_match(
    epochs: list[Said], condition: Callable[[Row], bool], distinct: int, world: Any, order: Random
) -> None:
    operator = Materializer.build(("k", "part"), SOURCE, condition.__name__)
    follow(started(operator, distinct, world), epochs, condition, as_it_is, order)


@examples(30, 12)
@given(EPOCHS, CONDITIONS, st.sampled_from([1, 1000]), WORLDS, ORDERS)
def test_an_aggregate_is_over_the_upstreams_rows_as_they_are(
    epochs: list[Said], condition: Callable[[Row], bool], distinct: int, world: Any, order: Random
) -> None:
    operator = RunningAggregate.build(("group",), AGGREGATES, SOURCE, updating=True, where=condition.__name__)
    follow(started(operator, distinct, world), epochs, condition, aggregated, order)


@examples(20, 8)
@given(EPOCHS, CONDITIONS, st.sampled_from([1, 1000]), WORLDS, ORDERS)
def test_the_next_value_comes_up_when_the_first_is_retracted(
    epochs: list[Said], condition: Callable[[Row], bool], distinct: int, world: Any, order: Random
) -> None:
    operator = RunningAggregate.build(("group",), FIRST_VALUES, SOURCE, updating=True, where=condition.__name__)
    follow(started(operator, distinct, world), epochs, condition, first_values, order)
