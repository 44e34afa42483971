"""The analysed plan of the user's DataFrame: which sources it reads, and that no step of it keeps state."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame as AnyDataFrame
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.spark.jvm import java_class, java_frame, java_session

_COUNTS = "Stream(df).key_by(...).aggregate(...), or .window(...).aggregate(...) where df groups by a window"
_DEDUPLICATES = "Stream(df).key_by(...).deduplicate()"
_EXPIRES = 'Stream(df).with_watermark(...).key_by(...).deduplicate(expire_after="1 hour")'
_JOINS = "Stream(left).key_by(...).interval_join(Stream(right).key_by(...), ...), or join, instant_join, window_join"
_PROCESSES = "Stream(df).key_by(...).process(...)"
_NOTHING_YET = "nothing in this release"

_BETWEEN = "\x01"
"""Stands in no name and in no text of Spark's."""
_COLUMN = re.compile(r"(.*)#(\d+)[^#]*", re.DOTALL)
"""The text of a column: its name, its number, and a letter for some types."""

_CHECKS = "spark.sql.streaming.unsupportedOperationCheck"

_STATEFUL = {
    "Aggregate": ("groupBy().agg() or distinct()", _COUNTS),
    "Deduplicate": ("dropDuplicates() or distinct()", _DEDUPLICATES),
    "DeduplicateWithinWatermark": ("dropDuplicatesWithinWatermark()", _EXPIRES),
    "Distinct": ("distinct()", _DEDUPLICATES),
    "EventTimeWatermark": ("withWatermark()", 'Stream(df).with_watermark("column", "delay")'),
    "Except": ("exceptAll() or subtract()", _NOTHING_YET),
    "FlatMapGroupsInArrow": ("groupBy().applyInArrow()", _PROCESSES),
    "FlatMapGroupsInPandas": ("groupBy().applyInPandas()", _PROCESSES),
    "FlatMapGroupsInPandasWithState": ("applyInPandasWithState()", _PROCESSES),
    "FlatMapGroupsWithState": ("flatMapGroupsWithState()", _PROCESSES),
    "GlobalLimit": ("limit()", _NOTHING_YET),
    "Intersect": ("intersect()", _NOTHING_YET),
    "LocalLimit": ("limit()", _NOTHING_YET),
    "Offset": ("offset()", _NOTHING_YET),
    "Sort": ("orderBy()", "sorting the stream's table where it is read"),
    "TransformWithState": ("transformWithState()", _PROCESSES),
    "TransformWithStateInPySpark": ("transformWithState() or transformWithStateInPandas()", _PROCESSES),
    "Window": ("a function over(Window)", _COUNTS),
}
"""Spark's steps that keep state or need the whole stream, by the name of their plan node; and what to use instead."""


@dataclass(frozen=True)
class Leaf:
    """One streaming relation of the plan, in the order in which Spark writes their offsets.

    `number` is the folder below `sources/` in Spark's checkpoint. A relation that the plan uses twice is two leaves
    with one number.
    """

    relation: Any
    number: int


def analysed_plan(asset: str, frame: object) -> Any:
    """Spark's analysed plan of a DataFrame. Raises `InvalidPipelineError` for one that does not stream."""
    if not isinstance(frame, DataFrame):
        raise InvalidPipelineError(
            "Stream takes a DataFrame of a classic SparkSession, made from the `spark` that the asset's function gets. "
            f"asset={asset}, found={type(frame).__module__}.{type(frame).__name__}"
        )
    if not frame.isStreaming:
        raise InvalidPipelineError(
            f"the DataFrame does not stream: read it with spark.readStream, not spark.read. asset={asset}"
        )
    return plan_of(frame)


def plan_of(frame: AnyDataFrame) -> Any:
    """Spark's analysed plan of a DataFrame that is known to have one."""
    known = _plans.get(frame)
    if known is None:
        known = _plans[frame] = java_frame(frame).queryExecution().analyzed()
    return known


_plans: WeakKeyDictionary[AnyDataFrame, Any] = WeakKeyDictionary()
"""The plans of DataFrames that have been asked for theirs."""


def frame_of(session: SparkSession, plan: Any) -> DataFrame:
    """A DataFrame of a logical plan."""
    made = java_class(session, "org.apache.spark.sql.classic.Dataset").ofRows(java_session(session), plan)
    return DataFrame(made, session)


def needs_steps(frame: AnyDataFrame) -> bool:
    """Whether Spark would keep state for a streaming DataFrame, or it reads what stands for a stream.

    A watermark is no state.
    """
    found = [node for node in nodes(plan_of(frame)) if node.isStreaming()]
    stateful = (node for node in found if _stateful(node) is not None)
    return any(kind_of(node) != "EventTimeWatermark" for node in stateful) or any(
        kind_of(node) == "LogicalRDD" for node in found
    )


def refuse_stateful_steps(asset: str, plan: Any) -> None:
    """Raise `InvalidPipelineError` if a streaming step keeps state: our checkpoints would not hold it."""
    for node in nodes(plan):
        if not node.isStreaming():
            continue
        found = _stateful(node)
        if found is not None:
            _refuse(asset, *found)


def _stateful(node: Any) -> tuple[str, str] | None:
    """What a streaming node is that keeps state, and what to use instead; None: it keeps none."""
    name = kind_of(node)
    if name == "Join" and all(child.isStreaming() for child in each_of(node.children())):
        return "a join of two streams", _JOINS
    return _STATEFUL.get(name)


def check_streams(frame: AnyDataFrame) -> None:
    """Raise Spark's `AnalysisException` where it would refuse to start the DataFrame as a query in append mode.

    Not where the user has switched that check off.
    """
    session = frame.sparkSession
    if str(session.conf.get(_CHECKS, "true")).lower() == "false":
        return
    checker = java_class(session, "org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker")
    append = java_class(session, "org.apache.spark.sql.streaming.OutputMode").Append()
    checker.checkForStreaming(plan_of(frame), append)


def refuse_unknown_state(asset: str) -> None:
    """Raise for a stateful step that is missing from `_STATEFUL`, found by the state folder that Spark created."""
    _refuse(asset, "a step that keeps state", "one of Stream's own steps")


def leaves(plan: Any) -> tuple[Leaf, ...]:
    """The plan's streaming relations, each occurrence once, in the order of Spark's offset log."""
    found: list[Leaf] = []
    for node in nodes(plan):
        if not kind_of(node).startswith("StreamingRelation"):
            continue
        # As Spark does: equal relations share one source, and sources are numbered in order of first use.
        twins = [leaf.number for leaf in found if leaf.relation.equals(node)]
        number = twins[0] if twins else len({leaf.number for leaf in found})
        found.append(Leaf(node, number))
    return tuple(found)


def _refuse(asset: str, step: str, ours: str) -> None:
    raise InvalidPipelineError(
        "the DataFrame may use stateless steps only: Spark's own state is in no checkpoint of this stream and would be "
        f"lost with the first crash. asset={asset}, step={step}, instead={ours}"
    )


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


def is_leaf(node: Any) -> bool:
    """Whether nothing is below the node of a plan."""
    return bool(node.children().isEmpty())


def kind_of(node: Any) -> str:
    """The name of the class of a plan's node or an expression."""
    return str(node.productPrefix()) or str(node.getClass().getSimpleName()).rstrip("$")


def column_number(attribute: Any) -> int:
    """Spark's number of a column, or of what an alias names: one that goes on unchanged keeps it."""
    found = _COLUMN.fullmatch(str(attribute.toString()))  # one call; to ask for the number itself takes three
    assert found is not None, "it has a name and a number"
    return int(found[2])
