"""An operator under the names that its state has, where the code has new ones."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators import RunningAggregate, agg, from_pipeline
from dagster_ckpt.operators.kept_names import own_code, with_own_names
from dagster_ckpt.operators.rows.deduplicate import Deduplicate
from dagster_ckpt.protocol.manifest.codec import decode_manifest, encode_manifest
from dagster_ckpt.protocol.manifest.manifest import DELIVERY, InputSpec, Pipeline
from dagster_ckpt.protocol.transitions.compatibility import breaking_changes
from dagster_ckpt.protocol.transitions.renamed_columns import own_names
from tests.unit.operators.dict_state import DictState
from tests.unit.operators.explained.explained_pipelines import APPENDS, K, pipelines
from tests.unit.operators.streams import colliding, context
from tests.worlds.manifests import a_manifest

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
    inner = operator.pipeline.own
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
    now = with_own_names(replace(was, pipeline=was.pipeline.own), CODE, None)
    assert now is not None
    assert breaking_changes(OF_TASKS[name].own, now.pipeline) == ()
    assert without_names(now.pipeline.own) == from_pipeline(OF_TASKS[name].own).pipeline
    assert from_pipeline(now.pipeline).pipeline == now.pipeline, "it is rebuilt from its fingerprint"


@pytest.mark.parametrize("name", OF_TASKS)
def test_the_fingerprint_has_both_names_of_all_that_is_read(name: str) -> None:
    """So the next start knows the columns that are in the state alone, without being told again."""
    declared = OF_TASKS[name].own
    was = with_own_names(from_pipeline(declared), OWN, None)
    assert was is not None
    stored = decode_manifest(encode_manifest(a_manifest(pipeline=was.pipeline)), "manifest").pipeline
    assert stored == was.pipeline
    read = {column for each in declared.inputs for column in each.schema.names}
    known = own_names(stored, declared, {})
    assert {column: known.get(column) for column in read} == {column: OWN.get(column) for column in read}
    assert set(declared.output.names) & OWN.keys() <= known.keys()


def test_a_column_that_is_only_read_is_renamed_twice() -> None:
    def mean_of(column: str) -> RunningAggregate:
        rows = pa.schema([("k", pa.string()), (column, pa.float64())])
        return RunningAggregate.build(K, {"mean": agg.avg(column)}, InputSpec((), rows))

    def started(stored: Pipeline, column: str, renames: dict[str, str]) -> Pipeline:
        operator = mean_of(column)
        under = with_own_names(operator, own_names(stored, operator.pipeline, renames), None)
        assert under is not None
        assert breaking_changes(stored, under.pipeline) == ()
        return under.pipeline

    stored = mean_of("dep_delay").pipeline
    for column, renames in (("delay", {"dep_delay": "delay"}), ("delay", {}), ("minutes", {"delay": "minutes"})):
        stored = started(stored, column, renames)
        assert stored.inputs[0].columns == (("dep_delay", column),)
    assert own_names(stored, mean_of("dep_delay").pipeline, {}) == {}, "the code from before"


def without_names(pipeline: Pipeline) -> Pipeline:
    return replace(pipeline, inputs=tuple(replace(each, columns=()) for each in pipeline.inputs))


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
