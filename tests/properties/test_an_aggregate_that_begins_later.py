"""An aggregate with `since` is that of the rows since then alone, whatever part of them each side of a merge has."""

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.operators import agg
from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.operators.aggregates.grouped_state import GroupedState
from dagster_ckpt.operators.aggregates.since import plan_since
from tests.worlds.examples import examples

SCHEMA = pa.schema([("v", pa.int64()), ("w", pa.int64()), ("t", pa.bool_()), ("at", pa.timestamp("us"))])
_SMALL = st.one_of(st.none(), st.integers(-5, 5))
ROW = st.fixed_dictionaries({"v": _SMALL, "w": _SMALL, "t": st.one_of(st.none(), st.booleans()), "at": _SMALL})
SIDE = st.one_of(st.none(), st.lists(ROW, min_size=1, max_size=4))
"""The rows of a group on one side; None: its row is older than the aggregate."""


def aggregates(since: str | None) -> dict[str, Aggregation]:
    make: Any = {
        "count": (agg.count,),
        "values": (agg.count, "v"),
        "sum": (agg.sum, "v"),
        "min": (agg.min, "v"),
        "avg": (agg.avg, "v"),
        "first": (agg.first, "v"),
        "last": (agg.last, ["v", "w"], "w"),
        "stddev": (agg.stddev, "v"),
        "corr": (agg.corr, "v", "w"),
        "count_if": (agg.count_if, "t"),
        "any": (agg.bool_or, "t"),
        "distinct": (agg.count_distinct, "v"),
        "sum_distinct": (agg.sum_distinct, "v"),
        "bits": (agg.bit_xor, "v"),
        "collect": (agg.collect, "v", 3),
        "median": (agg.median, "v"),
        "list": (agg.collect_list, "v"),
    }
    return {name: function(*options, since=since) for name, (function, *options) in make.items()}


PLAIN = GroupedState.of(aggregates(None), SCHEMA, "at")
LATER = GroupedState.of(aggregates("now"), SCHEMA, "at")


def state(grouped: GroupedState, rows: list[list[dict[str, Any]]]) -> dict[str, pa.Array]:
    sizes = np.array(list(map(len, rows)))
    table = pa.Table.from_pylist([row for each in rows for row in each], SCHEMA)
    return grouped.of_rows(table, np.arange(table.num_rows), np.cumsum(sizes) - sizes)


def side(sides: list[list[dict[str, Any]] | None]) -> dict[str, pa.Array]:
    """The state of one side, where a group may be older than its aggregates."""
    there = np.array([each is not None for each in sides])
    made = state(LATER, [each or [dict.fromkeys(SCHEMA.names)] for each in sides])
    rows = pa.array(np.arange(len(sides)), mask=~there)
    return {name: column if name == "_rows" else column.take(rows) for name, column in made.items()}


@given(groups=st.lists(st.tuples(SIDE, SIDE), min_size=1, max_size=4))
@examples(150)
def test_it_is_of_the_rows_since_then(groups: list[tuple[Any, Any]]) -> None:
    merged = LATER.merge(side([old for old, _ in groups]), side([new for _, new in groups]))
    found = pa.Table.from_arrays(LATER.results_of(merged), names=list(aggregates(None))).to_pylist()
    for (old, new), row in zip(groups, found, strict=True):
        if old is None and new is None:
            assert set(row.values()) == {None}
            continue
        parts = [state(PLAIN, [each]) for each in (old, new) if each is not None]
        alone = PLAIN.merge(*parts) if len(parts) == 2 else parts[0]
        expected = pa.Table.from_arrays(PLAIN.results_of(alone), names=list(row)).to_pylist()[0]
        assert row == expected


def test_it_is_marked_and_may_be_null() -> None:
    [plan] = GroupedState.of({"rows": agg.count()}, SCHEMA, None).plans
    field = plan_since(plan, 41).field
    assert field.nullable
    assert field.metadata == {b"dagster_ckpt.since": b"41"}
