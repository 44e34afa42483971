from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt import agg, over
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.operator import Operator
from dagster_ckpt.operators.step import OperatorStep
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from dagster_ckpt.protocol.manifest.row_key import row_key
from dagster_ckpt.runtime.declared.step_parts import StepInput, Upstream
from dagster_ckpt.runtime.declared.stream import Stream

FRAME: Any = object()


def test_each_step_returns_a_new_stream() -> None:
    bare = Stream(FRAME)
    timed = bare.with_watermark("at", timedelta(seconds=5))
    full = timed.key_by("a", "b").aggregate(n=agg.count(), total=agg.sum("x"))
    assert (bare.event_time, bare.keys, bare.step, bare.inputs) == (None, (), None, (bare,))
    assert full.event_time == timed.event_time
    assert timed.event_time is not None
    assert (timed.event_time.column, timed.event_time.delay_ms) == ("at", 5_000)
    assert full.keys == ("a", "b")
    assert full.step is not None
    assert (full.step.name, full.inputs, full.flushes) == ("aggregate", (full,), False)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (lambda s: s.key_by(), "at least one column"),
        (lambda s: s.key_by("a").key_by("b"), "call key_by once"),
        (lambda s: s.deduplicate(), r"call key_by\(column"),
        (lambda s: s.key_by("a").aggregate(), "needs something to compute"),
        (lambda s: s.with_watermark("at", "5s").with_watermark("at", "5s"), "call with_watermark once"),
        (lambda s: s.key_by("a").top(3, by=[]), "top needs an order"),
        (lambda s: s.key_by("a", expire_after="1 hour").top(3, "b asc"), "leave expire_after out of key_by"),
        (
            lambda s: s.key_by("a", expire_after="1 hour").over("b asc", n=over.rank()),
            "leave expire_after out of key_by",
        ),
        (lambda s: s.key_by("a").distinct(), "leave key_by out. step=distinct, keys=a"),
        (lambda s: s.with_watermark("at", "-5s"), "delay must be a length of time such as"),
    ],
)
def test_a_step_that_makes_no_sense_is_refused_where_it_is_written(steps: Any, message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=message):
        steps(Stream(FRAME))


CHANGES = pa.schema([("id", pa.int64()), ("k", pa.string()), ("v", pa.int64()), ("_change_type", pa.string())])


def built(steps: Any, key: tuple[str, ...] | None) -> Operator:
    """The operator of a step over a table that changes."""
    upstream = Upstream("orders", key, changes=True)
    stream = steps(Stream(FRAME, upstream=upstream))
    assert stream.step is not None
    operator: Operator = stream.step.build([StepInput(InputSpec((), CHANGES), stream.keys, None, upstream)])
    return operator


@pytest.mark.parametrize(
    ("steps", "key", "wanted"),
    [
        (lambda s: s.key_by("k").deduplicate("last", by="v"), ("id",), ("k",)),
        (lambda s: s.key_by("k").deduplicate(), None, ("k",)),
        (lambda s: s.key_by("k").top(2, "v desc"), ("id",), ("k", "id")),
        (lambda s: s.key_by("k").top(2, "v desc"), None, None),
        (lambda s: s.top(2, "v desc"), ("id",), ("id",)),
        (lambda s: s.top(2, "v desc", rank="place"), None, ("place",)),
    ],
)
def test_the_first_rows_of_a_table_that_changes_have_the_key_that_follows(steps: Any, key: Any, wanted: Any) -> None:
    pipeline = OperatorStep.of(built(steps, key)).with_table().pipeline
    assert (pipeline.operator, row_key(pipeline)) == ("top", wanted)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (lambda s: s.key_by("k").deduplicate(expire_after="1 day"), "rows of an expired key could not be retracted"),
        (lambda s: s.key_by("k").deduplicate(late="keep"), "no row is ever too late"),
        (lambda s: s.key_by("k").deduplicate("last"), "needs an order"),
        (lambda s: s.key_by("id", "k").deduplicate(), "one per key already"),
    ],
)
def test_deduplication_of_a_table_that_changes_is_refused_with_its_reason(steps: Any, message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=message):
        built(steps, ("id",))
