"""An operator under the names that its state has, where the code has new ones."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators import RunningAggregate, agg, from_pipeline
from dagster_ckpt.operators.kept_names import own_code, with_own_names
from dagster_ckpt.operators.rows.deduplicate import Deduplicate
from dagster_ckpt.protocol.manifest.manifest import DELIVERY, Pipeline
from dagster_ckpt.protocol.transitions.compatibility import breaking_changes
from tests.unit.operators.dict_state import DictState
from tests.unit.operators.explained.explained_pipelines import APPENDS, K, pipelines
from tests.unit.operators.streams import colliding, context

OF_TASKS = {name: each for name, each in pipelines().items() if each.operator not in ("append", "process", DELIVERY)}
COLUMNS = ("k", "v", "at", "w", "bt", "n", "total", "most", "different", "half", "place", "before")
"""The columns of these, and the results of their functions."""
OWN = {name: f"own {name}" for name in COLUMNS}
CODE = {own: name for name, own in OWN.items()}


@pytest.mark.parametrize("name", OF_TASKS)
def test_nothing_of_an_operator_has_a_name_of_the_code(name: str) -> None:
    pipeline = OF_TASKS[name].own
    operator = with_own_names(from_pipeline(pipeline), OWN, None)
    assert operator is not None
    inner = operator.inner.pipeline
    names = {text for table in inner.tables for text in (*table.keys, *table.schema.names)}
    names |= {*inner.keys, *inner.output.names, *(column for each in inner.inputs for column in each.schema.names)}
    names |= {text for key, value in inner.parameters.items() if key != "where" for text in texts(value)}
    assert not names & set(COLUMNS)
    assert operator.pipeline.output.names == pipeline.output.names
    assert operator.pipeline.output.types == pipeline.output.types


@pytest.mark.parametrize("name", OF_TASKS)
def test_with_both_names_it_has_the_state_that_it_had(name: str) -> None:
    """What an old release of the code has made, under its names, goes on under the new ones."""
    was = with_own_names(from_pipeline(OF_TASKS[name].own), OWN, None)
    assert was is not None
    now = with_own_names(was.inner, CODE, None)
    assert now is not None
    assert breaking_changes(OF_TASKS[name].own, now.pipeline) == ()
    assert now.inner.pipeline == from_pipeline(OF_TASKS[name].own).pipeline
    assert from_pipeline(now.pipeline).pipeline == now.pipeline, "it is rebuilt from its fingerprint"


def test_rows_are_found_under_the_old_name() -> None:
    rows = pa.table({"k": ["a", "b", "a"], "v": [1, 2, 3], "at": pa.array([1, 2, 3], pa.timestamp("us", "UTC"))})
    operator = with_own_names(Deduplicate.build(K, APPENDS, "last", "at"), {"k": "carrier"}, None)
    assert operator is not None
    state = DictState.of(operator.pipeline)
    operator.on_rows(0, colliding(rows), rows.rename_columns(["carrier", "v", "at"]), state, context())
    [changes] = [each.rows for each in operator.finish(state, context()) if each.count]
    assert sorted((row["k"], row["v"]) for row in changes.to_pylist()) == [("a", 3), ("b", 2)]
    state.next_epoch()
    assert all(each.live().column_names[0] == "carrier" for each in state.tables.values())


def test_two_columns_never_become_one() -> None:
    operator = Deduplicate.build(K, APPENDS, "last", "at")
    with pytest.raises(InvalidPipelineError, match="v"):
        with_own_names(operator, {"k": "v"}, None)


def test_the_users_functions_are_those_of_the_aggregates_of_that_name() -> None:
    def joined(rows: pa.Table) -> pa.Array:
        return pa.array(["".join(sorted(rows["own v"].to_pylist()))])

    mine: Any = {"mine": agg.user_defined(joined, ["v"], pa.string())}
    code = own_code({"mine": joined}, {"mine": "own mine"})
    operator = with_own_names(RunningAggregate.build(K, mine, APPENDS), {"mine": "own mine", "v": "own v"}, code)
    assert operator is not None
    assert code == {"own mine": joined}
    assert operator.pipeline.output.names == ["k", "mine"]


def texts(value: Any) -> Iterator[str]:
    """The texts within a parameter, and the columns within an order."""
    if isinstance(value, str):
        yield from (value, value.split("`")[1] if "`" in value else value)
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts(each)


def test_every_kind_of_state_is_tried_here() -> None:
    known: dict[str, Pipeline] = dict(pipelines())
    assert {each.operator for each in known.values()} - {each.operator for each in OF_TASKS.values()} == {
        "append",
        "process",
        DELIVERY,
    }
