import json
from dataclasses import replace

import pyarrow as pa
import pytest

from dagster_ckpt.errors import IncompatibleStateError
from dagster_ckpt.operators import AppendOnly, agg, from_pipeline
from dagster_ckpt.operators.aggregates import spec
from dagster_ckpt.operators.aggregates.aggregate import GROUPS
from dagster_ckpt.operators.aggregates.kinds import sketches
from dagster_ckpt.operators.aggregates.registry import FUNCTIONS
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from tests.unit.operators.streams import Streamed, build
from tests.worlds.sample_aggregates import samples

ROWS = pa.table(
    {
        "k": pa.array(["a", "b", None, "a", "b"]),
        "v": pa.array([3, None, 5, 4, 8], pa.int32()),
        "d": pa.array([1, 2, None, 4, 5]).cast(pa.decimal128(19, 0)),
        "at": pa.array([5, 4, 3, 2, 1], pa.timestamp("us", "UTC")),
        "b": pa.array([True, False, None, True, True]),
    }
)
_KINDS = {
    spec.NUMBERS: "v",
    spec.INTEGERS: "v",
    spec.BOOLEANS: "b",
    spec.ORDERED: "v",
    spec.COMPARABLE: "v",
    spec.ANYTHING: "v",
}
EVERY = {
    **samples(_KINDS, other="d"),
    "rows": agg.count(),
    "exact": agg.sum("d"),
    "greatest": agg.max("at"),
    "exact_mean": agg.avg("d"),
    "closing": agg.last("k", by="v"),
    "spread": agg.variance("d"),
    "different_mean": agg.avg_distinct("d"),
    "half": agg.median("d"),
    "tails": agg.kurtosis("d"),
    "all_kinds": agg.collect_set("d"),
    "last_row": agg.last(["v", "b"]),
    "listed_rows": agg.collect(["v", "b"], 2),
}
HERE = [name for name, one in EVERY.items() if sketches.is_installed() or not FUNCTIONS[one.function].needs_sketches]


@pytest.mark.parametrize("names", [[name] for name in HERE] + [HERE], ids=str)
def test_an_operator_built_again_from_plain_json_reads_the_same(names: list[str]) -> None:
    operator = build(ROWS.schema, ("k",), "at", **{name: EVERY[name] for name in names})
    parameters = json.loads(json.dumps(operator.pipeline.parameters))
    again = from_pipeline(replace(operator.pipeline, parameters=parameters))
    assert not isinstance(again, AppendOnly)
    assert again.pipeline == again.operator.pipeline == operator.pipeline
    streamed = Streamed(operator)
    streamed.epoch(ROWS)
    table = streamed.state.tables[GROUPS]
    assert again.table is not None
    assert again.table.rows(table.live()).equals(streamed.table())
    assert streamed.table().schema == operator.pipeline.output


def test_an_append_only_stream_is_built_again() -> None:
    operator = AppendOnly.build(InputSpec((), ROWS.schema))
    assert from_pipeline(operator.pipeline) == operator
    assert operator.pipeline.output == ROWS.schema


def test_an_operator_of_a_later_release_is_not_guessed() -> None:
    pipeline = replace(AppendOnly.build(InputSpec((), ROWS.schema)).pipeline, operator="session_window")
    with pytest.raises(IncompatibleStateError, match="operator=session_window"):
        from_pipeline(pipeline)


def test_aggregates_of_one_column_share_what_they_keep() -> None:
    operator = build(
        ROWS.schema, ("k",), a=agg.sum("v"), b=agg.avg("v"), c=agg.count("v"), d=agg.stddev("v"), e=agg.variance("v")
    )
    assert operator.pipeline.tables[0].schema.names == [
        "k", "_rows", "_n(v)", "_sum(v)", "_mean(v)", "_m2(v)", "_last_time",
    ]  # fmt: skip


def test_the_state_knows_rows_and_the_last_event_time_of_each_key() -> None:
    streamed = Streamed(build(ROWS.schema, ("k",), "at", least=agg.min("v")))
    streamed.epoch(ROWS.slice(0, 3))
    streamed.epoch(ROWS.slice(3))
    table = streamed.state.tables[GROUPS]
    state = table.live().sort_by("k").to_pydict()
    assert state["k"] == ["a", "b", None]
    assert state["_rows"] == [2, 2, 1]
    assert [at.microsecond for at in state["_last_time"]] == [5, 4, 3]
