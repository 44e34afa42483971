"""Plans become values from one text, without the JVM."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from dagster_ckpt.runtime.catalyst import reader
from dagster_ckpt.runtime.catalyst.reader import nodes_above, read
from dagster_ckpt.runtime.catalyst.values import Filter, Join, LocalRelation, Node, Projection, Window


def expression(kind: str, at: int, *of: Any, **more: Any) -> dict[str, Any]:
    return {"expression": kind, "type": "integer", "at": at, "of": list(of), **more}


def node(kind: str, at: int, *below: Any, **fields: Any) -> dict[str, Any]:
    return {"node": kind, "streams": True, "at": at, "output": [["k", 7]], "below": list(below), "fields": fields}


K = expression("AttributeReference", 3, name="k", number=7)
LEAF = node("StreamingRelationV2", 2)
FILTER = node("Filter", 1, LEAF, condition=expression("IsNotNull", 4, K, zoned=True))


class Jvm:
    """A planner that has read a text, and counts how often it is asked for it."""

    def __init__(self, text: Any) -> None:
        self._text, self.asked = json.dumps(text), 0
        self.jvm: Any = SimpleNamespace(read=self._tree, above=self._tree)

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


def test_nodes_have_their_types_and_spark_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    named = expression("Alias", 5, expression("Add", 6, K, expression("Literal", 8, constant=1)), name="n", number=9)
    of_text(monkeypatch, node("Project", 0, FILTER, projectList=[K, named]))
    project = read(SESSION, "a plan")
    assert isinstance(project, Projection)
    assert isinstance(project.child, Filter)
    assert [each.kind for each in project.nodes()] == ["Project", "Filter", "StreamingRelationV2"]
    assert project.columns == project.expressions
    assert [each.number for each in project.columns] == [7, 9]
    assert [each.column is each for each in project.columns] == [True, False]
    assert project.columns[1].value.children[1].constant == 1
    assert project.child.condition.zoned
    assert [project.java, project.child.java, project.child.condition.java] == ["object 0", "object 1", "object 4"]


def test_a_node_without_a_class_here_has_its_expressions_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    of_text(monkeypatch, node("CollectMetrics", 0, LEAF, name="m", metrics=[K, [expression("Max", 5)]], last=K))
    found = read(SESSION, "a plan")
    assert type(found) is Node
    assert [each.kind for each in found.expressions] == ["AttributeReference", "Max", "AttributeReference"]


def test_fields_may_be_missing_or_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    join = node("Join", 0, LEAF, node("LocalRelation", 2, output=[K], data=[]), joinType="LeftAnti", condition=None)
    of_text(monkeypatch, node("Window", 1, join, windowExpressions=[K], partitionSpec=[], orderSpec=[]))
    window = read(SESSION, "a plan")
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
    kinds = [each.kind for each in read(SESSION, "a plan").with_subqueries()]
    assert kinds == ["Filter", "Filter", "StreamingRelationV2", "StreamingRelationV2"]


@pytest.mark.parametrize(("length", "asked"), [(10, 1), (30_000, 5)])
def test_a_long_text_comes_in_parts(monkeypatch: pytest.MonkeyPatch, length: int, asked: int) -> None:
    jvm = of_text(monkeypatch, [node("Filter", 0, condition=expression("IsNull", 1, K, sql="x" * length))])
    [found] = nodes_above(SESSION, "a plan", "its base")
    assert found.expressions[0].sql == "x" * length
    assert jvm.asked == asked
