"""Subqueries of one value become joins with their one row, without the JVM."""

from typing import Any

import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.catalyst.values import Aggregate, Expression, Filter, Java, Node, Projection
from dagster_ckpt.runtime.plans.subqueries import without_scalar_subqueries
from tests.unit.runtime.plans.written_plans import column, written

PLAN = Java("plan")
PRICE = column("price")


def rows(name: str = "rows", *, streams: bool = True) -> Node:
    return Node(kind="Rows", output=(("price", 1),), streams=streams, from_jvm=lambda: Java(name))


def subquery(name: str = "sub", *, streams: bool = True) -> Expression:
    return Expression("ScalarSubquery", plan=rows(name, streams=streams), from_jvm=lambda: Java(f"({name})"))


def above(*parts: Expression) -> Expression:
    return Expression("GreaterThan", parts, from_jvm=lambda: Java("asked"))


def filtered(condition: Expression) -> Filter:
    return Filter(
        kind="Filter",
        children=(rows(),),
        output=(("price", 1),),
        expressions=(condition,),
        condition=condition,
        from_jvm=lambda: Java("filter"),
    )


def planner(node: Node, *, one_row: bool = True, columns: int = 1) -> Any:
    """A planner that has read this node. What is built has so many columns."""
    catalyst = written()
    catalyst.read = lambda _: node
    catalyst.has_any = lambda *_: True
    catalyst.has_at_most = lambda *_: one_row
    catalyst.columns = lambda plan: [Java(f"{plan}.x")]
    catalyst.column_names = lambda _: [("price", 1)] * columns
    catalyst.count_rows = lambda value, plan: (Java("n"), Java("known"), Java(f"counted({plan})"))
    catalyst.line_of = lambda _: None
    return catalyst


def made_of(node: Node, *, one_row: bool = True, columns: int = 1) -> str:
    return str(without_scalar_subqueries(planner(node, one_row=one_row, columns=columns), PLAN))


def test_a_value_is_a_column_beside_the_rows() -> None:
    asked, joined = "column_of(alias(sub.x, value))", "left_join(rows, project([alias(sub.x, value)], sub))"
    assert made_of(filtered(above(PRICE, subquery()))) == f"filter(GreaterThan(price, {asked}), {joined})"


def test_more_rows_than_one_end_the_stream() -> None:
    made = made_of(filtered(above(PRICE, subquery())), one_row=False)
    assert "scalar_or_error(n, column_of(alias(sub.x, value)), a subquery that stands for one value" in made
    assert made.endswith("left_join(left_join(rows, project([alias(sub.x, value)], sub)), counted(sub)))")


def test_one_that_is_there_twice_is_joined_once() -> None:
    made = made_of(filtered(above(subquery(), subquery())))
    assert made.count("left_join(") == 1
    assert made_of(filtered(above(subquery(), subquery("other")))).count("left_join(") == 2


def test_the_output_is_what_it_was() -> None:
    assert made_of(filtered(above(PRICE, subquery())), columns=2).startswith("project([on(filter, rows).x], filter(")


def test_a_table_that_does_not_stream_stays_a_subquery() -> None:
    assert made_of(filtered(above(PRICE, subquery(streams=False)))) == "plan"


def test_a_node_above_is_put_on_what_the_one_below_became() -> None:
    below = filtered(above(PRICE, subquery()))
    top = Projection(kind="Project", children=(below,), columns=(PRICE,), from_jvm=lambda: Java("top"))
    assert made_of(top).startswith("on(top, filter(GreaterThan(")


def test_what_is_computed_of_groups_is_joined_with_these() -> None:
    share = above(column("sum"), subquery())
    node = Aggregate(
        kind="Aggregate",
        children=(rows(),),
        output=(("share", 3),),
        expressions=(share,),
        keys=(),
        columns=(share,),
        from_jvm=lambda: Java("aggregate"),
    )
    catalyst, project = planner(node), Projection(kind="Project", columns=(), children=(rows("groups"),))
    catalyst.aggregate_of = lambda _: ((), (), (share,))
    read = iter([node, project])
    catalyst.read = lambda _: next(read)
    assert str(without_scalar_subqueries(catalyst, PLAN)).startswith("project([asked], project(standing_for(")


def test_a_node_that_cannot_have_one_is_refused() -> None:
    condition = above(PRICE, subquery())
    node = Node(kind="MapInArrow", children=(rows(),), expressions=(condition,), from_jvm=lambda: Java("map"))
    with pytest.raises(InvalidPipelineError, match=r"found=a subquery in name_of\(.*"):
        made_of(node)


def test_a_plan_without_subqueries_is_not_read() -> None:
    catalyst = planner(rows())
    catalyst.has_any = lambda *_: False
    catalyst.read = None
    assert without_scalar_subqueries(catalyst, PLAN) is PLAN
