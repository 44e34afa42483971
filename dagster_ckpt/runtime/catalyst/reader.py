"""Reads plans, each in two calls of the JVM: a text that describes all of it, and the objects that the text numbers."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from dagster_ckpt.runtime.catalyst.planner import planner
from dagster_ckpt.runtime.catalyst.values import Expression, Field, Java, Node


def read(session: SparkSession, plan: Java, *, replaced: bool = False) -> Node:
    """The nodes of a plan, with those of its subqueries, and their expressions.

    `replaced`: functions that Spark makes of others are these.
    """
    reader, text = _opened(planner(session).read(plan, replaced))
    return reader.node(text)


def nodes_above(session: SparkSession, plan: Java, base: Java, *, replaced: bool = False) -> list[Node]:
    """The nodes of a plan down to the one that is `base` or has not just one below, which is the last; without these.

    Their expressions have SQL. `replaced` is that of `read`.
    """
    reader, text = _opened(planner(session).above(plan, base, replaced))
    return [reader.node(each) for each in text]


def _opened(tree: Any) -> tuple["_Reader", Any]:
    return _Reader(tree.at), json.loads(tree.text())


class _Reader:
    """Makes values of a text. `at` gives the object of a number."""

    def __init__(self, at: Callable[[int], Java]) -> None:
        self._at = at

    def node(self, read: Any) -> Node:
        return Node(
            read["node"],
            tuple(map(self.node, read["below"])),
            tuple((name, number) for name, number in read["output"]),
            read["streams"],
            {name: self._field(each) for name, each in read["fields"].items()},
            tuple(map(self.node, read["subqueries"])),
            partial(self._at, read["at"]),
        )

    def _field(self, read: Any) -> Field:
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
            read.get("deterministic", True),
            read.get("zoned", False),
            read.get("constant"),
            partial(self._at, read["at"]),
        )
