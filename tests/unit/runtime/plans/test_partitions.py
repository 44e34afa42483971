"""Limits of rows of which it matters only whether there are any, found without the JVM."""

from typing import Any

import pytest

from dagster_ckpt.runtime.catalyst.values import Expression, Filter, GlobalLimit, LocalLimit, Node, SortTerm, Window
from dagster_ckpt.runtime.plans.partitions import without_limit

CATALYST: Any = None
ROWS = Node(kind="StreamingRelationV2", streams=True)
RANK = 5


def literal(value: int) -> Expression:
    return Expression("Literal", constant=value)


def compared(kind: str, most: int, number: int = RANK) -> Expression:
    return Expression(kind, (Expression("AttributeReference", number=number), literal(most)))


def ranked(condition: Expression, *, order: tuple[SortTerm, ...] = ()) -> Filter:
    call = Expression("Alias", (Expression("WindowExpression", (Expression("RowNumber"),)),), number=RANK)
    window = Window(kind="Window", children=(ROWS,), calls=(call,), keys=(), order=order)
    return Filter(kind="Filter", children=(window,), condition=condition)


def test_a_limit_goes_where_no_key_is_asked_for() -> None:
    below = LocalLimit(kind="LocalLimit", children=(ROWS,), count=literal(3))
    assert without_limit(CATALYST, GlobalLimit(kind="GlobalLimit", children=(below,), count=literal(3)), ()) is ROWS


def test_no_rows_stay_no_rows() -> None:
    none = GlobalLimit(kind="GlobalLimit", children=(ROWS,), count=literal(0))
    assert without_limit(CATALYST, none, ()) is none


@pytest.mark.parametrize(
    "condition",
    [
        compared("LessThanOrEqual", 1),
        compared("LessThanOrEqual", 9),
    ],
)
def test_a_bound_of_row_numbers_without_an_order_goes(condition: Expression) -> None:
    assert without_limit(CATALYST, ranked(condition), ()) is ROWS


@pytest.mark.parametrize(
    "condition",
    [
        compared("LessThanOrEqual", 0),
        compared("EqualTo", 2),
        compared("GreaterThan", 2),
        compared("LessThanOrEqual", 1, number=RANK + 1),
        Expression("LessThanOrEqual", (literal(1), literal(2))),
    ],
)
def test_any_other_filter_stays(condition: Expression) -> None:
    node = ranked(condition)
    assert without_limit(CATALYST, node, ()) is node


def test_a_bound_in_an_order_stays() -> None:
    order = SortTerm("SortOrder", by=literal(1), ascends=True, nulls_first=True)
    node = ranked(compared("LessThanOrEqual", 1), order=(order,))
    assert without_limit(CATALYST, node, ()) is node
