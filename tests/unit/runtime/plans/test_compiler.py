"""The compiler matches on nodes of a plan that no JVM has read."""

from collections.abc import Callable
from typing import Any

import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.catalyst.refusals import RefusedAtError
from dagster_ckpt.runtime.catalyst.values import Java, Join, Node, Projection, Union
from dagster_ckpt.runtime.plans.compiler import PlanCompiler

LINE = 3


class Planner:
    """What the compiler asks a planner for here. Rows are `plan` and columns `columns` of the node that they are of."""

    no_columns = ()
    is_constant = staticmethod(lambda _: False)
    line_of = staticmethod(lambda _: LINE)
    null_aware_of = staticmethod(lambda _: None)
    number_of = staticmethod(lambda _: None)
    name_of = staticmethod(lambda node: node.java)

    @property
    def build(self) -> "Planner":
        return self

    @staticmethod
    def equi_join_of(_: object) -> tuple[list[str], list[str], None]:
        return [], [], None

    @staticmethod
    def output_of(node: Node) -> list[str]:
        return [name for name, _ in node.output]

    @staticmethod
    def projection(columns: list[Any]) -> Callable[[str, object], str]:
        return lambda plan, _: f"SELECT {len(columns)} FROM {plan}"


def named(name: str) -> Callable[[], Java]:
    """The node of that name in the JVM."""
    return lambda: Java(name)


def leaf(*, streams: bool = True) -> Node:
    return Node(kind="LogicalRelation", output=(("k", 1), ("v", 2)), streams=streams, from_jvm=named("Relation"))


def above(kind: str, *below: Node) -> Node:
    return Node(kind=kind, children=below or (leaf(),), output=(("k", 1),), streams=True, from_jvm=named(kind))


def compiler(plan: Node) -> PlanCompiler:
    planner: Any = Planner()
    return PlanCompiler(planner, plan)


def part_of(plan: Node) -> Any:
    return compiler(plan).part(plan)


def test_an_unknown_node_is_refused_with_its_line_and_what_to_write_instead() -> None:
    plan = above("Sample")
    with pytest.raises(RefusedAtError, match=rf"filter by a hash of columns.*found=Sample, line={LINE}$"):
        part_of(plan)


def test_the_line_is_that_of_the_innermost_node() -> None:
    plan = above("SubqueryAlias", above("Tail"))
    with pytest.raises(RefusedAtError, match=r"found=Tail, line=3$"):
        part_of(plan)


@pytest.mark.parametrize("kind", ["SubqueryAlias", "View", "EventTimeWatermark", "Repartition"])
def test_a_node_that_changes_no_row_is_the_one_below(kind: str) -> None:
    plan = above(kind)
    part = part_of(plan)
    assert part.plan == "Relation"
    assert part.output == ["k", "v"]


def test_a_projection_is_the_work_on_the_rows_below() -> None:
    rows = leaf(streams=False)
    plan = Projection(kind="Project", children=(leaf(),), output=(("k", 1),), streams=True, columns=())
    part = part_of(plan)
    assert part.plan.startswith("SELECT 0 FROM ")
    assert part.output == ["k"]
    assert part_of(rows).plan == "Relation"


def test_a_table_that_does_not_stream_is_no_part_of_a_union() -> None:
    plan = Union(kind="Union", children=(leaf(), leaf(streams=False)), output=(("k", 1),), streams=True)
    with pytest.raises(InvalidPipelineError, match=r"read the table as a stream\. found=Relation, columns=k, v"):
        part_of(plan)


def test_a_join_of_another_kind_is_refused() -> None:
    sides = (leaf(), leaf())
    plan = Join(kind="Join", children=sides, streams=True, how="Positional", condition=None, from_jvm=named("Join"))
    with pytest.raises(InvalidPipelineError, match=r"this kind of join cannot be kept up to date\. found=Positional"):
        part_of(plan)
