"""Reads plans, each in two calls of the JVM: a text that describes all of it, and the objects that the text numbers."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from dagster_ckpt.runtime.catalyst.planner import planner
from dagster_ckpt.runtime.catalyst.values import (
    Aggregate,
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
    Union,
    Window,
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


def _open(tree: Any) -> tuple["_Reader", Any]:
    text = part = str(tree.text(0, _SENT_AT_ONCE))
    while len(part) == _SENT_AT_ONCE:
        part = str(tree.text(len(text), _SENT_AT_ONCE))
        text += part
    return _Reader(tree.at), json.loads(text)


class _Reader:
    """Makes values of a text. `at` gives the object of a number."""

    def __init__(self, at: Callable[[int], Java]) -> None:
        self._at = at

    def node(self, read: Any) -> Node:
        kind, fields = read["node"], {name: self._field(each) for name, each in read["fields"].items()}
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

    def _field(self, read: Any) -> _Field:
        match read:
            case list():
                return tuple(map(self._field, read))
            case {"expression": _}:
                return self._expression(read)
        return read

    def _expression(self, read: Any) -> Expression:
        return Expression(
            read["expression"],
            tuple(map(self._expression, read["of"])),
            read["type"],
            read.get("name"),
            read.get("number"),
            read.get("sql", ""),
            read.get("text", ""),
            read.get("deterministic", True),
            read.get("zoned", False),
            read.get("constant"),
            self.node(read["plan"]) if "plan" in read else None,
            partial(self._at, read["at"]),
        )


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
