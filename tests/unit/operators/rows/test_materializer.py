import json
import re
from dataclasses import replace
from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators import from_pipeline
from dagster_ckpt.operators.rows.append import AppendOnly
from dagster_ckpt.operators.rows.materializer import Materializer
from dagster_ckpt.operators.step import OperatorStep
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from dagster_ckpt.protocol.manifest.row_key import row_key
from dagster_ckpt.protocol.transitions.compatibility import breaking_changes
from tests.unit.operators.changing_streams import TWO_TASKS, Changing, bag_of
from tests.unit.operators.keyed_streams import Row, Stream, in_any_order, replayed

KIND = pa.field("_change_type", pa.string(), nullable=False)
SCHEMA = pa.schema([("v", pa.float64()), ("k", pa.string()), KIND])
KINDS = {"+": "insert", "-": "delete", "<": "update_preimage", ">": "update_postimage"}


def mirror(where: str | None = None, schema: pa.Schema = SCHEMA, keys: tuple[str, ...] = ("k",)) -> Materializer:
    return Materializer.build(keys, InputSpec((), schema), where)


def stream() -> Stream:
    return Stream(mirror(), distinct=1)


def batch(*rows: tuple[str, str | None, float | None]) -> pa.Table:
    return pa.Table.from_pylist([{"v": v, "k": k, "_change_type": KINDS[kind]} for kind, k, v in rows], schema=SCHEMA)


def row(k: str | None, v: float | None) -> Row:
    return {"v": None if v is None else float(v), "k": k}


def change(kind: str, k: str | None, v: float | None) -> Row:
    return {**row(k, v), "_change_type": KINDS[kind]}


def test_an_image_that_comes_is_the_row_and_one_that_goes_alone_takes_it_away() -> None:
    one = stream()
    assert one.epoch(batch(("+", "a", 1), ("+", None, 2))) == [change("+", "a", 1), change("+", None, 2)]
    assert one.epoch(batch(("<", "a", 1), (">", "a", 5), ("<", None, 2))) == [
        change("<", "a", 1),
        change(">", "a", 5),
        change("-", None, 2),
    ]
    assert one.table() == [row("a", 5)]
    assert one.epoch(batch((">", "b", 7), ("-", "a", 5))) == [change("+", "b", 7), change("-", "a", 5)]
    assert one.table() == [row("b", 7)]


@pytest.mark.parametrize("size", [1, 2, 4])
def test_the_images_of_an_epoch_come_in_any_order_and_cut(size: int) -> None:
    for rows in permutations([("<", "a", 1.0), (">", "a", 2.0), ("-", "b", 1.0), ("+", "c", 3.0)]):
        one = stream()
        table = replayed([], one.epoch(batch(("+", "a", 1), ("+", "b", 1))))
        changes = one.epoch(*(batch(*rows[start : start + size]) for start in range(0, 4, size)))
        assert in_any_order(changes) == in_any_order(
            [change("<", "a", 1), change(">", "a", 2), change("-", "b", 1), change("+", "c", 3)]
        )
        assert in_any_order(one.table()) == in_any_order(replayed(table, changes)), rows


def test_what_goes_in_the_epoch_after_takes_what_came_in_the_one_before() -> None:
    one = stream()
    one.epoch(batch(("+", "a", 1)))
    one.epoch(batch(("<", "a", 1), (">", "a", 2)))
    assert one.epoch(batch(("-", "a", 2))) == [change("-", "a", 2)]
    assert one.held() == {"rows": 0}


@pytest.mark.parametrize("tasks", [(), TWO_TASKS], ids=["dicts", "engine"])
def test_rows_that_may_be_equal_are_counted(tasks: Any) -> None:
    counted = Materializer.build(("k",), InputSpec((), SCHEMA), "v > 0", counted=True)
    assert row_key(counted.pipeline) is None
    one = Changing(counted, tasks)
    assert len(one.epoch((0, batch(("+", "a", 1), ("+", "a", 1), ("+", None, 2))))) == 3
    assert one.epoch((0, batch((">", "a", 5))), (0, batch(("<", "a", 1), ("-", None, 2), ("+", None, 2)))) == [
        change("+", "a", 5),
        change("-", "a", 1),
    ]
    assert bag_of(one.table()) == bag_of([row("a", 1), row("a", 5), row(None, 2)])


def declared() -> Stream:
    return Stream(Materializer.build(("k",), InputSpec((), SCHEMA), unique=True), distinct=1)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_declared_key_has_the_row_that_comes_whatever_goes_before_or_behind_it(size: int) -> None:
    """Rows are not updated by this key: one goes and another comes, each for reasons of its own."""
    for rows in permutations([("-", "a", 1.0), ("+", "a", 2.0), ("-", "b", 1.0), (">", "c", 3.0), ("<", "d", 1.0)]):
        one = declared()
        table = replayed([], one.epoch(batch(("+", "a", 1), ("+", "b", 1), (">", "d", 1))))
        changes = one.epoch(*(batch(*rows[start : start + size]) for start in range(0, 5, size)))
        assert in_any_order(changes) == in_any_order(
            [change("<", "a", 1), change(">", "a", 2), change("-", "b", 1), change("+", "c", 3), change("-", "d", 1)]
        )
        assert in_any_order(one.table()) == in_any_order(replayed(table, changes)), rows
        assert one.held() == {"rows": 2}


@pytest.mark.parametrize(
    "epochs",
    [
        [[("+", "a", 1), ("+", "a", 2)]],
        [[("+", "a", 1)], [("+", "a", 2)]],
        [[("+", "a", 1)], [(">", "a", 1)]],
        [[("+", None, 1)], [("+", None, 2), ("-", None, 1), ("+", None, 3)]],
        [[("+", "a", 1)], [("-", "a", 1), ("+", "a", 2), ("+", "b", 1)], [("+", "b", 3)]],
    ],
)
def test_two_rows_of_a_declared_key_are_an_error_that_names_it(
    epochs: list[list[tuple[str, str | None, float]]],
) -> None:
    *before, last = epochs
    for order in permutations(last):
        one = declared()
        for rows in before:
            one.epoch(batch(*rows))
        with pytest.raises(
            InvalidPipelineError, match=r"several rows have one primary key.*keys=\[\{'k': .*\}\], rows=2"
        ):
            one.epoch(*(batch(row) for row in order))


def test_a_mirror_of_a_declared_key_is_the_same_from_its_fingerprint() -> None:
    unique = Materializer.build(("k",), InputSpec((), SCHEMA), "v > 0", unique=True)
    assert from_pipeline(unique.pipeline).pipeline == unique.pipeline
    assert row_key(unique.pipeline) == ("k",)
    assert breaking_changes(mirror("v > 0").pipeline, unique.pipeline)


def test_a_row_that_goes_and_is_not_there_is_nothing() -> None:
    one = stream()
    one.epoch(batch(("+", "a", 1)))
    assert one.epoch(batch(("-", "b", 1), ("<", None, 2))) == []
    assert one.table() == [row("a", 1)]


def test_a_row_is_deleted_by_its_key_whatever_its_image_has_besides() -> None:
    one = stream()
    one.epoch(batch(("+", "a", 1)))
    assert one.epoch(batch(("<", "a", 99))) == [change("-", "a", 1)]


def test_the_same_row_again_is_no_change() -> None:
    one = stream()
    rows = batch(("+", "a", float("nan")), ("+", "b", None))
    one.epoch(rows)
    assert one.epoch(rows) == []
    assert in_any_order(one.table()) == in_any_order([row("a", float("nan")), row("b", None)])


@pytest.mark.parametrize("cut", [1, 2])
def test_several_rows_of_a_key_in_one_epoch_are_an_error(cut: int) -> None:
    rows = batch(("+", "a", 1), (">", "a", 2))
    message = re.escape("several rows of one key in one epoch") + ".*upstream's changes.* keys=k$"
    with pytest.raises(InvalidPipelineError, match=message):
        stream().epoch(*([rows] if cut == 1 else [rows.slice(0, 1), rows.slice(1)]))


def test_what_a_row_is_may_be_written_as_a_dictionary_and_stand_anywhere() -> None:
    kind = pa.field("_change_type", pa.dictionary(pa.int32(), pa.string()))
    one = Stream(mirror(schema=pa.schema([kind, ("k", pa.string()), ("v", pa.int64())])))
    one.epoch(pa.table({"_change_type": pa.array(["insert"]).dictionary_encode(), "k": ["a"], "v": [1]}))
    assert one.operator.pipeline.output.names == ["k", "v"]
    assert one.table() == [{"k": "a", "v": 1}]


@pytest.mark.parametrize("kind", ["upsert", None])
def test_a_row_that_is_neither_coming_nor_going_is_an_error(kind: str | None) -> None:
    with pytest.raises(InvalidPipelineError, match=f"unknown change type .*read .*column=_change_type, value={kind!r}"):
        stream().epoch(batch(("+", "a", 1)).set_column(2, "_change_type", pa.array([kind], pa.string())))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (pa.schema([("k", pa.string())]), "read the change log of the updating stream. column=_change_type, columns=k"),
        (pa.schema([("k", pa.string()), ("_change_type", pa.int8())]), "column=_change_type, type=int8"),
        (pa.schema([("key", pa.string()), KIND]), "no such column. column=k, use=key, columns=key"),
        (pa.schema([("k", pa.float64()), KIND]), "key=k, type=double"),
        (pa.schema([("k", pa.string()), ("_put_in", pa.int8()), KIND]), "rename yours. column=_put_in"),
        (pa.schema([("k", pa.string()), ("_epoch", pa.int64()), KIND]), "rename yours. column=_epoch"),
        (pa.schema([("k", pa.string()), ("s", pa.struct([])), KIND]), "column=s, type=struct<>"),
    ],
)
def test_what_cannot_work_is_refused(schema: pa.Schema, message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=re.escape(message)):
        mirror(schema=schema)


def test_its_table_is_read_without_the_users_code() -> None:
    one = stream()
    one.epoch(batch(("+", "a", 1), ("+", "b", 2)))
    parameters: dict[str, Any] = json.loads(json.dumps(one.operator.pipeline.parameters))
    again = from_pipeline(replace(one.operator.pipeline, parameters=parameters))
    assert not isinstance(again, AppendOnly)
    assert again.table is not None
    assert again.table.rows(one.world.live("rows")).sort_by("k").to_pylist() == [row("a", 1), row("b", 2)]
    assert from_pipeline(mirror("v > 0").pipeline) == OperatorStep.of(mirror("v > 0"))


def test_another_condition_leaves_the_rows_of_the_one_before_not_understood() -> None:
    before, after, none = (mirror(where).pipeline for where in ("v > 1", "v > 2", None))
    assert breaking_changes(before, after) == ('where was "v > 1", now it is "v > 2"',)
    assert breaking_changes(before, none) == ("where was removed",)
    assert breaking_changes(none, before) == ("where was added",)
    assert breaking_changes(before, before) == ()
