import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt.errors import CorruptStateError, InvalidPipelineError
from dagster_ckpt.lsm.columns import Positions
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators.operator import NONE_LATE, Changes, EpochContext, Operator
from dagster_ckpt.operators.registry import has_kept_table
from dagster_ckpt.operators.step import OperatorStep
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline
from dagster_ckpt.protocol.manifest.row_key import row_key
from tests.unit.operators.changing_streams import TWO_TASKS, Changing, Row, bag_of

KIND = pa.field("_change_type", pa.string(), nullable=False)
OUTPUT = pa.schema([("v", pa.int64()), ("k", pa.string())])
KINDS = {"+": "insert", "-": "delete", "<": "update_preimage", ">": "update_postimage"}
BAG, KEYED = None, ["v"]


@dataclass
class Echo(Operator):
    """Yields the changes that come in, a batch at a time."""

    pipeline: Pipeline
    held: list[pa.Table] = field(default_factory=list)

    def on_rows(self, number: int, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        self.held.append(rows)
        return NONE_LATE

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        for rows in self.held:
            yield Changes(rows.num_rows, partial(pa.Table.slice, rows))
        self.held.clear()


def kept(row_key: list[str] | None, output: pa.Schema = OUTPUT, keys: tuple[str, ...] = ("k",)) -> OperatorStep:
    source = InputSpec((), output.append(KIND))
    return OperatorStep.of(Echo(Pipeline("echo", {"row_key": row_key}, (source,), keys, (), output))).with_table()


def stream(row_key: list[str] | None, tasks: Any = (), output: pa.Schema = OUTPUT, **options: Any) -> Changing:
    return Changing(kept(row_key, output), tasks, rebuilds=False, **options)


def batch(*rows: tuple[str, str | None, int | None]) -> tuple[int, pa.Table]:
    table = [{"v": v, "k": k, "_change_type": KINDS[kind]} for kind, k, v in rows]
    return 0, pa.Table.from_pylist(table, schema=OUTPUT.append(KIND))


def change(kind: str, k: str | None, v: int | None) -> Row:
    return {"v": v, "k": k, "_change_type": KINDS[kind]}


def row(k: str | None, v: int | None) -> Row:
    return {"v": v, "k": k}


@pytest.fixture(params=[(), TWO_TASKS], ids=["dicts", "engine"])
def tasks(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_equal_rows_are_counted_and_leave_one_by_one(tasks: Any) -> None:
    one = stream(BAG, tasks)
    wanted = [change("+", "a", 1), change("+", "a", 1), change("+", None, None)]
    assert bag_of(one.epoch(batch(("+", "a", 1), ("+", "a", 1), ("+", None, None)))) == bag_of(wanted)
    assert one.more_rows == 3
    assert one.held() == {"table": 2}
    assert bag_of(one.table()) == bag_of([row("a", 1), row("a", 1), row(None, None)])
    assert one.epoch(batch(("-", "a", 1))) == [change("-", "a", 1)]
    assert bag_of(one.table()) == bag_of([row("a", 1), row(None, None)])
    assert len(one.epoch(batch(("-", "a", 1)), batch(("-", None, None)))) == 2
    assert one.table() == []
    assert one.held() == {"table": 0}
    assert one.more_rows == 0


def test_a_row_that_comes_and_goes_in_one_epoch_is_no_change(tasks: Any) -> None:
    one = stream(BAG, tasks)
    one.epoch(batch(("+", "a", 1)))
    assert one.epoch(batch(("+", "b", 2), ("-", "b", 2)), batch(("-", "a", 1)), batch(("+", "a", 1))) == []
    assert one.table() == [row("a", 1)]


def test_a_row_may_go_before_it_comes(tasks: Any) -> None:
    one = stream(BAG, tasks)
    assert one.epoch(batch(("-", "a", 1)), batch(("+", "a", 1), ("+", "a", 1))) == [change("+", "a", 1)]
    assert one.table() == [row("a", 1)]


def test_an_update_of_a_row_without_a_key_is_a_delete_and_an_insert(tasks: Any) -> None:
    one = stream(BAG, tasks)
    one.epoch(batch(("+", "a", 1), ("+", "a", 1)))
    changes = one.epoch(batch(("<", "a", 1), (">", "a", 2)))
    assert bag_of(changes) == bag_of([change("+", "a", 2), change("-", "a", 1)])
    assert bag_of(one.table()) == bag_of([row("a", 1), row("a", 2)])


def test_a_row_that_goes_and_never_came_is_an_error_that_names_the_table(tasks: Any) -> None:
    one = stream(BAG, tasks)
    one.epoch(batch(("+", "a", 1)))
    with pytest.raises(CorruptStateError, match=re.escape("table=table, rows=1")):
        one.epoch(batch(("-", "a", 1), ("-", "a", 1)))


def test_changes_that_are_more_than_memory_holds_come_in_pieces() -> None:
    one = stream(BAG, TWO_TASKS, memory_bytes=1 << 13)
    rows = [("+", f"k{number}", number % 7) for number in range(600)]
    changes = one.epoch(*(batch(*rows[start : start + 100]) for start in range(0, 600, 100)))
    assert one.pieces > 2 * 6 + 2
    assert bag_of(changes) == bag_of(change(*each) for each in rows)
    assert bag_of(one.table()) == bag_of(row(k, v) for _, k, v in rows)
    assert len(one.epoch(batch(*(("-", k, v) for _, k, v in rows[1:])))) == 599
    assert one.table() == [row("k0", 0)]


def test_with_a_row_key_a_row_is_updated_whatever_comes_first(tasks: Any) -> None:
    one = stream(KEYED, tasks, pa.schema([*OUTPUT, ("x", pa.float64())]))

    def changes(*rows: tuple[str, str, int, float]) -> tuple[int, pa.Table]:
        table = [{"v": v, "k": k, "x": x, "_change_type": KINDS[kind]} for kind, k, v, x in rows]
        return 0, pa.Table.from_pylist(table, schema=one.pipeline.inputs[0].schema)

    one.epoch(changes(("+", "a", 1, 0.5), ("+", "a", 2, 0.5)))
    found = one.epoch(changes(("+", "a", 1, 1.5)), changes(("-", "a", 1, 0.5)))
    assert [(each["_change_type"], each["x"]) for each in found] == [
        ("update_preimage", 0.5),
        ("update_postimage", 1.5),
    ]
    assert bag_of(one.table()) == bag_of([{"v": 1, "k": "a", "x": 1.5}, {"v": 2, "k": "a", "x": 0.5}])


def test_a_table_with_a_row_key_is_keyed_by_it_and_by_what_shards_it() -> None:
    assert kept(KEYED).pipeline.tables[0].keys == ("k", "v")
    assert row_key(kept(KEYED).pipeline) == row_key(kept(KEYED).operator.pipeline) == ("k", "v")
    assert kept(["k"]).pipeline.tables[0].keys == ("k",)


def test_a_table_without_one_has_no_key_but_the_whole_row() -> None:
    assert kept(BAG).pipeline.tables[0].keys == ("v", "k")
    assert row_key(kept(BAG).pipeline) is row_key(kept(BAG).operator.pipeline) is None
    assert has_kept_table(kept(BAG).pipeline)
    assert not has_kept_table(kept(BAG).operator.pipeline)


NESTED = pa.struct([("x", pa.list_(pa.float64())), ("y", pa.map_(pa.string(), pa.int32()))])
TYPED = pa.schema(
    [("k", pa.string()), ("f", pa.float64()), ("n", NESTED), ("none", pa.null()), ("l", pa.list_(NESTED))]
)
NAN, VALUE = float("nan"), {"x": [1.0, None], "y": [("a", 1), ("b", None)]}
STRUCTS: list[Any] = [
    VALUE,
    None,
    {"x": [], "y": None},
    {"x": [None, 1.0], "y": []},
    {"x": [NAN], "y": None},
]
VALUES: list[Row] = [
    {"k": "a", "f": f, "n": struct, "none": None, "l": values}
    for f in (NAN, 0.0, -0.0, None)
    for struct in STRUCTS
    for values in ([VALUE, None], [], None)
]


@pytest.mark.parametrize("memory_bytes", [1 << 12, 1 << 20])
def test_rows_of_any_type_are_found_again_to_the_bit(memory_bytes: int) -> None:
    one = stream(BAG, TWO_TASKS, TYPED, memory_bytes=memory_bytes)

    def changes(kind: str, rows: list[Row]) -> tuple[int, pa.Table]:
        its = [{**each, "_change_type": KINDS[kind]} for each in rows]
        return 0, pa.Table.from_pylist(its, schema=one.pipeline.inputs[0].schema)

    assert len(one.epoch(changes("+", VALUES), changes("+", VALUES[::2]))) == 90
    assert bag_of(one.table()) == bag_of(VALUES + VALUES[::2])
    assert len(one.epoch(changes("-", VALUES[20:]), changes("+", VALUES[20:21]))) == 39
    assert bag_of(one.table()) + bag_of(VALUES[20:]) == bag_of(VALUES + VALUES[::2] + VALUES[20:21])
    one.epoch(changes("-", VALUES[:20]), changes("-", VALUES[::2]), changes("-", VALUES[20:21]))
    assert one.table() == []


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (pa.schema([("k", pa.string()), ("_rows", pa.int64())]), "column=_rows"),
        (
            pa.schema([("k", pa.string()), ("x", pa.month_day_nano_interval())]),
            "column=x, type=month_day_nano_interval",
        ),
        (pa.schema([("k", pa.string()), ("_epoch", pa.int64())]), "column=_epoch"),
        (pa.schema([("k", pa.string()), ("x", pa.struct([]))]), "column=x"),
    ],
)
def test_an_output_that_cannot_be_kept_is_refused(output: pa.Schema, message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=re.escape(message)):
        kept(BAG, output)


def test_a_key_of_a_type_that_no_key_has_is_refused() -> None:
    with pytest.raises(InvalidPipelineError, match="key=v, type=double"):
        kept(KEYED, pa.schema([("v", pa.float64()), ("k", pa.string())]))
