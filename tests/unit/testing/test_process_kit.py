import itertools
import re
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.process import (
    KeyedState,
    ListState,
    ProcessContext,
    ProcessFunction,
    StateKind,
    ValueState,
)
from dagster_ckpt.testing import ProcessKit
from tests.unit.operators.process_streams import SCHEMA, rows

TICKS = itertools.count()


class Totals(ProcessFunction):
    """The sum so far of each key of a call; ten minutes after a row, the rows that were kept."""

    output = pa.schema([("k", pa.string()), ("total", pa.int64())])
    state: ClassVar[dict[str, StateKind]] = {
        "total": ValueState(pa.schema([("total", pa.int64())])),
        "rows": ListState(pa.schema([("v", pa.int64())])),
    }
    timers_within = timedelta(microseconds=10)

    def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
        sums = rows.group_by("k").aggregate([("v", "sum")])
        before = pc.fill_null(state.value("total").get(sums)["total"], 0)
        totals = pa.table({"k": sums["k"], "total": pc.add(before, sums["v_sum"])})
        state.value("total").put(totals)
        state.list("rows").append(rows.select(["k", "v"]))
        state.timers.set(rows, pc.add(rows["at"], pa.scalar(timedelta(microseconds=10))))
        return totals

    def on_watermark(self, timers: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
        kept = state.list("rows").get(timers)
        return pa.table({"k": timers["k"].take(kept["_key"]), "total": kept["v"]})


def kit(function: ProcessFunction | None = None, **options: Any) -> ProcessKit:
    return ProcessKit(function or Totals(), SCHEMA, keys=["k"], event_time="at", **options)


def totals(table: pa.Table) -> list[tuple[str, int]]:
    return sorted((row["k"], row["total"]) for row in table.to_pylist())


@pytest.mark.parametrize("options", [{}, {"shards": 1}, {"shards": 16}, {"memory_limit": 4096}], ids=str)
def test_a_function_is_run_epoch_by_epoch_on_the_real_engine(options: dict[str, Any]) -> None:
    one = kit(**options)
    assert totals(one.epoch(rows(("a", 1, 0), ("b", 2, 1)), rows(("a", 3, 0)))) == [("a", 1), ("a", 4), ("b", 2)]
    assert totals(one.epoch(rows(("a", 5, 12), ("c", 0, 0)))) == [("a", 9)]
    assert one.late.column("k").to_pylist() == ["c"]
    assert one.watermark == pa.scalar(12, pa.timestamp("us", "UTC"))
    assert totals(one.epoch()) == [("a", 1), ("a", 3), ("a", 5), ("b", 2)]
    assert totals(one.state("total")) == [("a", 9), ("b", 2)]
    assert sorted(one.state("rows").to_pydict()["v"]) == [1, 2, 3, 5]
    assert one.timers().to_pydict()["k"] == ["a"]
    assert totals(one.flush()) == [("a", 1), ("a", 3), ("a", 5)]
    assert one.timers().num_rows == 0


def test_the_watermark_lags_by_the_delay_and_never_goes_back() -> None:
    one = kit(delay="1ms")
    watermarks = [one.watermark]
    for time_us in (5_000, 4_500):
        one.epoch(rows(("a", 1, time_us)))
        watermarks.append(one.watermark)
    assert watermarks == [None, *(2 * [pa.scalar(4_000, pa.timestamp("us", "UTC"))])]
    assert one.late.num_rows == 0


def test_state_expires_as_the_stream_would_have_it() -> None:
    one = kit(expire_after="1ms")
    one.epoch(rows(("a", 1, 0)))
    one.epoch(rows(("b", 1, 1_000)))
    one.epoch()
    assert totals(one.state("total")) == [("b", 1)]


def test_lengths_of_time_are_read_as_the_streams_steps_read_them() -> None:
    one = kit(expire_after=timedelta(microseconds=1_500), delay="0s")
    one.epoch(rows(("a", 1, 0)))
    one.epoch(rows(("b", 1, 1_499)))
    one.epoch()
    assert totals(one.state("total")) == [("a", 1), ("b", 1)]
    one.epoch(rows(("b", 1, 1_500)))
    one.epoch()
    assert totals(one.state("total")) == [("b", 2)]


def test_an_event_time_out_of_range_is_late_and_does_not_move_the_watermark() -> None:
    one = kit(delay="1s")
    one.epoch(rows(("a", 1, -(2**63))))
    assert one.watermark is None
    one.epoch(rows(("a", 1, 2**61), ("a", 2, 2**63 - 1)))
    assert one.watermark == pa.scalar(2**61 - 1_000_000, pa.timestamp("us", "UTC"))
    assert [scalar.value for scalar in one.late["at"]] == [-(2**63), 2**63 - 1]


def test_a_kit_without_event_time_or_rows() -> None:
    class Echo(ProcessFunction):
        output = SCHEMA

        def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
            return rows

    one = ProcessKit(Echo(), SCHEMA, keys=("k",))
    assert one.flush().num_rows == 0
    assert one.epoch(rows(("a", 1, 0))).num_rows == 1
    assert one.watermark is None


@dataclass
class Remembering(Totals):
    """Keeps something in itself."""

    seen: set[str] = field(default_factory=set)

    def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
        new = [key for key in rows["k"].to_pylist() if key not in self.seen]
        self.seen.update(new)
        return pa.table({"k": new, "total": [len(self.seen)] * len(new)}, schema=self.output)


def test_what_a_function_keeps_in_itself_is_gone_in_the_next_epoch() -> None:
    one = kit(Remembering())
    assert totals(one.epoch(rows(("a", 1, 0)))) == totals(one.epoch(rows(("a", 1, 0)))) == [("a", 1)]


def test_a_function_that_depends_on_something_outside_is_refused() -> None:
    class Ticking(Totals):
        def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
            return pa.table({"k": ["a"], "total": [next(TICKS)]}, schema=self.output)

    with pytest.raises(InvalidPipelineError, match=r"makes other rows: .*function=Ticking, epoch="):
        kit(Ticking()).epoch(rows(("a", 1, 0)))


def test_a_batch_with_other_columns_is_refused() -> None:
    with pytest.raises(InvalidPipelineError, match=re.escape("a batch must have the kit's schema: cast it.")):
        kit().epoch(pa.table({"k": ["a"]}))


def test_it_loads_neither_spark_nor_dagster() -> None:
    program = "import sys, dagster_ckpt.testing.process_kit; print({'dagster', 'pyspark'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
