"""A user-defined aggregate: what it gets, what is refused, what is said of a function that returns something else."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators import agg, from_pipeline
from dagster_ckpt.operators.aggregates.aggregate import RunningAggregate
from dagster_ckpt.operators.shared.window_kinds import Tumbling
from dagster_ckpt.operators.windows.window_aggregate import WindowAggregate
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from tests.unit.operators.changing_streams import Changing

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("l", pa.list_(pa.int64())), ("at", pa.timestamp("us"))])
SOURCE = InputSpec((), SCHEMA)
ROWS = pa.table({"k": ["b", "a", "b"], "v": [3, None, 1], "l": [[], [], []], "at": [0, 0, 0]}).cast(SCHEMA)


def counts(rows: pa.Table) -> pa.Array:
    return rows.group_by("_group", use_threads=False).aggregate([("v", "count")])["v_count"]


def worked(function: Callable[[pa.Table], Any], returns: pa.DataType) -> list[dict[str, Any]]:
    one = agg.user_defined(function, ["v"], returns)
    stream = Changing(RunningAggregate.build(("k",), {"mine": one}, SOURCE), rebuilds=False)
    stream.epoch((0, ROWS.select(stream.pipeline.inputs[0].schema.names)))
    return stream.table()


def test_it_gets_the_rows_of_many_keys_at_once() -> None:
    seen = list[dict[str, Any]]()

    def function(rows: pa.Table) -> pa.Array:
        seen.extend(rows.to_pylist())
        return counts(rows)

    table = {row["k"]: row["mine"] for row in worked(function, pa.int32())}
    assert table == {"a": 0, "b": 2}
    by_number: dict[int, list[Any]] = {}
    for row in seen:
        by_number.setdefault(row["_group"], []).append(row["v"])
    assert sorted(by_number.values(), key=repr) == [[1, 3], [None]], "one call, in the order of the values"
    assert list(by_number) == [0, 1]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda rows: [1, 2], "one value for each number in _group. aggregate=mine, groups=2, got=list"),
        (lambda rows: pa.array([1]), "aggregate=mine, groups=2, got=1 values"),
        (lambda rows: pa.array(["x", "y"]), "do not fit its type.*aggregate=mine, returns=int32, got=string"),
    ],
)
def test_what_it_returns_is_checked(function: Callable[[pa.Table], Any], message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=message):
        worked(function, pa.int32())


@pytest.mark.parametrize(
    ("columns", "returns", "message"),
    [
        ([], pa.int32(), "name the columns that user_defined reads.*aggregate=mine"),
        (["v", "v"], pa.int32(), "name each column once. aggregate=mine, columns=v, v"),
        (["w"], pa.int32(), "no such column.*column=w"),
        (["l"], pa.int32(), "they need an order.*column=l"),
        (["v"], "int", "the Arrow type of the result.*returns='int'"),
    ],
)
def test_what_cannot_be_computed_is_refused(columns: list[str], returns: Any, message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=message):
        RunningAggregate.build(("k",), {"mine": agg.user_defined(counts, columns, returns)}, SOURCE)


def test_a_window_and_a_key_that_expires_have_no_table_for_it() -> None:
    mine = {"mine": agg.user_defined(counts, ["v"], pa.int64())}
    with pytest.raises(InvalidPipelineError, match=r"leave expire_after out.* aggregate=mine"):
        RunningAggregate.build(("k",), mine, SOURCE, "at", 10)
    with pytest.raises(InvalidPipelineError, match=r"make their start a column.* aggregate=mine"):
        WindowAggregate.build(("k",), mine, SOURCE, "at", Tumbling(10))


def test_readers_need_no_code() -> None:
    """What a task has computed is in the state."""
    mine = {"mine": agg.user_defined(counts, ["v"], pa.struct([("a", pa.int64())]))}
    operator = RunningAggregate.build(("k",), mine, SOURCE)
    again = from_pipeline(operator.pipeline)
    assert again.pipeline == operator.pipeline
    with_code = from_pipeline(operator.pipeline, {"mine": counts})
    assert with_code.pipeline == operator.pipeline
