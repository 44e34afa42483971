"""Nodes and expressions of Spark's plans as values, which are read once and need no JVM to be looked at.

Each keeps the object that it was read from, by which plans are built: nothing else of it is asked there.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Java = Any
"""An object in the JVM."""


def _nowhere() -> Java:
    raise AssertionError("it was read from no plan")


@dataclass(frozen=True, eq=False, slots=True)
class Expression:
    """An expression. `kind` is the name of its class, `type` that of its type, empty for what has none.

    `name` and Spark's `number` are those of a column or of what an alias makes, or of a subquery, which has its `plan`.
    `sql` and Spark's own `text` are known where they were asked for, of those that a node has and of the sides of an
    AND, not of their parts. `zoned` says whether it computes with the session's time zone.
    `constant` is the whole number or the boolean that is written there.
    """

    kind: str
    children: tuple["Expression", ...] = ()
    type: str = ""
    name: str | None = None
    number: int | None = None
    sql: str = ""
    text: str = ""
    deterministic: bool = True
    zoned: bool = False
    constant: int | None = None
    plan: "Node | None" = None
    _java: Callable[[], Java] = field(default=_nowhere, repr=False)

    @property
    def java(self) -> Java:
        """The expression in the JVM."""
        return self._java()

    def parts(self) -> Iterator["Expression"]:
        """It, and what it is made of."""
        yield self
        for child in self.children:
            yield from child.parts()

    @property
    def value(self) -> "Expression":
        """What is computed: of an alias the expression that it names."""
        return self.children[0] if self.kind == "Alias" else self

    @property
    def column(self) -> "Expression | None":
        """The column of the node below that it is, under whatever name; None: it computes something."""
        return self.value if self.value.kind == "AttributeReference" else None


Field = Any
"""An `Expression`, a tuple of fields, a plain value, the name of another one's class, or None.

A sequence of anything else is the number of its items, if it has some.
"""


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """A node of a plan. `output` are its columns, each by its name and Spark's number.

    `fields` are the arguments that Spark's class has, by their names, but for the nodes below.
    """

    kind: str
    children: tuple["Node", ...] = ()
    output: tuple[tuple[str, int], ...] = ()
    streams: bool = False
    fields: Mapping[str, Field] = field(default_factory=dict)
    _java: Callable[[], Java] = field(default=_nowhere, repr=False)

    @property
    def java(self) -> Java:
        """The node in the JVM."""
        return self._java()

    def nodes(self) -> Iterator["Node"]:
        """It, and the nodes below it."""
        yield self
        for child in self.children:
            yield from child.nodes()

    def with_subqueries(self) -> Iterator["Node"]:
        """It, the nodes below it, and those of all subqueries."""
        for node in self.nodes():
            yield node
            for part in node.parts():
                if part.plan is not None:
                    yield from part.plan.with_subqueries()

    @property
    def is_empty(self) -> bool:
        """Whether it is no row, as what stands for the changes of a step."""
        return self.kind == "LocalRelation" and not self.fields["data"]

    @property
    def expressions(self) -> list[Expression]:
        """Its expressions, in the order in which it has them."""
        return list(_expressions(tuple(self.fields.values())))

    def parts(self) -> Iterator[Expression]:
        """Its expressions, and what they are made of."""
        for each in self.expressions:
            yield from each.parts()


def _expressions(value: Field) -> Iterator[Expression]:
    if isinstance(value, Expression):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from _expressions(each)
