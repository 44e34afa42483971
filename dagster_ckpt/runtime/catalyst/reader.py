"""Reads plans, each in two calls of the JVM: a text that describes all of it, and the objects that the text numbers."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any

from pyspark.sql import SparkSession

from dagster_ckpt.runtime.catalyst.planner import planner
from dagster_ckpt.runtime.catalyst.values import (
    NO_FIELDS,
    NO_TYPE,
    Aggregate,
    AggregateCall,
    Deduplication,
    Expand,
    Expression,
    Filter,
    Generate,
    GlobalLimit,
    Java,
    Join,
    LocalLimit,
    LocalRelation,
    Node,
    Offset,
    Projection,
    Sort,
    SortTerm,
    SparkType,
    Union,
    Window,
    WindowCall,
    WindowFrame,
    WindowSpec,
)

_Field = Any
"""An `Expression`, a tuple of fields, a plain value, the name of another one's class, or None.

A sequence of anything else is the number of its items, if it has some.
"""
_SENT_AT_ONCE = 7000
"""Characters of an answer that py4j sends in one packet: with the rest of a longer one it waits for 40 ms."""


def read(session: SparkSession, plan: Java, *, replaced: bool = False) -> Node:
    """The nodes of a plan, with those of its subqueries, and their expressions.

    `replaced`: functions that Spark makes of others are these.
    """
    reader, text = _open(planner(session).read(plan, replaced))
    return reader.node(text)


def nodes_above(session: SparkSession, plan: Java, base: Java, *, replaced: bool = False) -> list[Node]:
    """The nodes of a plan down to the one that is `base` or has not just one below, which is the last; without these.

    Their expressions have SQL. `replaced` is that of `read`.
    """
    reader, text = _open(planner(session).above(plan, base, replaced))
    return [reader.node(each) for each in text]


def with_texts(session: SparkSession, plan: Java) -> tuple[Node, Node]:
    """A plan with Spark's own texts of its expressions, and the same plan in which each of Spark's numbers is 0.

    Where the texts differ there is a number, and no text of a user.
    """
    reader, (plan, without) = _open(planner(session).texts(plan))
    return reader.node(plan), reader.node(without)


def read_expressions(session: SparkSession, parts: Java) -> Any:
    """Expressions, which may be in options and sequences within the one of Scala's."""
    reader, text = _open(planner(session).expressions(parts))
    return reader.field(text)


def read_types(session: SparkSession, expressions: Java) -> tuple[SparkType, ...]:
    """The types of the expressions in a sequence of Scala's."""
    reader, text = _open(planner(session).types(expressions))
    return tuple(map(reader.type, text))


def _open(tree: Any) -> tuple["_Reader", Any]:
    text = part = str(tree.text(0, _SENT_AT_ONCE))
    while len(part) == _SENT_AT_ONCE:
        part = str(tree.text(len(text), _SENT_AT_ONCE))
        text += part
    found = json.loads(text)
    return _Reader(tree.at, found["types"]), found["read"]


class _Reader:
    """Makes values of a text. `at` gives the object of a number; a type has those that it is made of before it."""

    def __init__(self, at: Callable[[int], Java], types: Any) -> None:
        self._at = cache(at)
        self._types = list[SparkType]()
        for each in types:
            self._types.append(
                SparkType(
                    each["name"],
                    tuple((name, self._types[place]) for name, place in each.get("fields", ())),
                    self._types[each["element"]] if "element" in each else None,
                    each.get("collated", False),
                    partial(self._at, each["at"]),
                )
            )

    def type(self, place: int | None) -> SparkType:
        return NO_TYPE if place is None else self._types[place]

    def node(self, read: Any) -> Node:
        kind, fields = read["node"], {name: self.field(each) for name, each in read["fields"].items()}
        known, names = _NODES.get(kind, (Node, {}))
        return known(
            kind=kind,
            children=tuple(map(self.node, read["below"])),
            output=tuple((name, number) for name, number in read["output"]),
            streams=read["streams"],
            expressions=tuple(_expressions(tuple(fields.values()))),
            from_jvm=partial(self._at, read["at"]),
            **{ours: fields[theirs] for ours, theirs in names.items()},
        )

    def field(self, read: Any) -> _Field:
        match read:
            case list():
                return tuple(map(self.field, read))
            case {"expression": _}:
                return self._expression(read)
        return read

    def _expression(self, read: Any) -> Expression:
        kind, children = read["expression"], tuple(map(self._expression, read["of"]))
        fields = {name: _argument(each, children) for name, each in read["fields"].items()} if "fields" in read else {}
        known, more = _CALLS.get(kind, (Expression, _no_more))
        return known(
            kind,
            children,
            self.type(read["type"]),
            read.get("name"),
            read.get("number"),
            read.get("sql", ""),
            read.get("text", ""),
            read.get("deterministic", True),
            read.get("zoned", False),
            read.get("constant"),
            self.node(read["plan"]) if "plan" in read else None,
            read.get("nullable", True),
            read.get("foldable", False),
            read.get("window", ""),
            fields or NO_FIELDS,
            partial(self._at, read["at"]),
            **more(fields),
        )


def _argument(read: Any, children: tuple[Expression, ...]) -> Any:
    """What a call has as a field: an expression, which is read as its place among the children, or a plain value."""
    match read:
        case list():
            return tuple(_argument(each, children) for each in read)
        case int(place) if not isinstance(read, bool):
            return children[place] if place >= 0 else None
    return read


def _expressions(value: _Field) -> Iterator[Expression]:
    if isinstance(value, Expression):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from _expressions(each)


_NODES: Mapping[str, tuple[type[Node], Mapping[str, str]]] = {
    "Aggregate": (Aggregate, {"keys": "groupingExpressions", "columns": "aggregateExpressions"}),
    "Deduplicate": (Deduplication, {"keys": "keys"}),
    "DeduplicateWithinWatermark": (Deduplication, {"keys": "keys"}),
    "Expand": (Expand, {"projections": "projections"}),
    "Filter": (Filter, {"condition": "condition"}),
    "Generate": (Generate, {"generator": "generator", "outer": "outer", "made": "generatorOutput"}),
    "GlobalLimit": (GlobalLimit, {"count": "limitExpr"}),
    "Join": (Join, {"how": "joinType", "condition": "condition"}),
    "LocalLimit": (LocalLimit, {"count": "limitExpr"}),
    "LocalRelation": (LocalRelation, {"rows": "data"}),
    "Offset": (Offset, {"count": "offsetExpr"}),
    "Project": (Projection, {"columns": "projectList"}),
    "Sort": (Sort, {"order": "order"}),
    "Union": (Union, {}),
    "Window": (Window, {"calls": "windowExpressions", "keys": "partitionSpec", "order": "orderSpec"}),
}
"""Spark's classes that have one here, and which of Spark's names its fields have."""


def _no_more(_: Mapping[str, Any]) -> Mapping[str, Any]:
    return {}


_CALLS: Mapping[str, tuple[type[Expression], Callable[[Mapping[str, Any]], Mapping[str, Any]]]] = {
    "AggregateExpression": (
        AggregateCall,
        lambda its: {"function": its["aggregateFunction"], "distinct": its["isDistinct"], "where": its["filter"]},
    ),
    "SortOrder": (
        SortTerm,
        lambda its: {
            "by": its["child"],
            "ascends": its["direction"] == "Ascending",
            "nulls_first": its["nullOrdering"] == "NullsFirst",
        },
    ),
    "SpecifiedWindowFrame": (
        WindowFrame,
        lambda its: {"by_rows": its["frameType"] == "RowFrame", "lower": its["lower"], "upper": its["upper"]},
    ),
    "WindowExpression": (WindowCall, lambda its: {"function": its["windowFunction"], "over": its["windowSpec"]}),
    "WindowSpecDefinition": (
        WindowSpec,
        lambda its: {"keys": its["partitionSpec"], "order": its["orderSpec"], "frame": its["frameSpecification"]},
    ),
}
"""Spark's classes of calls that have one here, and what its fields are."""
