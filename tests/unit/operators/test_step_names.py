"""The table of a stream under other names than its operator's output."""

from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators import AppendOnly, agg, from_pipeline
from dagster_ckpt.operators.column_lineage import columns_read
from dagster_ckpt.operators.step import OperatorStep
from dagster_ckpt.protocol.manifest.row_key import row_key
from dagster_ckpt.protocol.transitions.compatibility import breaking_changes
from tests.unit.operators.dict_state import DictState
from tests.unit.operators.streams import build, colliding, context

ROWS = pa.table({"k0": ["a", "b", "a"], "v0": pa.array([3, 5, 4], pa.int32())})
NAMES = {"n": "a0", "carrier": "k0", "worst": "a1"}


def renamed(names: dict[str, str] = NAMES) -> OperatorStep:
    aggregates: Any = {"a0": agg.count(), "a1": agg.max("v0")}
    return OperatorStep.of(build(ROWS.schema, ("k0",), None, **aggregates)).with_names(names)


def test_the_table_and_its_changes_have_the_names_and_the_order() -> None:
    operator, state = renamed(), DictState.of(renamed().pipeline)
    operator.on_rows(0, colliding(ROWS), ROWS, state, context())
    [changes] = [each.rows for each in operator.finish(state, context()) if each.count]
    rows = [{"n": 2, "carrier": "a", "worst": 4}, {"n": 1, "carrier": "b", "worst": 5}]
    assert sorted(changes.to_pylist(), key=lambda row: row["carrier"]) == [
        {**row, "_change_type": "insert"} for row in rows
    ]
    assert changes.column_names == [*NAMES, "_change_type"]
    state.next_epoch()
    assert operator.table is not None
    table = operator.table.rows(state.tables["groups"].live())
    assert sorted(table.to_pylist(), key=lambda row: row["carrier"]) == rows
    assert table.schema == operator.pipeline.output


def test_it_is_rebuilt_from_its_fingerprint() -> None:
    operator = renamed()
    again = from_pipeline(operator.pipeline)
    assert again.pipeline == operator.pipeline
    assert not isinstance(again, AppendOnly)
    assert again.operator.pipeline == operator.operator.pipeline


def test_readers_see_the_key_by_its_name_in_the_table() -> None:
    pipeline = renamed().pipeline
    assert row_key(pipeline) == pipeline.key_names == ("carrier",)
    assert columns_read(pipeline) == {"n": [], "carrier": [(0, "k0")], "worst": [(0, "v0")]}


def test_other_names_and_another_order_change_nothing_that_is_kept() -> None:
    before = renamed().pipeline
    assert before.own == renamed().operator.pipeline
    for names in ({"worst": "a1", "carrier": "k0", "n": "a0"}, {"k0": "k0", "a0": "a0", "a1": "a1"}):
        assert breaking_changes(before, renamed(names).pipeline) == ()
        assert breaking_changes(renamed(names).pipeline, before) == ()
    assert breaking_changes(before, renamed().operator.pipeline) == ()


def test_names_that_a_table_cannot_have_are_refused() -> None:
    with pytest.raises(InvalidPipelineError, match="could not tell these columns apart"):
        renamed({"n": "a0", "N": "k0", "worst": "a1"})
