"""A key becomes the columns that a step can have as keys, and is made again of them, without the JVM."""

import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.catalyst.values import Expression, Java, Node, SparkType
from dagster_ckpt.runtime.plans.keys import Dependency, Key, equal_columns, is_never_null, key_among
from tests.unit.runtime.plans.written_plans import DOUBLE, LCASE, LONG, column, texts, written

TIMES = SparkType("struct", (("start", LONG), ("end", LONG)))


@pytest.mark.parametrize(
    ("type_", "columns"),
    [
        (LONG, ["k"]),
        (DOUBLE, ["cast_to_text(one_zero(k))"]),
        (SparkType("interval day to second"), ["cast_to_text(k)"]),
        (SparkType("array", element=LONG), ["json_of(one_zero_within(k))"]),
        (TIMES, ["is_null(k)", "field(k, 0)", "field(k, 1)"]),
        (LCASE, ["by_collation(k)"]),
    ],
)
def test_the_columns_of_a_key(type_: SparkType, columns: list[str]) -> None:
    assert texts(Key(written(), column("k", type_)).columns()) == columns


@pytest.mark.parametrize("name", ["map", "variant", "array"])
def test_values_without_an_order_are_no_key(name: str) -> None:
    type_ = SparkType(name, element=SparkType("map") if name == "array" else None)
    with pytest.raises(InvalidPipelineError, match=r"not brought together by values of this type.*found=k"):
        Key(written(), column("k", type_)).columns()


def test_a_struct_is_null_where_it_was_unless_it_never_is() -> None:
    whole = Key(written(), column("k", TIMES))
    assert str(whole.value(list(map(Java, "nab")))).startswith("if_else(n, null_of(struct), cast(struct(")
    never = Key(written(), column("k", TIMES), never_null=True)
    assert str(never.value(list(map(Java, "nab")))).startswith("cast(struct(")


def test_an_end_of_a_window_follows_from_its_start() -> None:
    key = Expression("AttributeReference", type=TIMES, window="time")
    found = Key(written(), key, never_null=True).dependencies(["null", "start", "end"])
    assert key_among({"start": "s", "end": "e"}, ["null", "start", "end"], found) == ("s",)
    assert Dependency(frozenset(), frozenset(["null"])) in found


def test_a_window_is_never_null_below_what_makes_nulls() -> None:
    window = Expression("AttributeReference", number=5, window="time")
    below = Node(kind="Filter", output=(("t", 1),))
    project = Node(kind="Project", output=(("w", 5),), children=(below,))
    joined = Node(kind="Join", output=(("w", 5),), children=(project, below))
    assert is_never_null(window, project)
    assert not is_never_null(window, joined)
    assert not is_never_null(Expression("AttributeReference", number=5), project)
    assert is_never_null(Expression("AttributeReference", number=5, nullable=False), joined)


def test_fields_of_structs_are_compared_as_identical_and_the_structs_as_equal() -> None:
    catalyst = written()
    catalyst.comparable = lambda one, other: [(f"{one}?", f"{other}?")]
    ours, theirs = equal_columns(catalyst, [column("a", TIMES)], [column("b", TIMES)])
    assert texts(ours) == ["when(is_not(is_null(a)), is_null(a))", "field(a, 0)?", "field(a, 1)?"]
    assert texts(theirs) == ["when(is_not(is_null(b)), is_null(b))", "field(b, 0)?", "field(b, 1)?"]
    assert list(map(texts, equal_columns(catalyst, [column("a")], [column("b")]))) == [["a"], ["b"]]
