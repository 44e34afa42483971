import json
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt.errors import CorruptStateError, InvalidPipelineError
from dagster_ckpt.operators import over
from dagster_ckpt.operators.over import Over
from dagster_ckpt.operators.rows.over.over import OverPartition
from dagster_ckpt.operators.shared.ranked.ordered_tree import OrderedTree
from dagster_ckpt.operators.step import OperatorStep, one_group
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from dagster_ckpt.protocol.manifest.packing import pack, unpack
from dagster_ckpt.protocol.manifest.row_key import row_key
from tests.unit.operators.changing_streams import TWO_TASKS, Batch, Changing, Row, bag_of, sum_of

KIND = pa.field("_change_type", pa.string(), nullable=False)
SCHEMA = pa.schema([("at", pa.int64()), ("k", pa.string()), ("v", pa.int64())])
UPDATING = SCHEMA.append(KIND)
KINDS = {"+": "insert", "-": "delete", "<": "update_preimage", ">": "update_postimage"}


def batch(*rows: tuple[str, str | None, int, int | None]) -> Batch:
    table = [{"k": key, "at": at, "v": v, "_change_type": KINDS[kind]} for kind, key, at, v in rows]
    return 0, pa.Table.from_pylist(table, schema=UPDATING)


def change(kind: str, key: str | None, at: int, v: int | None, **more: Any) -> Row:
    return {"k": key, "at": at, "v": v, "_change_type": KINDS[kind], **more}


def stream(by: Any = "at asc", *, tasks: Any = (), **functions: Over) -> Changing:
    return Changing(OverPartition.build(("k",), InputSpec((), UPDATING), by, functions, updating=True), tasks)


def same(changes: Sequence[Row], *wanted: Row) -> bool:
    return bag_of(changes) == bag_of(wanted)


@pytest.fixture(params=[(), TWO_TASKS], ids=["dicts", "engine"])
def tasks(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_only_the_rows_that_a_change_touches_are_emitted(tasks: Any) -> None:
    one = stream(before=over.lag("v"), near=over.sum("v", rows=(-1, 1)), tasks=tasks)
    one.epoch(batch(*(("+", "a", at, at) for at in range(0, 1000, 2))))
    assert same(
        one.epoch(batch(("+", "a", 501, 7))),
        change("+", "a", 501, 7, before=500, near=1009),
        change("-", "a", 500, 500, before=498, near=1500),
        change("+", "a", 500, 500, before=498, near=1005),
        change("-", "a", 502, 502, before=500, near=1506),
        change("+", "a", 502, 502, before=7, near=1013),
    )
    assert len(one.epoch(batch(("-", "a", 501, 7)))) == 5


@pytest.mark.parametrize("far", [3, 60, 100])
def test_a_row_that_one_function_touches_has_the_whole_frames_of_the_others(far: int) -> None:
    one = stream(back=over.lag("v", far), ahead=over.lead("v", far), near=over.count(range=(-9, 9)))
    there = list(range(0, 1000, 2))
    one.epoch(batch(*(("+", "a", at, at) for at in there)))
    for fresh in (501, 129, 903):
        one.epoch(batch(("+", "a", fresh, fresh)))
        there = sorted([*there, fresh])
        padded = [*far * [None], *there, *far * [None]]
        assert sum_of(one.changes) == bag_of(
            {
                "k": "a",
                "at": at,
                "v": at,
                "back": padded[place],
                "ahead": padded[place + 2 * far],
                "near": sum(abs(other - at) <= 9 for other in there),
            }
            for place, at in enumerate(there)
        )


@pytest.mark.parametrize("limit", [2, 3])
def test_a_row_that_a_distance_touches_has_the_rows_that_others_count(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OrderedTree, "node_rows_max", limit)
    one = stream(near=over.sum("v", range=(-9, -2)), ahead=over.lead("v", 2))
    there = list(range(0, 400, 14))
    one.epoch(batch(*(("+", "a", at, at) for at in there)))
    for fresh in [at - 3 for at in there]:
        one.epoch(batch(("+", "a", fresh, fresh)))
        there = sorted([*there, fresh])
        assert sum_of(one.changes) == bag_of(
            {
                "k": "a",
                "at": at,
                "v": at,
                "near": sum(close) if (close := [other for other in there if at - 9 <= other <= at - 2]) else None,
                "ahead": ahead,
            }
            for at, ahead in zip(there, [*there[2:], None, None], strict=True)
        )


def test_the_rows_that_it_has_read_are_not_looked_up_again() -> None:
    one = stream(near=over.sum("v", rows=(-1, 1)))
    one.epoch(batch(*(("+", "a", at, at) for at in range(200))))
    one.epoch(batch(*(("-", "a", at, at) for at in range(0, 200, 3))))
    kept = [spec.name for spec in one.pipeline.tables if spec.time is None]
    assert {one.dicts.tables[name].looked_up_later for name in kept} == {0}


def test_a_row_in_front_moves_those_behind_it_and_one_at_the_end_none(tasks: Any) -> None:
    one = stream(number=over.row_number(), total=over.sum("v", rows=(None, 0)), tasks=tasks)
    one.epoch(batch(*(("+", "a", at, 1) for at in range(200))))
    assert same(one.epoch(batch(("+", "a", 200, 5))), change("+", "a", 200, 5, number=201, total=205))
    changes = one.epoch(batch(("+", "a", -1, 0)))
    assert len(changes) == 1 + 2 * 201
    assert {change["number"] for change in changes if change["_change_type"] == "insert"} == set(range(1, 203))


def test_peers_have_one_rank_and_one_running_total(tasks: Any) -> None:
    one = stream(place=over.rank(), dense=over.dense_rank(), total=over.sum("v"), tasks=tasks)
    one.epoch(batch(*(("+", "a", at // 100, at) for at in range(300))))
    assert {(each["place"], each["dense"]) for each in one.changes} == {(1, 1), (101, 2), (201, 3)}
    changes = one.epoch(batch(("+", "a", 1, 1000)))
    # The ranks of its peers stay and their totals do not; the ranks behind them change too.
    assert len(changes) == 1 + 2 * 200
    assert {(each["at"], each["place"], each["dense"]) for each in changes if each["_change_type"] == "insert"} == {
        (1, 101, 2),
        (2, 202, 3),
    }


def test_equal_rows_have_values_of_their_own(tasks: Any) -> None:
    one = stream(number=over.row_number(), before=over.lag("v", 1, -5), tasks=tasks)
    assert same(
        one.epoch(batch(("+", "a", 1, 9), ("+", "a", 1, 9), ("+", None, 1, None))),
        change("+", "a", 1, 9, number=1, before=-5),
        change("+", "a", 1, 9, number=2, before=9),
        change("+", None, 1, None, number=1, before=-5),
    )
    assert same(one.epoch(batch(("-", "a", 1, 9))), change("-", "a", 1, 9, number=2, before=9))


def test_a_row_that_came_and_went_is_nothing(tasks: Any) -> None:
    one = stream(number=over.row_number(), tasks=tasks)
    assert one.epoch(batch(("-", "a", 1, 9)), batch(("+", "a", 1, 9))) == []
    one.epoch(batch(*(("+", "a", at, at) for at in range(500))))
    one.epoch(batch(*(("-", "a", at, at) for at in range(500))))
    assert set(one.held().values()) == {0}
    assert one.epoch() == []


def test_an_update_that_changes_the_key_moves_the_row(tasks: Any) -> None:
    one = stream(number=over.row_number(), tasks=tasks)
    one.epoch(batch(("+", "a", 1, 9), ("+", "b", 2, 8)))
    assert same(
        one.epoch(batch(("<", "a", 1, 9), (">", "b", 1, 9))),
        change("-", "a", 1, 9, number=1),
        change("+", "b", 1, 9, number=1),
        change("-", "b", 2, 8, number=1),
        change("+", "b", 2, 8, number=2),
    )


def test_a_preimage_that_is_not_there_is_an_error_that_names_the_table() -> None:
    one = stream(number=over.row_number())
    one.epoch(batch(("+", "a", 1, 9)))
    with pytest.raises(CorruptStateError, match=r"never added.*table=ordered, rows=1"):
        one.epoch(batch(("-", "a", 2, 9)))


def test_totals_that_do_not_fit_are_an_error_and_those_that_do_are_exact() -> None:
    one = stream(total=over.sum("v", rows=(-1, 0)))
    one.epoch(batch(("+", "a", 1, 2**63 - 2), ("+", "a", 2, 1), ("+", "a", 3, -1), ("+", "a", 4, -(2**63) + 1)))
    assert sorted(each["total"] for each in one.changes) == [-(2**63), 0, 2**63 - 2, 2**63 - 1]
    with pytest.raises(OverflowError, match=r"outgrew its type.*column=v, function=total, type=bigint"):
        one.epoch(batch(("+", "a", 5, -2)))


def test_a_total_of_floats_leaves_nothing_behind() -> None:
    schema = pa.schema([("at", pa.int64()), ("k", pa.int64()), ("f", pa.float64()), KIND])
    functions = {"total": over.sum("f", rows=(None, 0)), "mean": over.avg("f", rows=(-1, 0))}
    one = Changing(OverPartition.build(("k",), InputSpec((), schema), "at asc", functions, updating=True))

    def rows(kind: str, *values: float) -> Batch:
        table = [{"at": at, "k": 1, "f": value, "_change_type": KINDS[kind]} for at, value in enumerate(values)]
        return 0, pa.Table.from_pylist(table, schema=schema)

    one.epoch(rows("+", 1e300, float("inf"), 0.1))
    one.epoch(rows("-", 1e300, float("inf")))
    assert sum_of(one.changes) == bag_of([{"at": 2, "k": 1, "f": 0.1, "total": 0.1, "mean": 0.1}])


def test_a_step_without_keys_has_one_partition() -> None:
    build = lambda keys, each: OverPartition.build(keys, each, "at asc", {"n": over.row_number()}, updating=True)  # noqa: E731
    one = Changing(OperatorStep.of(one_group(InputSpec((), UPDATING), build)).with_table())
    one.epoch(batch(("+", "a", 2, 9), ("+", "b", 1, 8)))
    assert bag_of(one.table()) == bag_of([{"at": 1, "k": "b", "v": 8, "n": 1}, {"at": 2, "k": "a", "v": 9, "n": 2}])


@pytest.mark.parametrize(
    ("function", "input_key", "wanted"),
    [
        (over.row_number(), None, ("k", "x")),
        (over.rank(), None, None),
        (over.lag("v"), ("at",), ("k", "at")),
    ],
)
def test_rows_have_a_key_where_one_is_known(function: Over, input_key: Any, wanted: Any) -> None:
    source = InputSpec((), UPDATING)
    operator = OverPartition.build(("k",), source, "at asc", {"x": function}, input_key=input_key, updating=True)
    last = OperatorStep.of(operator).with_table()
    assert last.materializer is not None
    assert row_key(operator.pipeline) == row_key(last.pipeline) == wanted


def test_a_partition_with_many_rows_is_read_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    one = stream(
        number=over.row_number(),
        before=over.lag("v", 3),
        total=over.avg("v", rows=(None, 0)),
        near=over.count(range=(-5, 0)),
        session=over.session_start("v"),
    )
    one.epoch(batch(*(("+", "a", at, at) for at in range(5_000))))
    read = 0
    table = one.dicts.tables["ordered"]
    get_all = table.get_all

    def counted(*asked: Any) -> Any:
        nonlocal read
        found = get_all(*asked)
        read += found.rows.num_rows
        return found

    monkeypatch.setattr(table, "get_all", counted)
    assert len(one.epoch(batch(("+", "a", 5_000, 1)))) == 1
    assert 0 < read < 1_500


@pytest.mark.parametrize(
    ("by", "functions", "message"),
    [
        ("at asc", {}, "needs something to compute"),
        ("at", {"x": over.rank()}, "give a direction to each column that over orders by"),
        ("k asc", {"x": over.rank()}, "order them by others. by=k, keys=k"),
        ("at asc", {"x": "rank"}, "write a function as over.sum"),
        ("at asc", {"V": over.rank()}, "has a column of this name already"),
        ("at asc", {"_x": over.rank()}, "engine's own"),
        ("at asc", {"x": over.sum("nope")}, "no such column"),
        ("at asc", {"x": over.sum("k")}, "sum needs numbers"),
        ("at asc", {"x": over.max("k")}, "equal in its key.*function=x, column=k, keys=k"),
        ("at asc", {"x": over.ntile(0)}, "ntile takes a whole number from 1 to 10000"),
        ("at asc", {"x": over.lag("v", 1.5)}, "lag takes a whole number"),  # type: ignore[arg-type]
        ("at asc", {"x": over.lag("v", 1, "a")}, "another type than the column"),
        ("at asc", {"x": over.lag("v", 1, [1])}, "default= is a number"),
        ("at asc", {"x": over.sum("v", rows=(0, -1))}, "ends before it begins"),
        ("at asc", {"x": over.sum("v", rows=(-1,))}, "two whole numbers or None"),  # type: ignore[arg-type]
        ("at asc", {"x": over.sum("v", rows=(-1, 0), range=(None, 0))}, "not by both"),
        (
            ["at asc", "v asc"],
            {"x": over.sum("v", range=(-5, 0))},
            "distance in range= is one between values of the only",
        ),
        ("at asc", {"x": over.sum("v", range=(-(1 << 62), 0))}, "a distance is at most"),
        ("at desc", {"x": over.session_start("v")}, "a session's rows are ordered by when they start"),
        (["at asc", "v asc"], {"x": over.session_start("v")}, "one column that ascends"),
        ("at asc", {"x": over.sum("v", rows=(-10_001, 0))}, "at most 10000 rows away"),
    ],
)
def test_what_cannot_work_is_refused(by: Any, functions: Any, message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=message):
        OverPartition.build(("k",), InputSpec((), UPDATING), by, functions, updating=True)


@pytest.mark.parametrize("name", ["_node", "_child", "_rows"])
def test_columns_of_the_state_are_refused(name: str) -> None:
    schema = UPDATING.append(pa.field(name, pa.int64()))
    with pytest.raises(InvalidPipelineError, match=f"a column of this name: rename yours. column={name}"):
        OverPartition.build(("k",), InputSpec((), schema), "at asc", {"x": over.row_number()}, updating=True)


@pytest.mark.parametrize("default", [math.nan, math.inf, -math.inf, -0.0, 1.5, 3, True, "NaN", '{"float": "nan"}'])
def test_any_default_survives_the_bytes_of_a_manifest(default: object) -> None:
    spelled = over.lead("v", 1, default).spelling()
    found = Over.of(json.loads(unpack(pack({"function": spelled}), "manifest", json.dumps))["function"]).default
    assert (repr(found), type(found)) == (repr(default), type(default))
