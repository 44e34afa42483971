"""A running aggregate over the real engine, its input cut into any epochs and batches, against loops over lists."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal
from itertools import count
from math import fsum, inf, isinf, isnan, nan, sqrt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.ids import Epoch, Nonce, Shard, StreamUuid, Term, Version
from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.operators import EpochContext, RunningAggregate, agg
from dagster_ckpt.operators.aggregates.aggregate import GROUPS
from dagster_ckpt.operators.operator import change_log_table
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Owner
from dagster_ckpt.protocol.object_names import FileId
from dagster_ckpt.protocol.transitions.edits import Beginning, Stamp, first_manifest
from dagster_ckpt.state.committed.table_snapshot import live_rows
from dagster_ckpt.state.engine import Engine
from dagster_ckpt.state.memory_budget import MemoryBudget
from dagster_ckpt.state.task_state import open_state
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from tests.worlds.examples import examples

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("part", pa.int16()),
        ("i", pa.int64()),
        ("f", pa.float64()),
        ("d", pa.decimal128(20, 2)),
        ("s", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
Row = dict[str, Any]
Key = tuple[str | None, int | None]
CENTS = Decimal("0.01")
ABSOLUTE = {"i_std": 1e4}  # the mean of numbers near 2**58 is a double, and those are 64 apart there
# Sums of these floats are exact in any order, so that only a wrong sum differs.
ROWS = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", None]),
        "part": st.sampled_from([1, 2, None]),
        "i": st.integers(-(2**58), 2**58) | st.none(),
        "f": st.sampled_from([nan, inf, -inf, 0.0, -0.0, 1.5, -2.25, 1e10, None]),
        "d": st.integers(-(10**19), 10**19).map(lambda cents: cents * CENTS) | st.none(),
        "s": st.sampled_from(["", "a", "b", "é", None]),
        "at": st.integers(-3, 3) | st.none(),
    }
)
EPOCHS = st.lists(st.lists(st.lists(ROWS, max_size=8), max_size=3), min_size=1, max_size=5)
AGGREGATES = {
    "rows": agg.count(),
    "values": agg.count("s"),
    "i_sum": agg.sum("i"),
    "i_avg": agg.avg("i"),
    "i_std": agg.stddev("i"),
    "f_sum": agg.sum("f"),
    "f_min": agg.min("f"),
    "f_max": agg.max("f"),
    "f_var": agg.variance("f"),
    "f_std": agg.stddev("f"),
    "d_sum": agg.sum("d"),
    "d_avg": agg.avg("d"),
    "d_max": agg.max("d"),
    "s_min": agg.min("s"),
    "s_max": agg.max("s"),
    "opening": agg.first("s"),
    "closing": agg.last("d"),
    "by_float": agg.last("s", by="f"),
    "f_kinds": agg.count_distinct("f"),
    "s_kinds": agg.count_distinct("s"),
    "d_kinds": agg.count_distinct("d"),
    "f_listed": agg.collect("f", 3, by="i"),
    "s_listed": agg.collect("s", 100),
}
STORES = count()
SHARDS = (Shard(0), Shard(1))


def none_if_empty(compute: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    return lambda values: compute(values) if values else None


def order(value: Any) -> Any:
    """NaN after every other number."""
    return (isnan(value), 0.0 if isnan(value) else value) if isinstance(value, float) else value


def variance(values: list[float]) -> float | None:
    if len(values) < 2:
        return None
    if any(isnan(value) or isinf(value) for value in values):
        return nan
    mean = fsum(values) / len(values)
    return fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def edge(rows: list[Row], column: str, by: str, choose: Callable[..., Any]) -> Any:
    usable = [row for row in rows if row[column] is not None and row[by] is not None]
    return choose(usable, key=lambda row: (order(row[by]), order(row[column])))[column] if usable else None


def listed(rows: list[Row], column: str, by: str) -> list[Any]:
    usable = [row for row in rows if row[column] is not None and row[by] is not None]
    return [row[column] for row in sorted(usable, key=lambda row: (order(row[by]), order(row[column])))]


def expected(rows: list[Row]) -> Row:
    i, f, d, s = ([row[name] for row in rows if row[name] is not None] for name in "ifds")
    spread = variance(f)
    i_spread = variance([float(value) for value in i])
    return {
        "rows": len(rows),
        "values": len(s),
        "i_sum": none_if_empty(sum)(i),
        "i_avg": none_if_empty(lambda values: sum(values) / len(values))(i),
        "i_std": None if i_spread is None else sqrt(i_spread),
        "f_sum": none_if_empty(sum)(f),
        "f_min": none_if_empty(lambda values: min(values, key=order))(f),
        "f_max": none_if_empty(lambda values: max(values, key=order))(f),
        "f_var": spread,
        "f_std": None if spread is None else sqrt(spread),
        "d_sum": none_if_empty(sum)(d),
        "d_avg": none_if_empty(lambda x: (sum(x) / len(x)).quantize(Decimal("1e-6"), ROUND_HALF_UP))(d),
        "d_max": none_if_empty(max)(d),
        "s_min": none_if_empty(lambda values: min(values, key=str.encode))(s),
        "s_max": none_if_empty(lambda values: max(values, key=str.encode))(s),
        "opening": edge(rows, "s", "at", min),
        "closing": edge(rows, "d", "at", max),
        "by_float": edge(rows, "s", "f", max),
        "f_kinds": len({order(value) for value in f}),
        "s_kinds": len(set(s)),
        "d_kinds": len(set(d)),
        "f_listed": listed(rows, "f", "i")[:3],
        "s_listed": listed(rows, "s", "at"),
    }


def by_key(rows: Iterable[Row]) -> dict[Key, Row]:
    return {(row.pop("k"), row.pop("part")): row for row in (dict(row) for row in rows)}


def agree(found: dict[Key, Row], oracle: dict[Key, Row]) -> None:
    assert found.keys() == oracle.keys()
    for key, row in found.items():
        for name, value in row.items():
            wanted = oracle[key][name]
            if isinstance(value, float) and isinstance(wanted, float):
                assert value == pytest.approx(wanted, rel=1e-12, abs=ABSOLUTE.get(name, 1e-9), nan_ok=True), (key, name)
            elif isinstance(value, list):
                assert list(map(order, value)) == list(map(order, wanted)), (key, name)
            else:
                assert value == wanted, (key, name)


def replayed(table: dict[Key, Row], changes: list[Row]) -> dict[Key, Row]:
    """The table after the changes, each of which must fit what is there."""
    table = dict(table)
    kinds = [change.pop("_change_type") for change in changes]
    for kind, change in zip(kinds, changes, strict=True):
        ((key, row),) = by_key([change]).items()
        if kind in {"update_preimage", "delete"}:
            assert repr(table.pop(key)) == repr(row), "each pre-image was in the table"
        else:
            assert key not in table
            table[key] = row
    return table


LIMITS = st.sampled_from([1 << 12, 1 << 28])
"""Memory that an epoch's rows do not fit into, and memory that they do."""


@examples(20)
@given(EPOCHS, st.sampled_from([1, 2, 1000]), LIMITS)
def test_any_cut_into_epochs_and_batches_gives_the_same_table(
    cut: list[list[list[Row]]], distinct: int, memory_limit: int
) -> None:
    operator = RunningAggregate.build(("k", "part"), AGGREGATES, InputSpec((), SCHEMA), "at")
    store = MemoryObjectStore(f"aggregate-{next(STORES)}")
    engine = Engine(SystemClock(), budget=MemoryBudget(memory_limit))
    manifest = first_manifest(
        Beginning("s", StreamUuid("u"), Owner("i", "s"), operator.pipeline, len(SHARDS)), Stamp(Nonce("n"), 0)
    )
    so_far: dict[Key, list[Row]] = defaultdict(list)
    table: dict[Key, Row] = {}
    for batches in cut:
        epoch = Epoch(manifest.version + 1)
        context = EpochContext(epoch, SHARDS, len(SHARDS), None, memory_bytes=1 << 20)
        file = FileId(Term(1), epoch, SHARDS[0], attempt=0)
        with open_state(store, manifest, SHARDS, file, engine, change_log_table(operator)) as state:
            state.compact()
            for batch in batches:
                rows = pa.Table.from_pylist(batch, schema=SCHEMA)
                assert len(operator.on_rows(0, hashes_of(batch, distinct), rows, state, context)) == 0
                state.relieve()
                for row in batch:
                    so_far[row["k"], row["part"]].append(row)
            for changes in operator.finish(state, context):
                assert changes.count == changes.rows.num_rows
                table = replayed(table, changes.rows.to_pylist())
            lists = state.flush()
        by_table = zip(*(lists[shard] for shard in SHARDS), strict=True)
        runs = {of_shards[0].table: tuple(each.runs for each in of_shards) for of_shards in by_table}
        manifest = replace(manifest, version=Version(epoch), epoch=epoch, runs=runs)
        read = by_key(operator.table.rows(live_rows(store, manifest, GROUPS)).to_pylist())
        assert repr(sorted(read.items(), key=repr)) == repr(sorted(table.items(), key=repr)), (
            "the change log leads to the table"
        )
        agree(read, {key: expected(rows) for key, rows in so_far.items()})


def hashes_of(batch: list[Row], distinct: int) -> Hashes:
    numbers = [sum(map(ord, f"{row['k']}{row['part']}")) % distinct for row in batch]
    # Spread over both shards, since the greatest bit says which.
    return np.array(numbers, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
