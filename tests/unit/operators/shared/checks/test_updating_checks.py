import re

import pyarrow as pa
import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators import RunningAggregate, agg
from dagster_ckpt.operators.rows.deduplicate import Deduplicate
from dagster_ckpt.operators.rows.materializer import Materializer
from dagster_ckpt.operators.sets.set_operation import Kind
from dagster_ckpt.operators.shared.checks.updating_checks import UNBOUNDED_JOIN, check_step
from dagster_ckpt.operators.shared.window_kinds import Session, Tumbling
from dagster_ckpt.operators.windows.session_aggregate import SessionAggregate
from dagster_ckpt.operators.windows.window_aggregate import WindowAggregate
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline
from dagster_ckpt.protocol.manifest.row_key import row_key
from dagster_ckpt.protocol.transitions.compatibility import breaking_changes

KIND = pa.field("_change_type", pa.string())
ROWS = InputSpec((), pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.timestamp("us", "UTC"))]))
CHANGES = InputSpec((), ROWS.schema.append(KIND))
COUNT = {"n": agg.count()}
OTHERS = ["interval_join", "join", "instant_join", "window_join", "process", "a_later_one"]


def counted(where: str | None) -> Pipeline:
    return RunningAggregate.build(("k",), COUNT, CHANGES, updating=True, where=where).pipeline


@pytest.mark.parametrize(
    "step", ["aggregate", "window", "top", "over", "deduplicate", UNBOUNDED_JOIN, "distinct", "union", *Kind]
)
@pytest.mark.parametrize("upstream_key", [("k",), None])
def test_a_step_that_takes_rows_back_can_follow(step: str, upstream_key: tuple[str, ...] | None) -> None:
    check_step(step, ("carrier",), upstream_key)


@pytest.mark.parametrize("step", OTHERS)
def test_a_step_that_cannot_take_rows_back_is_refused_with_its_reason(step: str) -> None:
    message = (
        r"the upstream table updates and deletes rows, and .+: read a stream that only appends, or use \.where, "
        r"\.key_by\(\.\.\.\)\.aggregate, \.window, \.top, \.deduplicate, or \.join without expire_after\. "
        rf"step={step}, upstream_key=k, part$"
    )
    with pytest.raises(InvalidPipelineError, match=message):
        check_step(step, ("k",), ("k", "part"))


@pytest.mark.parametrize("keys", [("k", "part"), ("part", "k"), ("part", "v", "k")])
def test_rows_that_are_one_per_key_need_no_deduplicate(keys: tuple[str, ...]) -> None:
    message = f"the upstream's rows are one per key already: leave deduplicate out. step=deduplicate, keys={keys[0]}"
    with pytest.raises(InvalidPipelineError, match=re.escape(message)):
        check_step("deduplicate", keys, ("k", "part"))


@pytest.mark.parametrize(
    ("upstream", "key"),
    [
        (RunningAggregate.build(("k",), COUNT, ROWS).pipeline, ("k",)),
        (Deduplicate.build(("v", "k"), ROWS, "last", "at", 10).pipeline, ("v", "k")),
        (Materializer.build(("k",), CHANGES).pipeline, ("k",)),
        (WindowAggregate.build(("k",), COUNT, ROWS, "at", Tumbling(5), True).pipeline, ("k", "window_start")),
        (SessionAggregate.build(("k",), COUNT, ROWS, "at", Session(5), True).pipeline, ("k", "window_start")),
    ],
    ids=lambda case: case.operator if isinstance(case, Pipeline) else "",
)
def test_the_rows_of_a_table_are_identified_by_key_and_window(upstream: Pipeline, key: tuple[str, ...]) -> None:
    assert row_key(upstream) == key
    assert set(key) <= set(upstream.output.names)


def test_another_condition_before_an_aggregate_is_an_incompatible_change() -> None:
    assert breaking_changes(counted("v > 1"), counted("v > 2")) == ('where was "v > 1", now it is "v > 2"',)
    assert RunningAggregate.from_pipeline(counted("v > 1")).pipeline == counted("v > 1")
    assert counted(None).parameters.keys() == {"aggregates", "event_time", "updating"}
