"""Nodes and expressions of Spark's plans as values, which are read once and need no JVM to be looked at.

Each keeps the object that it was read from, by which plans are built: nothing else of it is asked there.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NewType

Java = NewType("Java", object)
"""A plan, an expression or a type in the JVM: what `Catalyst` makes others of. Only this room looks into it."""

Columns = NewType("Columns", object)
"""A sequence of such columns or expressions in the JVM."""

NO_FIELDS: Mapping[str, object] = {}


def _nowhere() -> Java:
    raise AssertionError("it was read from no plan")


@dataclass(frozen=True, eq=False, slots=True)
class SparkType:
    """A type. `name` is Spark's: `long`, `decimal(8,2)`, `struct`; empty: it is that of an expression without a value.

    `fields` are those of a struct, by name, and `element` is the type of an array's items. `collated`: it has text, at
    any depth, whose collation decides what is equal.
    """

    name: str = ""
    fields: tuple[tuple[str, "SparkType"], ...] = ()
    element: "SparkType | None" = None
    collated: bool = False
    from_jvm: Callable[[], Java] = field(default=_nowhere, repr=False)

    @property
    def java(self) -> Java:
        """The type in the JVM."""
        return self.from_jvm()


NO_TYPE = SparkType()


@dataclass(frozen=True, eq=False, slots=True)
class Expression:
    """An expression. `kind` is the name of its class.

    `name` and Spark's `number` are those of a column or of what an alias makes, or of a subquery, which has its `plan`.
    `sql` and Spark's own `text` are known where they were asked for, of those that a node has and of the sides of an
    AND, not of their parts. `zoned` says whether it computes with the session's time zone. `constant` is the whole
    number or the boolean that is written there; `foldable`: the value is the same for all rows. `fields` has what a
    function is called with, expressions and booleans, by Spark's names. A column that Spark has made of `window(...)`
    has `window` "time", and "session" if it merges such windows.
    """

    kind: str
    children: tuple["Expression", ...] = ()
    type: SparkType = NO_TYPE
    name: str | None = None
    number: int | None = None
    sql: str = ""
    text: str = ""
    deterministic: bool = True
    zoned: bool = False
    constant: int | None = None
    plan: "Node | None" = None
    nullable: bool = True
    foldable: bool = False
    window: str = ""
    fields: Mapping[str, object] = field(default_factory=lambda: NO_FIELDS, repr=False)
    from_jvm: Callable[[], Java] = field(default=_nowhere, repr=False)

    @property
    def java(self) -> Java:
        """The expression in the JVM."""
        return self.from_jvm()

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


Expressions = tuple[Expression, ...]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class AggregateCall(Expression):
    """A call of an aggregate over the rows for which a condition holds; None holds for all."""

    function: Expression
    distinct: bool
    where: Expression | None


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class SortTerm(Expression):
    """A term of ORDER BY."""

    by: Expression
    ascends: bool
    nulls_first: bool


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class WindowFrame(Expression):
    """The rows around one: by their number, or by distances in an order. A bound is a distance or has a kind."""

    by_rows: bool
    lower: Expression
    upper: Expression


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class WindowSpec(Expression):
    """What a function is over: a partition, its order, and a frame."""

    keys: Expressions
    order: tuple[SortTerm, ...]
    frame: WindowFrame


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class WindowCall(Expression):
    """A call of a function over a partition."""

    function: Expression
    over: WindowSpec


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Node:
    """A node of a plan, of a kind that has no class here. `kind` is the name of Spark's class.

    `output` are its columns, each by its name and Spark's number; `expressions` those that it has, in Spark's order.
    `streams`: rows may still come.
    """

    kind: str
    children: tuple["Node", ...] = ()
    output: tuple[tuple[str, int], ...] = ()
    streams: bool = False
    expressions: Expressions = ()
    from_jvm: Callable[[], Java] = field(default=_nowhere, repr=False)

    @property
    def java(self) -> Java:
        """The node in the JVM."""
        return self.from_jvm()

    @property
    def child(self) -> "Node":
        """The one node below."""
        [only] = self.children
        return only

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

    def parts(self) -> Iterator[Expression]:
        """Its expressions, and what they are made of."""
        for each in self.expressions:
            yield from each.parts()


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Projection(Node):
    """The rows with these columns."""

    columns: Expressions


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Filter(Node):
    """The rows for which the condition holds."""

    condition: Expression


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Join(Node):
    """Pairs of rows. `how` is the name of Spark's class; a condition of None holds for all."""

    how: str
    condition: Expression | None


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Aggregate(Node):
    """A row of these columns for each value of the keys."""

    keys: Expressions
    columns: Expressions


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Window(Node):
    """The rows with functions over partitions of them, by `keys`, in an order."""

    calls: Expressions
    keys: Expressions
    order: tuple[SortTerm, ...]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Expand(Node):
    """Several rows of each, one for each of the projections."""

    projections: tuple[Expressions, ...]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Generate(Node):
    """The rows that a generator makes of each, with the columns `made`; `outer`: one at least."""

    generator: Expression
    outer: bool
    made: Expressions


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Union(Node):
    """All rows of several nodes."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Deduplication(Node):
    """One row of each value of the keys."""

    keys: Expressions


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Sort(Node):
    """The rows in an order."""

    order: tuple[SortTerm, ...]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class GlobalLimit(Node):
    """So many rows of all."""

    count: Expression


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class LocalLimit(Node):
    """So many rows of each partition."""

    count: Expression


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Offset(Node):
    """The rows but so many first ones."""

    count: Expression


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class LocalRelation(Node):
    """So many rows that are in the plan, or no row."""

    rows: int | tuple[()]
