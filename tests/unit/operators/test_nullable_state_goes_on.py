"""A stream is opened again with columns of which more may be null, at any depth: its files are of the older kind."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType, TimestampType

from dagster_ckpt.errors import IncompatibleStateError
from dagster_ckpt.operators.joins import IntervalJoin
from dagster_ckpt.operators.process import KeyedState, ListState, ProcessContext, ProcessFunction, ValueState
from dagster_ckpt.operators.process.process_operator import ProcessOperator
from dagster_ckpt.operators.rows.append import AppendOnly
from dagster_ckpt.operators.rows.deduplicate import Deduplicate
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from dagster_ckpt.runtime.spark.arrow_schemas import to_arrow_schema
from tests.worlds.task_stream import Row, TaskStream, input_of

ITEM = StructType([StructField("x", LongType(), nullable=False)])
COLUMNS = StructType(
    [
        StructField("k", LongType()),
        StructField("at", TimestampType()),
        StructField("s", StructType([StructField("items", ArrayType(ITEM, containsNull=False), nullable=False)])),
    ]
)
OTHER = StructType([StructField("k", LongType()), StructField("bt", TimestampType()), StructField("t", ITEM)])


def strict(columns: StructType) -> InputSpec:
    """An input as releases before this one had it: columns that Spark declares non-null are non-null."""
    schema = to_arrow_schema(columns)
    return InputSpec((), pa.schema([field.with_nullable(True) for field in schema]))


def row(k: int, *items: int) -> Row:
    return {"k": k, "at": k, "s": {"items": [{"x": item} for item in items]}}


def plain(rows: list[Row]) -> list[Row]:
    return sorted(({"k": each["k"], "s": each["s"]} for each in rows), key=repr)


NULL: Row = {"k": 3, "at": 3, "s": None}


def test_files_of_an_append_only_stream_are_read_beside_newer_ones(tmp_path: Path) -> None:
    stream = TaskStream(tmp_path, AppendOnly.build(strict(COLUMNS)), [COLUMNS], (None,))
    stream.epoch((0, [row(1, 7), row(2)]))
    stream.open(AppendOnly.build(input_of(COLUMNS)))
    for _ in range(9):  # so many that older ones are merged
        stream.epoch((0, [NULL]))
    assert plain(stream.rows()) == plain([row(1, 7), row(2), *[NULL] * 9])


@pytest.mark.parametrize("keep", ["first", "last"])
def test_runs_are_read_beside_newer_ones_and_so_are_their_changes(tmp_path: Path, keep: str) -> None:
    stream = TaskStream(
        tmp_path, Deduplicate.build(("k",), strict(COLUMNS), keep, "at"), [COLUMNS], ("at",), delay_us=10_000
    )
    stream.epoch((0, [row(1, 7), row(2)]))
    stream.open(Deduplicate.build(("k",), input_of(COLUMNS), keep, "at"))
    assert plain(stream.rows()) == plain([row(1, 7), row(2)])
    for k in range(4, 12):  # enough for a compaction of old and new runs
        stream.epoch((0, [row(k, k)]))
    stream.epoch((0, [NULL, {**row(1), "at": 99}]))
    kept = row(1, 7) if keep == "first" else row(1)
    assert plain(stream.rows()) == plain([kept, row(2), NULL, *(row(k, k) for k in range(4, 12))])
    net = stream.history.changes(0).to_pylist()
    assert {change["k"] for change in net if change["_change_type"] == "insert"} == {1, 2, 3, *range(4, 12)}


def test_rows_that_wait_in_a_join_come_out_beside_nulls(tmp_path: Path) -> None:
    def built(inputs: list[InputSpec]) -> IntervalJoin:
        return IntervalJoin.build(inputs, (("k",), ("k",)), ("at", "bt"), 0, 0, "full")

    inputs = [COLUMNS, OTHER]
    stream = TaskStream(tmp_path, built([strict(each) for each in inputs]), inputs, ("at", "bt"))
    stream.epoch((0, [row(1, 7)]), (1, [{"k": 2, "bt": 2, "t": {"x": 5}}]))
    stream.open(built([input_of(each) for each in inputs]))
    stream.epoch((0, [{"k": 90, "at": 90, "s": None}]), (1, [{"k": 91, "bt": 91, "t": None}]))
    stream.epoch()
    rows = [(row["k"], row["s"], row["t"]) for row in stream.rows()]
    assert sorted(rows, key=repr) == [(1, {"items": [{"x": 7}]}, None), (2, None, {"x": 5})]


class Kept(ProcessFunction):
    """Keeps what came last in a value, and all that came in a list."""

    output = pa.schema([("k", pa.int64()), ("seen", pa.int64())])

    def __init__(self, field: pa.Field) -> None:
        self._field = field

    @property
    def state(self) -> dict[str, ValueState | ListState]:
        schema = pa.schema([self._field])
        return {"newest": ValueState(schema), "all": ListState(schema)}

    def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
        kept = rows.select(["k", "tags"])
        state.list("all").append(kept)
        state.value("newest").put(kept)
        seen = state.list("all").get(rows.select(["k"])).num_rows
        newest = state.value("newest").get(rows.select(["k"])).column("tags")
        assert newest.to_pylist() == rows.column("tags").to_pylist()
        return pa.table([rows.column("k"), [seen] * rows.num_rows], schema=self.output)


TAGS = StructType(
    [
        StructField("k", LongType()),
        StructField("at", TimestampType()),
        StructField("tags", ArrayType(StringType(), containsNull=False)),
    ]
)


def test_a_process_function_may_declare_more_to_be_null_in_its_state(tmp_path: Path) -> None:
    def built(field: pa.Field) -> ProcessOperator:
        return ProcessOperator.build(Kept(field), ("k",), input_of(TAGS), "at")

    tight = pa.field("tags", pa.list_(pa.field("element", pa.string(), nullable=False)), nullable=False)
    wide = pa.field("tags", pa.list_(pa.field("element", pa.string())))
    stream = TaskStream(tmp_path, built(tight), [TAGS], ("at",), delay_us=1_000, code=Kept(tight))
    stream.epoch((0, [{"k": 1, "at": 1, "tags": ["a"]}]))
    stream.code = Kept(wide)
    stream.open(built(wide))
    for at in range(2, 10):
        stream.epoch((0, [{"k": 1, "at": at, "tags": None}]))
    assert [row["seen"] for row in stream.rows()] == list(range(1, 10))
    with pytest.raises(IncompatibleStateError, match=r"column tags was list<element: string>, now it is list<.*not nu"):
        stream.open(built(pa.field("tags", tight.type)))
    with pytest.raises(IncompatibleStateError, match="column tags could be null, now it cannot"):
        stream.open(built(wide.with_nullable(False)))
