import json
import re
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt.errors import CheckpointDeclinedError, IncompatibleStateError, InvalidPipelineError
from dagster_ckpt.operators.operator import change_log_table
from dagster_ckpt.operators.process import (
    COUNTERS,
    KeyedState,
    ListState,
    ProcessContext,
    ProcessFunction,
    ProcessOperator,
    StateKind,
    ValueState,
)
from dagster_ckpt.operators.registry import counters_of
from dagster_ckpt.protocol.manifest.manifest import InputSpec, SortKind
from dagster_ckpt.protocol.transitions.compatibility import breaking_changes
from tests.unit.operators.process_streams import SCHEMA, TIME, ProcessStream, rows

OUTPUT = pa.schema([("k", pa.string()), pa.field("n", pa.int64(), nullable=False)])
ONE = pa.schema([("n", pa.int64())])


class Function(ProcessFunction):
    output = OUTPUT

    def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> Any:
        return None


class WithTimers(Function):
    timers_within = timedelta(minutes=1)

    def on_watermark(self, timers: pa.Table, state: KeyedState, context: ProcessContext) -> Any:
        return None


def declaring(base: type[ProcessFunction] = Function, **declared: object) -> ProcessFunction:
    """A function whose class declares this."""
    made: ProcessFunction = type("Declaring", (base,), declared)()
    return made


def build(function: object = None, **changed: Any) -> ProcessOperator:
    given: dict[str, Any] = {"keys": ("k",), "source": InputSpec((), SCHEMA), "event_time": "at", **changed}
    return ProcessOperator.build(function or Function(), **given)  # type: ignore[arg-type]


def state(kind: object, name: object = "x") -> ProcessFunction:
    return declaring(state={name: kind})


OF = "operator=process, function="


@pytest.mark.parametrize(
    ("function", "changed", "message"),
    [
        (Function, {}, "give process an object, not its class: Function()"),
        (len, {}, "whose class is a ProcessFunction. got=builtin_function_or_method"),
        (None, {"keys": ()}, f"call key_by(column, ...) before process. {OF}Function"),
        (None, {"keys": ("key",)}, "no such column"),
        (
            None,
            {"keys": ("_time",), "source": InputSpec((), pa.schema([("_time", pa.int64())])), "event_time": None},
            "the state has a column of this name: rename the key before key_by. key=_time",
        ),
        (None, {"event_time": "v"}, "event time must be a timestamp"),
        (None, {"late": "lost"}, "late="),
        (
            None,
            {"source": InputSpec((), pa.schema([*SCHEMA, ("v", pa.string())]))},
            f"rename or drop all but one. column=v, {OF}Function",
        ),
        (declaring(output=["k"]), {}, f"make it a pyarrow.schema. output=['k'], {OF}Declaring"),
        (declaring(output=pa.schema([])), {}, "at least one column"),
        (declaring(output=pa.schema([("_epoch", pa.int64())])), {}, "column=_epoch"),
        (declaring(output=pa.schema([("_n", pa.int64())])), {}, "choose another. of=output, column=_n"),
        (declaring(output=pa.schema([("n", pa.struct([]))])), {}, "a struct without fields"),
        (declaring(output=pa.schema([("n", pa.int64()), ("N", pa.int64())])), {}, "could not tell these columns apart"),
        (
            declaring(output=pa.schema([("k", pa.int64())])),
            {},
            "declare it with its type, or give the output another name. column=k, type=string, declared=int64",
        ),
        (declaring(state=[ValueState(ONE)]), {}, "`state` is a dict of names"),
        (state(ValueState(ONE), "Last"), {}, "name a state in small letters, digits and _"),
        (state(ValueState(ONE), 7), {}, "state=7"),
        (state(ONE), {}, "declare a state as ValueState(pa.schema([...])) or ListState(pa.schema([...])). state=x"),
        (state(ValueState({"n": "int"})), {}, "declare a state as ValueState(pa.schema([...]))"),
        (state(StateKind(ONE)), {}, "declare a state as ValueState(pa.schema([...]))"),
        (state(ListState(pa.schema([("_n", pa.int64())]))), {}, "choose another. state=x, column=_n"),
        (
            state(ListState(pa.schema([("K", pa.int64())]))),
            {},
            f"leave this one out, or choose another name. state=x, column=K, {OF}Declaring",
        ),
        (
            state(ValueState(pa.schema([("n", pa.list_(pa.dictionary(pa.int8(), pa.string())))]))),
            {},
            "declare the plain type. state=x, column=n, type=list<",
        ),
        (
            state(ListState(pa.schema([("n", pa.list_view(pa.int8()))]))),
            {},
            "declare the plain type. state=x, column=n, type=list_view<",
        ),
        *(
            (declaring(output=pa.schema([("k", pa.string()), ("n", type_)])), {}, f"of=output, column=n, type={type_}")
            for type_ in (
                pa.list_view(pa.int8()),
                pa.struct([("a", pa.large_list_view(pa.int8()))]),
                pa.string_view(),
                pa.month_day_nano_interval(),
                pa.run_end_encoded(pa.int32(), pa.string()),
                pa.uuid(),
                pa.dense_union([pa.field("a", pa.int8())]),
                pa.dictionary(pa.int8(), pa.binary_view()),
            )
        ),
        (
            None,
            {"source": InputSpec((), pa.schema([*SCHEMA, ("n", pa.list_(pa.list_view(pa.int8())))]))},
            f"cast it to a list. column=n, type=list<item: list_view<item: int8>>, {OF}Function",
        ),
        (
            declaring(WithTimers, timers_within=timedelta.max),
            {},
            "does not fit into 64 bits of microseconds: give a shorter one.",
        ),
        (declaring(timers_within=timedelta(1)), {}, "timers are for on_watermark: write it"),
        (declaring(WithTimers, timers_within=None), {}, f"or leave on_watermark out. {OF}Declaring"),
        (declaring(WithTimers, timers_within=60), {}, "give `timers_within` as a timedelta, not below zero"),
        (declaring(WithTimers, timers_within=-timedelta(1)), {}, "not below zero"),
        (
            WithTimers(),
            {"event_time": None},
            f"give the stream one by with_watermark(column, delay). timers_within=0:01:00, {OF}WithTimers",
        ),
        (state(ValueState(ONE)), {"event_time": None, "expire_after_us": 1}, "state expires by event time"),
        (state(ValueState(ONE)), {"expire_after_us": 0}, "above zero. expire_after_us=0"),
        (Function(), {"expire_after_us": 5}, "there is no state that could expire"),
    ],
)
def test_before_anything_starts(function: object, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=re.escape(message)):
        build(function, **changed)


@pytest.mark.parametrize(
    "type_",
    [
        pa.float16(), pa.float64(), pa.bool_(), pa.date64(), pa.time64("ns"), pa.duration("s"), pa.timestamp("ns"),
        pa.decimal256(40, 2), pa.large_string(), pa.large_binary(), pa.binary(3), pa.null(), pa.uint64(),
        pa.list_(pa.struct([("a", pa.map_(pa.string(), pa.int8()))])), pa.large_list(pa.int8()), pa.list_(pa.int8(), 2),
    ],
    ids=str,
)  # fmt: skip
def test_state_may_be_of_every_other_type(type_: pa.DataType) -> None:
    assert build(state(ValueState(pa.schema([("n", type_)])))).pipeline.tables[0].schema.field("n").type == type_


@pytest.mark.parametrize(
    "type_",
    [
        pa.dictionary(pa.int8(), pa.string()), pa.list_(pa.dictionary(pa.int32(), pa.string())), pa.null(),
        pa.duration("us"), pa.decimal256(60, 2), pa.list_(pa.int32(), 2), pa.map_(pa.string(), pa.int32()),
    ],
    ids=str,
)  # fmt: skip
def test_output_may_be_of_every_type_that_a_table_has(type_: pa.DataType) -> None:
    assert build(declaring(output=pa.schema([("n", type_)]))).pipeline.output.field("n").type == type_


def answering(answer: object) -> ProcessFunction:
    return declaring(on_rows=lambda self, rows, state, context: answer)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([], "give a pyarrow.Table. given=list, operator=process, method=Declaring.on_rows"),
        (pa.table({"k": ["a"]}), "add it. column=n, columns=k, operator=process, method=Declaring.on_rows"),
        (pa.table({"k": ["a"], "n": [1], "m": [1]}), "leave it out. column=m, columns=k, n"),
        (pa.table({"n": [1], "k": ["a"]}), "select them so. columns=n, k, output=k, n"),
        (pa.table({"k": ["a"], "n": [1.5]}), "cast it, or declare it so. column=n, type=double, declared=int64"),
        (pa.table({"k": [1], "n": [1]}), "column=k, type=int64, declared=string"),
        (pa.table({"k": ["a"], "n": pa.nulls(1, pa.int64())}), "column=n, nulls=1"),
    ],
)
def test_what_a_method_returns_is_what_it_declared(answer: object, message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=re.escape(message)):
        ProcessStream(answering(answer)).epoch(rows(("a", 1, 1)))


@pytest.mark.parametrize(
    ("keys", "answer", "message"),
    [
        (
            ("k",),
            pa.table({"k": ["a", "A", "B"], "v": [1, 1, 1]}),
            "another name in `output`. column=k, key={'k': 'A'}, others=1, operator=process, method=Declaring.on_rows",
        ),
        (("k",), pa.table({"k": pa.nulls(1, pa.string()), "v": [1]}), "column=k, key={'k': None}, others=0"),
        (("k", "v"), pa.table({"k": ["b", "b"], "v": [2, 3]}), "column=v, key={'k': 'b', 'v': 3}"),
        (("k", "v"), pa.table({"k": ["b"], "v": [1]}), "column=k, v, key={'k': 'b', 'v': 1}"),
    ],
)
def test_key_columns_come_out_as_they_went_in(keys: tuple[str, ...], answer: pa.Table, message: str) -> None:
    function = declaring(output=answer.schema, on_rows=lambda self, rows, state, context: answer)
    with pytest.raises(InvalidPipelineError, match=re.escape(message)):
        ProcessStream(function, keys=keys).epoch(rows(("a", 1, 1), ("b", 2, 1)))


def test_the_keys_of_timers_come_out_as_they_went_in_too() -> None:
    made = pa.table({"k": ["z"], "n": [1]})
    function = declaring(
        WithTimers, on_rows=lambda _, rows, state, __: state.timers.set(rows, rows["at"]), on_watermark=lambda *_: made
    )
    stream = ProcessStream(function)
    stream.epoch(rows(("a", 1, 1)))
    with pytest.raises(InvalidPipelineError, match=r"column=k, key=\{'k': 'z'\}, .*method=Declaring\.on_watermark"):
        stream.epoch()


def test_output_with_a_part_of_the_key_alone_may_have_any_value_there() -> None:
    answer = pa.table({"k": ["z"]})
    function = declaring(output=answer.schema, on_rows=lambda self, rows, state, context: answer)
    assert ProcessStream(function, keys=("k", "v")).epoch(rows(("a", 1, 1))) == [{"k": "z"}]


def test_what_on_watermark_returns_is_looked_at_too() -> None:
    def on_rows(self: ProcessFunction, rows: pa.Table, state: KeyedState, context: ProcessContext) -> None:
        state.timers.set(rows, rows["at"])

    function = declaring(WithTimers, on_rows=on_rows, on_watermark=lambda *_: pa.table({"n": [1]}))
    stream = ProcessStream(function)
    stream.epoch(rows(("a", 1, 1)))
    with pytest.raises(
        InvalidPipelineError, match=r"column=k, columns=n, operator=process, method=Declaring.on_watermark"
    ):
        stream.epoch()


def test_columns_in_several_chunks_and_of_other_nullability_are_taken_as_declared() -> None:
    parts = [pa.table({"k": [key], "n": [1]}) for key in "ab"]
    made = ProcessStream(answering(pa.concat_tables(parts))).epoch(rows(("a", 1, 1), ("b", 1, 1)))
    assert made == [{"k": "a", "n": 1}, {"k": "b", "n": 1}]


@dataclass
class Raising(Function):
    error: Exception

    def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> Any:
        raise self.error


def test_an_error_of_user_code_names_its_method_and_line() -> None:
    error = ZeroDivisionError("by zero")
    line = Raising.on_rows.__code__.co_firstlineno + 1
    with pytest.raises(
        CheckpointDeclinedError,
        match=rf"operator=process, method=Raising.on_rows, line={line}, error=ZeroDivisionError: by zero",
    ) as caught:
        ProcessStream(Raising(error)).epoch(rows(("a", 1, 1)))
    assert caught.value.__cause__ is error


def test_a_method_with_other_parameters_is_named_too() -> None:
    function = declaring(on_rows=lambda self, rows: None)
    with pytest.raises(CheckpointDeclinedError, match=r"method=Declaring.on_rows, error=TypeError: .*positional"):
        ProcessStream(function).epoch(rows(("a", 1, 1)))


def test_an_error_of_ours_passes_as_it_is() -> None:
    with pytest.raises(InvalidPipelineError, match=r"^ours$"):
        ProcessStream(Raising(InvalidPipelineError("ours"))).epoch(rows(("a", 1, 1)))


STATES: dict[str, StateKind] = {"one": ValueState(ONE), "many": ListState(ONE)}


def whole(**declared: object) -> ProcessFunction:
    return declaring(WithTimers, **{"state": STATES, **declared})


def test_the_fingerprint_has_what_the_function_declares_and_not_the_function() -> None:
    operator = build(whole(), late="keep", expire_after_us=7)
    pipeline = operator.pipeline
    assert json.loads(json.dumps(pipeline.parameters)) == {"event_time": "at", "late": "keep", "expire_after_us": 7}
    assert [(table.name, table.keys, table.sort) for table in pipeline.tables] == [
        ("state_one", ("k",), SortKind.HASH),
        ("state_many", ("k", "_index"), SortKind.HASH),
        ("size_many", ("k",), SortKind.HASH),
        ("timers", ("_time", "k"), SortKind.TIME),
        ("seen", ("k",), SortKind.HASH),
        ("expiry", ("_time", "k"), SortKind.TIME),
        ("out", ("_number",), SortKind.TIME),
        ("_late_0", ("_late_at", "_row"), SortKind.TIME),
    ]
    assert (pipeline.appends, change_log_table(operator), operator.event_times) == (True, None, ("at",))
    assert operator.horizon_us == 60_000_000
    assert counters_of(pipeline) == COUNTERS
    again = ProcessOperator.from_pipeline(pipeline, operator.function)
    assert again.pipeline == pipeline


@pytest.mark.parametrize(
    ("function", "change"),
    [
        (whole(output=pa.schema([("k", pa.string()), ("n", pa.int32())])), "column n was int64, now it is int32"),
        (whole(state={"one": ValueState(ONE)}), "state table state_many was removed"),
        (whole(state={**STATES, "more": ValueState(ONE)}), "state table state_more was added"),
        (whole(state={**STATES, "one": ListState(ONE)}), "state table state_one was sorted by k, now by k, _index"),
        (
            whole(state={**STATES, "one": ValueState(pa.schema([("n", TIME)]))}),
            "state table state_one's column n was int64, now it is timestamp[us, tz=UTC]",
        ),
        (declaring(state=STATES), "state table timers was removed"),
    ],
)
def test_a_function_that_declares_something_else_does_not_fit_the_state(function: ProcessFunction, change: str) -> None:
    before = build(whole()).pipeline
    assert change in breaking_changes(before, build(function).pipeline)
    with pytest.raises(IncompatibleStateError, match=re.escape(change)):
        ProcessOperator.from_pipeline(before, function)


def test_other_code_and_timers_at_other_times_fit() -> None:
    before = build(whole()).pipeline
    other = whole(timers_within=timedelta(hours=1), on_rows=lambda *_: None)
    assert breaking_changes(before, build(other).pipeline) == ()
    assert ProcessOperator.from_pipeline(before, other).horizon_us == 3_600_000_000


def test_a_pipeline_without_its_function_cannot_work() -> None:
    with pytest.raises(InvalidPipelineError, match=r"whose class is a ProcessFunction\. got=NoneType"):
        ProcessOperator.from_pipeline(build().pipeline, None)


def test_a_column_more_in_the_input_fits() -> None:
    before = build(whole()).pipeline
    wider = replace(before, inputs=(InputSpec((), pa.schema([*SCHEMA, ("w", pa.int8())])),))
    assert breaking_changes(before, wider) == ()
