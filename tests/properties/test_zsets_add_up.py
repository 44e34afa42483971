"""Z-sets and the table of them against counters of rows."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.operators.shared.zsets.zset import ZSet
from dagster_ckpt.operators.shared.zsets.zset_table import ZSetTable
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec
from tests.unit.operators.dict_state import DictState, DictTable
from tests.worlds.examples import examples

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])
COUNTS = (("_left",), ("_left", "_right"))
ROWS = st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([1, 2, None]))
DELTAS = st.lists(st.tuples(ROWS, st.integers(-2, 2)), max_size=8)
Row = tuple[str | None, int | None]
Delta = list[tuple[Row, int]]
Weights = Counter[Row]


def hashes_of(rows: pa.Table) -> Hashes:
    """Two hashes, so that different rows share one."""
    return np.array([key == "a" for key in rows.column("k").to_pylist()], dtype=np.uint64)


def zset(delta: Delta) -> ZSet:
    rows = pa.Table.from_pylist([dict(zip("kn", row, strict=True)) for row, _ in delta], schema=SCHEMA)
    return ZSet(hashes_of(rows), rows, np.array([weight for _, weight in delta], dtype=np.int64))


def integrated(delta: ZSet) -> Weights:
    found = Weights()
    for row, weight in zip(delta.rows.to_pylist(), delta.weights.tolist(), strict=True):
        found[row["k"], row["n"]] += weight
    return Weights({row: weight for row, weight in found.items() if weight})


def table_of(names: tuple[str, ...]) -> tuple[ZSetTable, DictState]:
    schema = pa.schema([*SCHEMA, *(pa.field(name, pa.int64(), nullable=False) for name in names)])
    spec = StateTableSpec("rows", schema, tuple(SCHEMA.names))
    return ZSetTable(spec, names), DictState({"rows": DictTable(schema, spec.keys)})


@examples(200, 50)
@given(DELTAS, DELTAS)
def test_zsets_are_a_group(first: Delta, second: Delta) -> None:
    one, other = zset(first), zset(second)
    both = one.concat(other).consolidate()
    rows = [tuple(row.values()) for row in both.rows.to_pylist()]
    assert len(set(rows)) == len(rows)
    assert both.weights.all()
    assert both.hashes.tolist() == hashes_of(both.rows).tolist()
    wanted = integrated(one)
    wanted.update(integrated(other))
    assert integrated(both) == {row: weight for row, weight in wanted.items() if weight}
    assert len(both.concat(both.negate()).consolidate()) == 0


@examples(200, 50)
@given(DELTAS)
def test_changes_are_a_zset_and_back(delta: Delta) -> None:
    net = zset(delta).consolidate()
    changes = net.to_changes(SCHEMA.names)
    assert changes.count == np.abs(net.weights).sum() == changes.rows.num_rows
    again = ZSet.of_changes(hashes_of(changes.rows), changes.rows, SCHEMA.names)
    assert integrated(again.consolidate()) == integrated(net)


@pytest.mark.parametrize("names", COUNTS, ids=len)
@examples(200, 50)
@given(st.lists(st.tuples(st.booleans(), DELTAS), max_size=6))
def test_a_table_has_the_sum_of_all_deltas(names: tuple[str, ...], deltas: list[tuple[bool, Delta]]) -> None:
    table, state = table_of(names)
    wanted = [Weights() for _ in names]
    for right, delta in deltas:
        net, which = zset(delta).consolidate(), right * (len(names) - 1)
        weights = np.zeros((len(names), len(net)), dtype=np.int64)
        weights[which] = net.weights
        weighed = table.add(ZSet(net.hashes, net.rows, weights if len(names) > 1 else weights[0]), state)
        rows = [tuple(row.values()) for row in net.rows.to_pylist()]
        assert np.atleast_2d(weighed.before).tolist() == [[its[row] for row in rows] for its in wanted]
        wanted[which].update(integrated(net))
        assert np.atleast_2d(weighed.after).tolist() == [[its[row] for row in rows] for its in wanted]
    there = {row for its in wanted for row, weight in its.items() if weight}
    found = {(row["k"], row["n"]): [row[name] for name in names] for row in state.tables["rows"].live().to_pylist()}
    assert found == {row: [its[row] for its in wanted] for row in there}
    if any(its[row] < 0 for its in wanted for row in there):
        with pytest.raises(CorruptStateError, match=r"never added.*table=rows"):
            list(table.epoch_changes(state))
    else:
        assert sum(len(touched.hashes) for touched in table.epoch_changes(state)) >= len(there)


@examples(100, 30)
@given(DELTAS)
def test_a_net_delta_that_takes_more_than_there_is_is_refused_and_changes_nothing(delta: Delta) -> None:
    table, state = table_of(COUNTS[0])
    net = zset(delta).consolidate()
    if (net.weights < 0).any():
        with pytest.raises(CorruptStateError, match=f"table=rows, rows={np.count_nonzero(net.weights < 0)}$"):
            table.apply(net, state)
        assert state.tables["rows"].live().num_rows == 0
        with pytest.raises(CorruptStateError, match="never added"):
            table.apply(net, state, np.zeros_like(net.weights))
    else:
        table.apply(net, state, np.zeros_like(net.weights))
        assert state.tables["rows"].live().num_rows == len(net)


def test_a_row_that_only_comes_counts_once() -> None:
    _, state = table_of(COUNTS[0])
    table = ZSetTable(table_of(COUNTS[0])[0].spec, COUNTS[0], once=(True,))
    for _ in range(2):
        table.add(zset([(("a", 1), 5)]), state)
    assert state.tables["rows"].live().column("_left").to_pylist() == [1]
