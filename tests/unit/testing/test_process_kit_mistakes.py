import itertools
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.process import KeyedState, ListState, ProcessContext, ProcessFunction, StateKind, ValueState
from dagster_ckpt.testing import ProcessKit
from tests.unit.operators.process_streams import SCHEMA, rows

TICKS = itertools.count()


class Keeping(ProcessFunction):
    """Keeps a number of each key, and two in a list."""

    output = SCHEMA
    state: ClassVar[dict[str, StateKind]] = {
        "number": ValueState(pa.schema([("n", pa.int64())])),
        "numbers": ListState(pa.schema([("n", pa.int64())])),
    }

    def number(self) -> int:
        return 7

    def numbers(self) -> list[int]:
        return [1, 2]

    def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> None:
        keys = rows.group_by("k").aggregate([])["k"]
        n = pa.array([self.number()] * len(keys), pa.int64())
        state.value("number").put(pa.table({"k": keys, "n": n}))
        for n in self.numbers():
            state.list("numbers").append(pa.table({"k": keys, "n": pa.array([n] * len(keys), pa.int64())}))


class Timed(Keeping):
    timers_within = timedelta(microseconds=10)

    def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> None:
        state.timers.set(rows, pa.array([next(TICKS)] * rows.num_rows).cast(SCHEMA.field("at").type))

    def on_watermark(self, timers: pa.Table, state: KeyedState, context: ProcessContext) -> None:
        return None


def kit(function: ProcessFunction | None = None, **options: Any) -> ProcessKit:
    return ProcessKit(function or Keeping(), SCHEMA, **{"keys": ["k"], "event_time": "at", **options})


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (type("Ticking", (Keeping,), {"number": lambda _: next(TICKS)})(), "state=number, function=Ticking, epoch=0"),
        (type("Growing", (Keeping,), {"numbers": lambda _: [next(TICKS)]})(), "state=numbers, function=Growing"),
        (Timed(), "of=timers, function=Timed"),
    ],
)
def test_randomness_in_the_state_alone_is_detected(function: ProcessFunction, message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=f"leaves other state: .*{message}"):
        kit(function).epoch(rows(("a", 1, 0)))


def test_the_order_of_a_list_is_nothing() -> None:
    turns = itertools.cycle([[1, 2, 2], [2, 1, 2]])
    one = kit(type("Turning", (Keeping,), {"numbers": lambda _: next(turns)})())
    one.epoch(rows(("a", 1, 0), ("b", 1, 0)))
    assert sorted(one.state("numbers")["n"].to_pylist()) == [1, 1, 2, 2, 2, 2]


def test_a_dictionary_may_come_out() -> None:
    class Encoding(ProcessFunction):
        output = pa.schema([("k", pa.string()), ("d", pa.dictionary(pa.int32(), pa.string()))])

        def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
            return pa.table({"k": rows["k"], "d": rows["k"].dictionary_encode()})

    made = kit(Encoding(), memory_limit=1).epoch(rows(("a", 1, 0)), rows(("b", 1, 0)))
    assert made["d"].to_pylist() == ["a", "b"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            lambda: kit().state("numbrs"),
            "no such state. Did you mean 'numbers'? state=numbrs, declared=number, n",
        ),
        (lambda: kit().timers(), "the function sets no timers: give its class `timers_within`."),
        (lambda: kit().epoch([1]), "a batch is a pyarrow.Table, or a RecordBatch. given=list"),
        (lambda: kit(event_time=None, delay="1h"), "name its column with event_time=, or leave delay out. delay='1h'"),
        (lambda: kit(shards=3), "shards must be a power of two: 1, 2, 4, 8 ... shards=3"),
        (lambda: kit(shards=0), "shards=0"),
    ],
)
def test_invalid_use_of_the_kit_is_refused(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=re.escape(message)):
        wrong()


def test_a_record_batch_is_a_batch_and_a_name_is_one_key() -> None:
    one = kit(keys="k")
    [batch] = rows(("a", 1, 0)).to_batches()
    one.epoch(batch)
    assert one.state("number").to_pydict() == {"k": ["a"], "n": [7]}


def test_a_flush_reaches_no_further_than_a_streams_does() -> None:
    class Far(Keeping):
        timers_within = timedelta(microseconds=2**63 - 1)

        def on_watermark(self, timers: pa.Table, state: KeyedState, context: ProcessContext) -> None:
            return None

    one = kit(Far())
    one.epoch(rows(("a", 1, 10**15)))
    one.flush()
    assert one.watermark is not None
    assert one.watermark.value == 2**62


def test_memory_is_relieved_between_the_calls_of_a_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    from dagster_ckpt.state.sorted_table import SortedTable

    class Fat(ProcessFunction):
        """A timer puts much, and says nothing."""

        output = SCHEMA
        state: ClassVar[dict[str, StateKind]] = {"fat": ValueState(pa.schema([("v", pa.string())]))}
        timers_within = timedelta(microseconds=10)

        def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> None:
            state.timers.set(rows, rows["at"])

        def on_watermark(self, timers: pa.Table, state: KeyedState, context: ProcessContext) -> None:
            state.value("fat").put(pa.table({"k": timers["k"], "v": ["x" * 500] * timers.num_rows}))

    held = [0]
    stage = SortedTable.stage

    def watched(self: SortedTable, run: Any, before: Any = None) -> None:
        stage(self, run, before)
        held.append(self.nbytes)

    monkeypatch.setattr(SortedTable, "stage", watched)
    one = kit(Fat(), memory_limit="256 KiB", shards=1)
    one.epoch(rows(*((f"k{number}", 1, 5) for number in range(2_000))))
    held.clear()
    one.epoch()
    assert one.state("fat").num_rows == 2_000
    assert max(held) < 200_000, "a million bytes were put"
