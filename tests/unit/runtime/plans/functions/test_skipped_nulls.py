"""Which functions that skip rows are made of plainer ones, and of which, without the JVM."""

import pytest

from dagster_ckpt.runtime.catalyst.values import Expression, Node, Window
from dagster_ckpt.runtime.plans.functions.over_algebra import in_plainer_functions
from dagster_ckpt.runtime.plans.functions.skipped_nulls import skips_nulls
from tests.unit.runtime.plans.written_plans import (
    END,
    ROW,
    START,
    TEXT,
    aggregate,
    column,
    function,
    literal,
    over,
    term,
    written,
)

K, PRICE = column("k"), column("price")


@pytest.mark.parametrize(
    ("called", "frame", "skips"),
    [
        (function("Lag", PRICE, literal(1), literal(None), ignoreNulls=True), (START, ROW), True),
        (function("Lag", PRICE, literal(0), literal(None), ignoreNulls=True), (START, ROW), False),
        (function("Lead", PRICE, literal(1), literal(None), ignoreNulls=False), (START, ROW), False),
        (aggregate(function("First", PRICE, ignoreNulls=True)), (START, ROW), True),
        (aggregate(function("First", PRICE, ignoreNulls=True)), (ROW, END), True),
        (aggregate(function("First", PRICE, ignoreNulls=True)), (-2, ROW), False),
        (aggregate(function("Last", PRICE, ignoreNulls=True)), (START, ROW), True),
        (aggregate(function("Last", PRICE, ignoreNulls=True)), (-2, END), True),
        (aggregate(function("Last", PRICE, ignoreNulls=False)), (START, ROW), False),
        (aggregate(function("Last", PRICE, ignoreNulls=False), where=column("large")), (START, ROW), True),
        (function("NthValue", PRICE, literal(2), ignoreNulls=True), (START, 1), True),
        (aggregate(function("Sum", PRICE)), (START, ROW), False),
    ],
)
def test_what_is_found_by_values_so_far(called: Expression, frame: tuple[str | int, str | int], *, skips: bool) -> None:
    assert skips_nulls(written(), over(called, term(K), frame=frame)) is skips


def window(*calls: Expression) -> Window:
    rows = Node(kind="Rows", output=(("k", 1), ("price", 2)), streams=True)
    return Window(
        kind="Window",
        children=(rows,),
        output=(*rows.output, *((f"c{place}", each.number or 0) for place, each in enumerate(calls))),
        calls=calls,
        keys=(K,),
        order=(term(PRICE),),
    )


def named(call: Expression, number: int) -> Expression:
    return Expression("Alias", (call,), name=f"c{number}", number=number)


@pytest.mark.parametrize(
    "plain",
    [
        over(function("Rank"), term(PRICE)),
        over(aggregate(function("Sum", PRICE)), frame=(START, END)),
        over(function("Lag", PRICE, literal(1), literal(7), ignoreNulls=False), term(PRICE)),
        over(function("Lag", PRICE, literal(1), literal(None, TEXT), ignoreNulls=False), term(PRICE)),
    ],
)
def test_what_the_engine_has_is_plain(plain: Expression) -> None:
    call = named(plain, 9)
    assert in_plainer_functions(written(), window(call), [call]) is None
