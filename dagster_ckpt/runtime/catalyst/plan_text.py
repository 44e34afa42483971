"""Texts of Spark's plans that are the same in every process.

Spark numbers all columns, variables and calls that a process plans, and draws a seed for each call of chance. Its texts
have both: the same query has others when another one was planned before it, or in another process.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from py4j.java_gateway import is_instance_of
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.runtime.catalyst.trees import each_of, has_pattern, kind_of, nodes, plan_of, tree_pattern
from dagster_ckpt.runtime.catalyst.values import Expression
from dagster_ckpt.runtime.spark.jvm import java_class, scala_map

_NUMBER = re.compile(r"#(\d+)")
_AFTER = re.compile(r"^L?(?:-T\d+ms)?")
"""After the number of a BIGINT, and that of a column with a watermark: its delay, on which no state depends."""
_VARIABLE = re.compile(r"\blambda \w+$")
"""How a lambda's variable ends a text. Python's have names with numbers of their own."""
_EXISTENCE = re.compile(r"(Join ExistenceJoin\([^#]*#)\d+")
_MARKS = "'!~ "
"""Before a node they say that Spark has not resolved it, finds a column missing, or that it streams."""
_FIELDS_MAX = 100_000
"""Spark shortens lists of more items in its texts."""
_ITEMS_MAX = "spark.sql.debug.maxToStringFields"
_CATALYST = "org.apache.spark.sql.catalyst"
_SEEDED = f"{_CATALYST}.expressions.ExpressionWithRandomSeed"
_UDF = "PYTHON_UDF"
_SEED = "EXPRESSION_WITH_RANDOM_SEED"
"""Patterns of Spark's trees."""

PYTHON_FUNCTIONS = ("PythonUDF", "PythonUDAF", "PythonUDTF")
"""Expressions that call one."""

Pieces = list[tuple[str, int | None]]
"""A text, cut after each number that Spark gave: what stands before the `#`, and the number, or None."""


def without_seeds(session: SparkSession, plan: Any) -> Any:
    """The plan, with its subqueries, in which each seed of chance is 0."""
    found = [
        each for each in _expressions_with(session, plan, _SEED) if is_instance_of(_gateway(session), each, _SEEDED)
    ]
    if not found:
        return plan
    unseeded = scala_map(session, [(each, each.withNewSeed(0)) for each in found])
    return plan.transformAllExpressionsWithSubqueries(unseeded)


def sql_of(session: SparkSession, expression: Expression) -> str:
    """The SQL of an expression that a node has, the same in every process.

    It has `_1`... in place of its lambdas' variables, whose texts in SQL are all the same.
    """
    variables = [part for part in expression.parts() if part.kind == "NamedLambdaVariable"]
    if not variables:
        return expression.sql
    places: dict[int | None, int] = {}
    named = []
    for each in variables:
        own: Any = each.java
        named.append((own, own.toAttribute().withName(f"_{places.setdefault(each.number, len(places) + 1)}")))
    whole: Any = expression.java
    return str(whole.transform(scala_map(session, named)).sql())


@contextmanager
def whole_texts(session: SparkSession) -> Iterator[None]:
    """Within it, while the session is active, Spark's texts of expressions have all that these are made of."""
    before = session.conf.get(_ITEMS_MAX)
    session.conf.set(_ITEMS_MAX, str(_FIELDS_MAX))
    try:
        yield
    finally:
        session.conf.set(_ITEMS_MAX, str(before))


def python_functions(frame: DataFrame) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """The calls of Python functions in a DataFrame's plan and its subqueries: the name, and what loads the pickle."""
    session, plan = frame.sparkSession, plan_of(frame)
    found = [each for each in _expressions_with(session, plan, _UDF) if kind_of(each) in PYTHON_FUNCTIONS]
    if has_pattern(session, plan, "GENERATE"):
        generators = (node.generator() for node in nodes(plan) if kind_of(node) == "Generate")
        found += [each for each in generators if kind_of(each) == "PythonUDTF"]
    for call in found:
        yield str(call.name()), partial(_pickled_function, session, call)


def _pickled_function(session: SparkSession, call: Any) -> bytes:
    to_bytes = getattr(java_class(session, "scala.reflect.ClassTag$"), "MODULE$").Byte()
    return bytes(call.func().command().toArray(to_bytes))


def _expressions_with(session: SparkSession, plan: Any, pattern: str) -> Iterator[Any]:
    """The expressions of a plan and its subqueries that have, or are above what has, a pattern of Spark's trees."""
    if not has_pattern(session, plan, pattern):
        return
    wanted = tree_pattern(session, pattern)

    def within(expression: Any) -> Iterator[Any]:
        if expression.containsPattern(wanted):
            yield expression
            for child in each_of(expression.children()):
                yield from within(child)

    for node in nodes(plan):
        for each in each_of(node.expressions()):
            yield from within(each)
        for subquery in each_of(node.subqueries()):
            yield from _expressions_with(session, subquery, pattern)


def _gateway(session: SparkSession) -> Any:
    context: Any = session.sparkContext
    return context._gateway  # noqa: SLF001  (Spark exposes it nowhere else)


def call_number(call: Any) -> int:
    """Spark's number of a call of a Python function."""
    return int(call.resultId().id())


def shown_type(expression: Any) -> str:
    """The type of an expression as Spark's texts have it."""
    return str(expression.dataType().simpleString())


def node_line(node: Any, without: Any, names: dict[int, str]) -> Pieces:
    """The line of a node in the text of its plan; `without` is the same node without Spark's numbers."""
    own, other = (str(each.simpleString(_FIELDS_MAX)).lstrip(_MARKS) for each in (node, without))
    other = _EXISTENCE.sub(r"\g<1>0", other)
    if own.startswith("Generate ") and kind_of(node.generator()) == "PythonUDTF":
        other = other.replace(f")#{call_number(node.generator())}", ")#0")
    return in_pieces(own, other, names)


def in_pieces(text: str, without: str, names: dict[int, str]) -> Pieces:
    """The text, cut after its numbers; `without` is the same text without Spark's numbers, `names` those of columns.

    The number 0, which is that of the first column in a process, is known by the column's name.
    """
    found = _NUMBER.split(text)
    pieces, before = Pieces(), ""
    pairs = zip(found[::2], [*found[1::2], ""], [*_NUMBER.split(without)[1::2], ""], strict=True)
    for part, number, other in pairs:
        before += part
        if number != other or (number == "0" and before.endswith(names.get(0, "\0"))):
            pieces.append((before, int(number)))
            before = ""
        elif number:
            before += f"#{number}"
    return [*pieces, (before, None)]


@dataclass
class Labels:
    """What a text has in place of Spark's numbers, and of the names before them.

    `names` are those of columns, by number. `given` has labels; all else is numbered by its place in the text. `types`
    are those of calls of Python functions, which have no label.
    """

    types: dict[int, str]
    names: dict[int, str] = field(default_factory=dict)
    given: dict[int, str] = field(default_factory=dict)

    def text(self, pieces: Pieces) -> str:
        """The text with labels."""
        return "".join(self._label(pieces, dict(self.given)))

    def _label(self, pieces: Pieces, labels: dict[int, str]) -> Iterator[str]:
        follows = False
        for text, number in pieces:
            before = _AFTER.sub("", text) if follows else text
            follows = number is not None
            if number is None:
                yield before
            elif number in self.types:
                yield f"{before}: {self.types[number]}"
            else:
                yield self._without_name(before, number)
                yield labels.setdefault(number, f"_{len(labels) - len(self.given) + 1}")

    def _without_name(self, before: str, number: int) -> str:
        name = self.names.get(number)
        if name is not None and before.endswith(name):
            return before.removesuffix(name)
        return _VARIABLE.sub("lambda ", before)
