"""Trees of Spark's planner, asked in the JVM: the plans of DataFrames, their nodes, sequences and columns."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame as AnyDataFrame
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame

from dagster_ckpt.runtime.catalyst.values import Java
from dagster_ckpt.runtime.spark.jvm import java_class, java_frame, java_session

_BETWEEN = "\x01"
"""Stands in no name and in no text of Spark's."""
_COLUMN = re.compile(r"(.*)#(\d+)[^#]*", re.DOTALL)
"""The text of a column: its name, its number, and a letter for some types."""


def plan_of(frame: AnyDataFrame) -> Java:
    """Spark's analysed plan of a DataFrame that is known to have one."""
    known = _plans.get(frame)
    if known is None:
        known = _plans[frame] = java_frame(frame).queryExecution().analyzed()
    return known


_plans: WeakKeyDictionary[AnyDataFrame, Java] = WeakKeyDictionary()
"""The plans of DataFrames that have been asked for theirs."""


def frame_of(session: SparkSession, plan: Any) -> DataFrame:
    """A DataFrame of a logical plan."""
    made = java_class(session, "org.apache.spark.sql.classic.Dataset").ofRows(java_session(session), plan)
    return DataFrame(made, session)


def nodes(tree: Any) -> Iterator[Any]:
    """The nodes of a plan or an expression, each before those below it."""
    yield tree
    for child in each_of(tree.children()):
        yield from nodes(child)


def each_of(items: Any) -> Iterator[Any]:
    """The items of a sequence in the JVM. Each is a call to it, and planning is a matter of how many there are."""
    for place in range(items.size()):
        yield items.apply(place)


def texts_of(items: Any) -> list[str]:
    """The texts of the items of a sequence in the JVM, in one call."""
    text = str(items.mkString(_BETWEEN))
    return text.split(_BETWEEN) if text else []


def output_of(plan: Java) -> list[Java]:
    """The columns of a plan."""
    own: Any = plan
    return list(each_of(own.output()))


def columns_of_frame(frame: AnyDataFrame) -> list[tuple[str, int]]:
    """The names of a DataFrame's columns, and Spark's numbers of them: a column that goes on unchanged keeps it."""
    plan: Any = plan_of(frame)
    return columns_of(plan.output())


def columns_of(attributes: Any) -> list[tuple[str, int]]:
    """The names of columns, a sequence in the JVM, and Spark's numbers of them, in one call."""
    found = (_COLUMN.fullmatch(text) for text in texts_of(attributes))
    return [(each[1], int(each[2])) for each in found if each is not None]


def are_same(one: Any, other: Any) -> bool:
    """Whether two plans are one, with the same columns."""
    return bool(one.fastEquals(other))


def give_same_rows(one: Any, other: Any) -> bool:
    """Whether two plans have the same rows, whatever Spark's numbers of their columns are."""
    return bool(one.sameResult(other))


def has_pattern(session: SparkSession, plan: Any, pattern: str) -> bool:
    """Whether a plan, with its subqueries, has a node or an expression of this kind of Spark's `TreePattern`."""
    return bool(plan.containsPattern(tree_pattern(session, pattern)))


def tree_pattern(session: SparkSession, name: str) -> Any:
    """A value of Spark's `TreePattern`, which is looked up once in a JVM."""
    jvm: Any = session._jvm  # noqa: SLF001  (Spark exposes it nowhere else)
    return _tree_pattern(jvm, name)


@lru_cache(maxsize=32)
def _tree_pattern(jvm: Any, name: str) -> Any:
    return getattr(getattr(jvm, "org.apache.spark.sql.catalyst.trees.TreePattern"), name)()


def kind_of(node: Any) -> str:
    """The name of the class of a plan's node or an expression."""
    return str(node.productPrefix()) or str(node.getClass().getSimpleName()).rstrip("$")


def column_number(attribute: Any) -> int:
    """Spark's number of a column, or of what an alias names: one that goes on unchanged keeps it."""
    found = _COLUMN.fullmatch(str(attribute.toString()))  # one call; to ask for the number itself takes three
    assert found is not None, "it has a name and a number"
    return int(found[2])


def with_subqueries(plan: Any) -> Iterator[Any]:
    """The nodes of a plan, and those of its subqueries."""
    for node in nodes(plan):
        yield node
        for each in each_of(node.subqueries()):
            yield from with_subqueries(each)
