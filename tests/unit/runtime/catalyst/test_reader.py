"""Plans become values from one text, without the JVM."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from dagster_ckpt.runtime.catalyst import reader
from dagster_ckpt.runtime.catalyst.reader import nodes_above, read, read_expressions, read_types
from dagster_ckpt.runtime.catalyst.values import (
    AggregateCall,
    Filter,
    Java,
    Join,
    LocalRelation,
    Node,
    Projection,
    Window,
    WindowCall,
)


def expression(kind: str, at: int, *of: Any, **more: Any) -> dict[str, Any]:
    return {"expression": kind, "type": 0, "at": at, "of": list(of), **more}


def node(kind: str, at: int, *below: Any, **fields: Any) -> dict[str, Any]:
    return {"node": kind, "streams": True, "at": at, "output": [["k", 7]], "below": list(below), "fields": fields}


TYPES: list[Any] = [
    {"name": "integer", "at": 100},
    {"name": "string collate UTF8_LCASE", "at": 101, "collated": True},
    {"name": "struct", "at": 102, "collated": True, "fields": [["a", 0], ["b", 1]]},
    {"name": "array", "at": 103, "collated": True, "element": 2},
]
K = expression("AttributeReference", 3, name="k", number=7)
LEAF = node("StreamingRelationV2", 2)
FILTER = node("Filter", 1, LEAF, condition=expression("IsNotNull", 4, K, zoned=True))


class Jvm:
    """A planner that has read a text, and counts how often it is asked for it."""

    def __init__(self, text: Any) -> None:
        self._text, self.asked = json.dumps({"read": text, "types": TYPES}), 0
        self.jvm: Any = SimpleNamespace(read=self._tree, above=self._tree, expressions=self._tree, types=self._tree)

    def _tree(self, *_: object) -> Any:
        return SimpleNamespace(at=lambda number: f"object {number}", text=self._part)

    def _part(self, first: int, count: int) -> str:
        self.asked += 1
        return self._text[first : first + count]


def of_text(monkeypatch: pytest.MonkeyPatch, text: Any) -> Jvm:
    jvm = Jvm(text)
    monkeypatch.setattr(reader, "planner", lambda _: jvm.jvm)
    return jvm


SESSION: Any = None
PLAN = Java("a plan")


def test_nodes_have_their_types_and_spark_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    named = expression("Alias", 5, expression("Add", 6, K, expression("Literal", 8, constant=1)), name="n", number=9)
    of_text(monkeypatch, node("Project", 0, FILTER, projectList=[K, named]))
    project = read(SESSION, PLAN)
    assert isinstance(project, Projection)
    assert isinstance(project.child, Filter)
    assert [each.kind for each in project.nodes()] == ["Project", "Filter", "StreamingRelationV2"]
    assert project.columns == project.expressions
    assert [each.number for each in project.columns] == [7, 9]
    assert [each.column is each for each in project.columns] == [True, False]
    assert project.columns[1].value.children[1].constant == 1
    assert project.child.condition.zoned
    assert project.java == Java("object 0")
    assert project.child.java == Java("object 1")
    assert project.child.condition.java == Java("object 4")


def test_a_node_without_a_class_here_has_its_expressions_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    of_text(monkeypatch, node("CollectMetrics", 0, LEAF, name="m", metrics=[K, [expression("Max", 5)]], last=K))
    found = read(SESSION, PLAN)
    assert type(found) is Node
    assert [each.kind for each in found.expressions] == ["AttributeReference", "Max", "AttributeReference"]


def test_fields_may_be_missing_or_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    join = node("Join", 0, LEAF, node("LocalRelation", 2, output=[K], data=[]), joinType="LeftAnti", condition=None)
    of_text(monkeypatch, node("Window", 1, join, windowExpressions=[K], partitionSpec=[], orderSpec=[]))
    window = read(SESSION, PLAN)
    assert isinstance(window, Window)
    assert (window.keys, window.order) == ((), ())
    assert isinstance(window.child, Join)
    assert (window.child.how, window.child.condition) == ("LeftAnti", None)
    rows = window.child.children[1]
    assert isinstance(rows, LocalRelation)
    assert not rows.rows


def test_subqueries_are_read_with_the_expression_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    subquery = expression("ScalarSubquery", 5, number=11, plan=FILTER)
    of_text(monkeypatch, node("Filter", 0, LEAF, condition=expression("GreaterThan", 4, K, subquery)))
    kinds = [each.kind for each in read(SESSION, PLAN).with_subqueries()]
    assert kinds == ["Filter", "Filter", "StreamingRelationV2", "StreamingRelationV2"]


@pytest.mark.parametrize(("length", "asked"), [(10, 1), (30_000, 5)])
def test_a_long_text_comes_in_parts(monkeypatch: pytest.MonkeyPatch, length: int, asked: int) -> None:
    jvm = of_text(monkeypatch, [node("Filter", 0, condition=expression("IsNull", 1, K, sql="x" * length))])
    [found] = nodes_above(SESSION, PLAN, Java("its base"))
    assert found.expressions[0].sql == "x" * length
    assert jvm.asked == asked


def test_a_type_is_read_once_and_has_those_that_it_is_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    of_text(monkeypatch, [3, 0, None])
    array, whole, none = read_types(SESSION, PLAN)
    assert array.element is not None
    assert [(name, each.name) for name, each in array.element.fields] == [
        ("a", "integer"),
        ("b", "string collate UTF8_LCASE"),
    ]
    assert array.element.fields[0][1] is whole
    assert [each.collated for each in (array, whole)] == [True, False]
    assert (array.java, none.name) == (Java("object 103"), "")


def test_a_call_has_its_arguments_by_names(monkeypatch: pytest.MonkeyPatch) -> None:
    function = expression("First", 2, K, fields={"child": 0, "ignoreNulls": True})
    where = expression("IsNotNull", 5, K)
    fields = {"aggregateFunction": 0, "mode": "Complete", "isDistinct": False, "filter": 1, "resultId": None}
    aggregate = expression("AggregateExpression", 1, function, where, fields=fields)
    term = expression(
        "SortOrder", 7, K, fields={"child": 0, "direction": "Descending", "nullOrdering": "NullsLast", "of": []}
    )
    ends = [expression("UnboundedPreceding", 9), expression("Literal", 10, constant=-3)]
    frame = expression("SpecifiedWindowFrame", 8, *ends, fields={"frameType": "RangeFrame", "lower": 0, "upper": 1})
    spec = expression(
        "WindowSpecDefinition",
        6,
        K,
        term,
        frame,
        fields={"partitionSpec": [0], "orderSpec": [1], "frameSpecification": 2},
    )
    call = expression("WindowExpression", 0, aggregate, spec, fields={"windowFunction": 0, "windowSpec": 1})
    of_text(monkeypatch, [call])
    [found] = read_expressions(SESSION, PLAN)
    assert isinstance(found, WindowCall)
    assert isinstance(found.function, AggregateCall)
    assert found.function.function.fields["ignoreNulls"] is True
    assert found.function.function.fields["child"] is found.function.function.children[0]
    assert (found.function.distinct, found.function.where) == (False, found.function.children[1])
    assert [(each.ascends, each.nulls_first, each.by.number) for each in found.over.order] == [(False, False, 7)]
    assert [each.number for each in found.over.keys] == [7]
    assert (found.over.frame.by_rows, found.over.frame.lower.kind) == (False, "UnboundedPreceding")
    assert found.over.frame.upper.constant == -3


def test_an_object_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    text = json.dumps({"read": LEAF, "types": []})
    tree = SimpleNamespace(at=asked.append, text=lambda first, count: text[first : first + count])
    jvm = SimpleNamespace(read=lambda *_: tree)
    monkeypatch.setattr(reader, "planner", lambda _: jvm)
    found = read(SESSION, PLAN)
    assert not asked
    assert found.java is found.java
    assert asked == [2]
