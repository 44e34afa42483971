"""Rows that are grouped where they are read leave the state that the rows leave, however they are cut."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt import agg
from dagster_ckpt.lsm.key_hash import SEED, key_hashes
from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.operators.aggregates.aggregate import GROUPS, RunningAggregate
from dagster_ckpt.operators.local_aggregate import LocalAggregate, local_aggregate
from dagster_ckpt.operators.step import OperatorStep
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from tests.unit.operators.dict_state import DictState
from tests.unit.operators.streams import context
from tests.worlds.examples import examples

ROWS = pa.schema([("k", pa.string()), ("n", pa.int64()), ("d", pa.float64()), ("x", pa.string()), ("b", pa.bool_())])
OF_ALL: dict[str, Aggregation] = {
    "rows": agg.count(),
    "values": agg.count("d"),
    "total": agg.sum("n"),
    "mean": agg.avg("d"),
    "spread": agg.stddev("d"),
    "least": agg.min("x"),
    "most": agg.max("d"),
    "last": agg.last("x", by="n"),
    "all": agg.bool_and("b"),
    "bits": agg.bit_xor("n"),
}
VALUES: dict[str, list[Any]] = {
    "k": ["a", "b", "", "ä", None],
    "n": [-(2**40), -1, 0, 7, None],
    "d": [math.nan, math.inf, -0.0, 0.0, 1.5, None],
    "x": ["", "a", "zz", None],
    "b": [True, False, None],
}


@st.composite
def some_rows(draw: st.DrawFn) -> pa.Table:
    size, chance = draw(st.integers(1, 60)), np.random.default_rng(draw(st.integers(0, 2**32)))
    return pa.table(
        {
            name: pa.array([values[place] for place in chance.integers(0, len(values), size)], ROWS.field(name).type)
            for name, values in VALUES.items()
        }
    )


def row_hashes(rows: pa.Table, keys: tuple[str, ...], *, collide: bool) -> Any:
    if not keys:
        return np.full(rows.num_rows, SEED, dtype=np.uint64)
    hashes = key_hashes(rows.select(list(keys)).combine_chunks())
    return hashes & np.uint64(1) if collide else hashes


@given(st.lists(some_rows(), min_size=1, max_size=4), st.booleans(), st.booleans(), st.data())
@examples(80)
def test_the_state_is_that_of_the_rows(
    parts: list[pa.Table],
    keyed: bool,
    collide: bool,
    data: st.DataObject,
) -> None:
    keys = ("k",) if keyed else ("_group",)
    source = InputSpec((), ROWS if keyed else ROWS.append(pa.field("_group", pa.bool_())))
    step = OperatorStep.of(RunningAggregate.build(keys, OF_ALL, source))
    own = keys if keyed else ()
    local = local_aggregate(step)
    assert local is not None
    of_rows, of_groups = DictState.of(step.pipeline), DictState.of(step.pipeline)
    for rows in parts:
        step.on_rows(0, row_hashes(rows, own, collide=collide), rows, of_rows, context())
    grouped = [local.of_rows(row_hashes(rows, own, collide=collide), rows) for rows in parts]
    cut = data.draw(st.integers(0, len(grouped)))
    for some in (grouped[:cut], grouped[cut:]):
        if some:
            hashes = np.concatenate([each for each, _ in some])
            local.on_rows(
                0, hashes, pa.concat_tables([each for _, each in some]).combine_chunks(), of_groups, context()
            )
    counted = sum(int(local.rows_in(each).sum()) for _, each in grouped)
    assert counted == sum(rows.num_rows for rows in parts)
    one, other = (_groups_by_key(each) for each in (of_rows, of_groups))
    assert one.keys() == other.keys()
    for key, row in one.items():
        assert all(_alike(other[key][name], value) for name, value in row.items()), key


def _groups_by_key(state: DictState) -> dict[str, dict[str, object]]:
    return {repr(next(iter(row.values()))): row for row in state.tables[GROUPS].live().to_pylist()}


def _alike(found: object, wanted: object) -> bool:
    if isinstance(wanted, float) and isinstance(found, float) and not math.isnan(wanted):
        return found == wanted or math.isclose(found, wanted, rel_tol=1e-9)
    return repr(found) == repr(wanted)


def test_what_needs_each_row_has_none() -> None:
    def of(**aggregations: Aggregation) -> LocalAggregate | None:
        return local_aggregate(OperatorStep.of(RunningAggregate.build(("k",), aggregations, InputSpec((), ROWS))))

    assert of(rows=agg.count()) is not None
    assert of(values=agg.count_distinct("n")) is None
