"""Joins that ask more than equal keys are made of those that do not, without the JVM."""

from types import SimpleNamespace
from typing import Any

import pytest

from dagster_ckpt.runtime.catalyst.values import Java, Join, Node, SparkType
from dagster_ckpt.runtime.plans.matches import beside_matches, not_in, with_flag
from tests.unit.runtime.plans.written_plans import LCASE, column, written

CONDITION = column("asked")


def side(name: str) -> Node:
    return Node(kind="Rows", output=((name, 1),), streams=True, from_jvm=lambda: Java(name))


def join(how: str) -> Join:
    return Join(
        kind="Join", children=(side("l"), side("r")), how=how, condition=CONDITION, from_jvm=lambda: Java("join")
    )


def compiler(*, changes: bool = False, **types: SparkType) -> Any:
    catalyst = written(**types)
    # Both sides have the column `a`; their union has how it was found beside it.
    names = {True: ("a", "row", "match"), False: ("a",)}
    catalyst.columns = lambda plan: [Java(f"{plan}.{name}") for name in names[str(plan).startswith("union_all")]]
    catalyst.column_names = lambda _: [("a", 1)]
    catalyst.make.may_be_null = lambda _: True
    catalyst.build.count_rows = lambda value, plan: (Java("n"), Java("known"), Java(f"counted({plan})"))
    catalyst.build.distinct_values = lambda own, plan: (Java(f"distinct({plan})"), own)
    return SimpleNamespace(catalyst=catalyst, part_that_streams=lambda _: SimpleNamespace(changes=changes))


def test_rows_that_only_come_and_have_a_match_are_joined_with_the_distinct_pairs() -> None:
    made = str(beside_matches(compiler(), join("LeftSemi")))
    assert "join(l, distinct(join(l, r, Inner, asked)), LeftSemi" in made


@pytest.mark.parametrize(("changes", "types"), [(True, {}), (False, {"l.a": LCASE})])
def test_rows_that_change_or_that_a_collation_compares_are_counted(changes: bool, types: dict[str, SparkType]) -> None:
    made = str(beside_matches(compiler(changes=changes, **types), join("LeftSemi")))
    assert "distinct(" not in made
    assert "repeated" not in made
    assert "explode(repeat(constant(True), cast_to_int(" in made


@pytest.mark.parametrize(("how", "branches"), [("LeftOuter", 2), ("RightOuter", 2), ("FullOuter", 3)])
def test_an_outer_join_has_the_pairs_and_the_rows_without(how: str, branches: int) -> None:
    catalyst, united = compiler().catalyst, list[tuple[object, ...]]()
    make = catalyst.build.union_all

    def union_all(*plans: object) -> object:
        united.append(plans)
        return make(*plans)

    catalyst.build.union_all = union_all
    in_test: Any = SimpleNamespace(catalyst=catalyst)
    beside_matches(in_test, join(how))
    assert len(united[-1]) == branches
    assert str(united[-1][0]).endswith("join(l, r, Inner, asked))")


def test_a_flag_is_the_rows_with_a_match_and_those_without() -> None:
    made = str(with_flag(compiler().catalyst, join("ExistenceJoin")))
    assert made.startswith("union_all(project([")
    assert "join(l, r, LeftSemi, asked)" in made
    assert "join(l, r, LeftAnti, asked)" in made


def test_not_in_asks_whether_a_value_is_null_or_none_is_there() -> None:
    made = str(not_in(compiler().catalyst, join("LeftAnti"), Java("x"), Java("y")))
    assert made.endswith(", r, LeftAnti, equal(x, y))")
    assert "left_join(l, project([alias(equal(n, cast_like(constant(0), n)), empty)" in made
