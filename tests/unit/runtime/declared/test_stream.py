from datetime import timedelta
from typing import Any

import pytest

from dagster_ckpt import agg
from dagster_ckpt.errors import InvalidPipelineError
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
        (lambda s: s.with_watermark("at", "-5s"), "delay must be a length of time such as"),
    ],
)
def test_a_step_that_makes_no_sense_is_refused_where_it_is_written(steps: Any, message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=message):
        steps(Stream(FRAME))
