from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt.errors import CorruptStateError, InvalidPipelineError
from dagster_ckpt.operators.rows.top import Best, Top
from dagster_ckpt.operators.step import OperatorStep, one_group
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from dagster_ckpt.protocol.manifest.row_key import row_key
from tests.unit.operators.changing_streams import TWO_TASKS, Batch, Changing, Row, bag_of, sum_of

KIND = pa.field("_change_type", pa.string(), nullable=False)
SCHEMA = pa.schema([("delay", pa.int64()), ("carrier", pa.string()), ("flight", pa.int64())])
UPDATING = SCHEMA.append(KIND)
KINDS = {"+": "insert", "-": "delete", "<": "update_preimage", ">": "update_postimage"}
LATEST = Best(2, "delay desc")


def batch(*rows: tuple[str, str | None, int, int | None]) -> Batch:
    table = [{"delay": d, "carrier": c, "flight": f, "_change_type": KINDS[kind]} for kind, c, f, d in rows]
    return 0, pa.Table.from_pylist(table, schema=UPDATING)


def row(carrier: str | None, flight: int, delay: int | None, **more: int) -> Row:
    return {"delay": delay, "carrier": carrier, "flight": flight, **more}


def change(kind: str, carrier: str | None, flight: int, delay: int | None, **more: int) -> Row:
    return {**row(carrier, flight, delay, **more), "_change_type": KINDS[kind]}


def stream(best: Best = LATEST, **options: Any) -> Changing:
    return Changing(Top.build(("carrier",), InputSpec((), UPDATING), best, updating=True), **options)


def same(changes: Sequence[Row], *wanted: Row) -> bool:
    return bag_of(changes) == bag_of(wanted)


@pytest.fixture(params=[(), TWO_TASKS], ids=["dicts", "engine"])
def tasks(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_a_deletion_brings_the_next_row_up(tasks: Any) -> None:
    one = stream(tasks=tasks)
    changes = one.epoch(batch(("+", "a", 1, 10), ("+", "a", 2, 20), ("+", "a", 3, 30), ("+", None, 4, 5)))
    assert same(changes, change("+", "a", 2, 20), change("+", "a", 3, 30), change("+", None, 4, 5))
    assert same(one.epoch(batch(("-", "a", 3, 30))), change("-", "a", 3, 30), change("+", "a", 1, 10))
    assert one.epoch(batch(("+", "a", 5, 1))) == [], "a row that is not among the best"
    changes = one.epoch(batch(("-", "a", 2, 20), ("-", "a", 1, 10)))
    assert same(changes, change("-", "a", 2, 20), change("-", "a", 1, 10), change("+", "a", 5, 1))


def test_only_rows_whose_rank_changes_are_emitted(tasks: Any) -> None:
    one = stream(Best(3, "delay desc", rank="place"), tasks=tasks)
    one.epoch(batch(("+", "a", 1, 30), ("+", "a", 2, 20), ("+", "a", 3, 10)))
    assert same(
        one.epoch(batch(("+", "a", 4, 25))),
        change("+", "a", 4, 25, place=2),
        change("-", "a", 2, 20, place=2),
        change("+", "a", 2, 20, place=3),
        change("-", "a", 3, 10, place=3),
    )


@pytest.mark.parametrize(
    ("ties", "places"),
    [("rows", [1, 2, 3]), ("rank", [1, 1, 3, 3]), ("dense_rank", [1, 1, 2, 2, 3])],
)
def test_ties_are_counted_as_sql_counts_them(ties: str, places: list[int], tasks: Any) -> None:
    one = stream(Best(3, "delay desc", ties, "place"), tasks=tasks)
    changes = one.epoch(batch(*(("+", "a", number, delay) for number, delay in enumerate([9, 9, 8, 8, 7, 6]))))
    assert sorted(each["place"] for each in changes) == places


def test_zeros_of_both_signs_tie_and_so_do_nulls() -> None:
    schema = pa.schema([("k", pa.int64()), ("f", pa.float64()), KIND])
    operator = Top.build(("k",), InputSpec((), schema), Best(9, "f asc", "dense_rank", "place"), updating=True)
    values = [0.0, -0.0, None, None, float("nan"), -float("nan"), -1.0]
    rows = [{"k": 1, "f": value, "_change_type": "insert"} for value in values]
    changes = Changing(operator).epoch((0, pa.Table.from_pylist(rows, schema=schema)))
    places = sorted((each["place"], repr(each["f"])) for each in changes)
    assert [place for place, _ in places] == [1, 1, 2, 3, 3, 4, 4]
    assert {value for place, value in places if place == 3} == {"0.0", "-0.0"}


def test_a_tie_of_many_rows_changes_one_by_one(tasks: Any) -> None:
    one = stream(Best(1, "delay desc", "rank"), tasks=tasks)
    one.epoch(batch(*(("+", "a", number, 9) for number in range(200)), ("+", "a", 500, 8)))
    assert same(
        one.epoch(batch(("+", "a", 200, 9), ("-", "a", 7, 9))), change("+", "a", 200, 9), change("-", "a", 7, 9)
    )
    left = [number for number in range(201) if number != 7]
    assert same(
        one.epoch(batch(*(("-", "a", number, 9) for number in left))),
        *(change("-", "a", number, 9) for number in left),
        change("+", "a", 500, 8),
    )


def test_equal_rows_have_places_of_their_own(tasks: Any) -> None:
    one = stream(Best(3, "delay desc", rank="place"), tasks=tasks)
    assert same(
        one.epoch(batch(("+", "a", 1, 9), ("+", "a", 1, 9), ("+", "a", 2, 8), ("+", "a", 2, 8))),
        change("+", "a", 1, 9, place=1),
        change("+", "a", 1, 9, place=2),
        change("+", "a", 2, 8, place=3),
    )
    assert same(
        one.epoch(batch(("-", "a", 1, 9))),
        change("-", "a", 1, 9, place=2),
        change("+", "a", 2, 8, place=2),
    )


def test_an_update_that_changes_the_key_moves_the_row(tasks: Any) -> None:
    one = stream(tasks=tasks)
    one.epoch(batch(("+", "a", 1, 9), ("+", "b", 2, 8)))
    changes = one.epoch(batch(("<", "a", 1, 9), (">", "b", 1, 9)))
    assert same(changes, change("-", "a", 1, 9), change("+", "b", 1, 9))


def test_a_row_that_came_and_went_is_nothing(tasks: Any) -> None:
    one = stream(tasks=tasks)
    assert one.epoch(batch(("-", "a", 1, 9)), batch(("+", "a", 1, 9))) == []
    assert set(one.held().values()) == {0}
    assert one.epoch() == []


def test_a_preimage_that_is_not_there_is_an_error_that_names_the_table() -> None:
    for ties in ("rows", "rank"):
        one = stream(Best(2, "delay desc", ties))
        one.epoch(batch(("+", "a", 1, 9)))
        with pytest.raises(CorruptStateError, match=r"never added.*table=(ranked|ties), rows=1"):
            one.epoch(batch(("-", "a", 2, 9)))


def test_of_an_input_that_only_appends_the_best_rows_are_kept_alone(tasks: Any) -> None:
    for ties in ("rows", "rank", "dense_rank"):
        operator = Top.build(("carrier",), InputSpec((), SCHEMA), Best(2, "delay desc", ties))
        one = Changing(operator, tasks)
        for start in range(0, 100, 10):
            rows = [row("a", number, number) for number in range(start, start + 10)]
            one.epoch((0, pa.Table.from_pylist(rows, schema=SCHEMA)))
        assert sum_of(one.changes) == bag_of([row("a", 98, 98), row("a", 99, 99)])
        assert one.held()["ranked"] == 2
        assert one.held().get("ties", 2) == 2


def test_a_step_without_keys_has_the_best_rows_of_all() -> None:
    source = InputSpec((), UPDATING)
    operator = one_group(source, lambda keys, each: Top.build(keys, each, LATEST, updating=True))
    last = OperatorStep.of(operator).with_table()
    one = Changing(last)
    one.epoch(batch(("+", "a", 1, 9), ("+", "b", 2, 8), ("+", None, 3, 7)))
    one.epoch(batch(("-", "a", 1, 9)))
    assert bag_of(one.table()) == bag_of([row("b", 2, 8), row(None, 3, 7)])


@pytest.mark.parametrize(
    ("best", "input_key", "wanted"),
    [
        (LATEST, None, None),
        (LATEST, ("flight",), ("carrier", "flight")),
        (Best(2, "delay desc", rank="place"), None, ("carrier", "place")),
        (Best(2, "delay desc", "rank", "place"), None, None),
        (Best(2, "delay desc", "rank", "place"), ("flight",), ("carrier", "flight")),
        (Best(1, "delay desc"), None, ("carrier",)),
        (Best(1, "delay desc", "dense_rank"), None, None),
    ],
)
def test_rows_have_a_key_where_one_is_known(best: Best, input_key: Any, wanted: Any) -> None:
    operator = Top.build(("carrier",), InputSpec((), UPDATING), best, input_key=input_key, updating=True)
    last = OperatorStep.of(operator).with_table()
    assert last.materializer is not None
    assert row_key(operator.pipeline) == row_key(last.pipeline) == wanted
    one = Changing(last)
    one.epoch(batch(("+", "a", 1, 9), ("+", "a", 2, 8), ("+", "a", 3, 7), ("+", "b", 4, 7)))
    one.epoch(batch(("<", "a", 1, 9), (">", "a", 1, 1), ("-", "b", 4, 7)))
    flights = [2] if best.n == 1 else [2, 3]
    assert sorted(each["flight"] for each in one.table()) == flights


def test_equal_rows_of_nulls_are_counted() -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), KIND])
    operator = Top.build(("k",), InputSpec((), schema), Best(2, "v asc"), updating=True)
    one = Changing(operator)
    rows = [{"k": 1, "v": None, "_change_type": "insert"}] * 3
    changes = one.epoch((0, pa.Table.from_pylist(rows, schema=schema)))
    assert changes == rows[:2]


@pytest.mark.parametrize(("keep", "flights"), [("first", [2, 1, 3]), ("last", [1, 2, 3])])
def test_deduplication_keeps_the_next_row_when_the_kept_one_is_deleted(keep: str, flights: list[int]) -> None:
    one = stream(Best.for_deduplicate(keep, ["delay"]))
    one.epoch(batch(("+", "a", 1, 9), ("+", "a", 2, 8), ("+", "a", 3, None)))
    rows = {1: ("a", 1, 9), 2: ("a", 2, 8), 3: ("a", 3, None)}
    for number, flight in enumerate(flights):
        assert sum_of(one.changes) == bag_of([row(*rows[flight])])
        assert len(one.epoch(batch(("-", *rows[flight])))) == (2 if number < len(flights) - 1 else 1)


def test_deduplication_without_an_order_keeps_some_row_but_always_the_same() -> None:
    rows = [("+", "a", 1, 9), ("+", "a", 2, 8), ("+", "a", 3, None)]
    one, other = stream(Best.for_deduplicate("first", [])), stream(Best.for_deduplicate("first", []))
    assert one.epoch(batch(*rows)) == other.epoch(batch(*rows[::-1])) == [change("+", "a", 2, 8)]


@pytest.mark.parametrize(("keep", "message"), [("newest", "must be .first. or .last."), ("last", "needs an order")])
def test_deduplication_that_cannot_work_is_refused(keep: str, message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=message):
        Best.for_deduplicate(keep, [])


def test_a_key_with_many_rows_is_read_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    one = stream(Best(3, "delay desc"))
    one.epoch(batch(*(("+", "a", number, number) for number in range(3_000))))
    read = 0
    table = one.dicts.tables["ranked"]
    get_all = table.get_all

    def counted(*asked: Any) -> Any:
        nonlocal read
        found = get_all(*asked)
        read += found.rows.num_rows
        return found

    monkeypatch.setattr(table, "get_all", counted)
    one.epoch(batch(("-", "a", 2_999, 2_999)))
    assert sum_of(one.changes) == bag_of([row("a", number, number) for number in (2_998, 2_997, 2_996)])
    assert 0 < read < 200


@pytest.mark.parametrize(
    ("keys", "best", "schema", "message"),
    [
        (("carrier",), Best(0, "delay desc"), UPDATING, "from 1 to 10000. n=0"),
        (("carrier",), Best(2, "delay"), UPDATING, "give a direction to each column"),
        (("carrier",), Best(2, "carrier asc"), UPDATING, "order them by others. by=carrier, keys=carrier"),
        (("carrier",), Best(2, "delay desc", "all"), UPDATING, "ties= is one of rows, rank, dense_rank. ties='all'"),
        (("carrier",), Best(2, "delay desc", rank="Flight"), UPDATING, "has a column of this name already"),
        (("carrier",), Best(2, "delay desc", rank="_place"), UPDATING, "does not begin with _"),
        ((), Best(2, "delay desc"), UPDATING, "needs key columns"),
        (("carrier",), Best(2, "delay desc"), SCHEMA, "the rows have no change type"),
        (
            ("carrier",),
            Best(2, "delay desc"),
            UPDATING.append(pa.field("_path", pa.int64())),
            "a column of this name: rename yours. column=_path",
        ),
        (
            ("carrier",),
            Best(2, "delay desc", "rank"),
            UPDATING.append(pa.field("_by_0", pa.int64())),
            "a column of this name: rename yours. column=_by_0",
        ),
    ],
)
def test_what_cannot_work_is_refused(keys: Any, best: Best, schema: pa.Schema, message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=message):
        Top.build(keys, InputSpec((), schema), best, updating=True)
