"""The analysed plan of the user's DataFrame: which sources it reads, and that no step of it keeps state."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame as AnyDataFrame
from pyspark.sql.classic.dataframe import DataFrame

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.catalyst.reader import read
from dagster_ckpt.runtime.catalyst.trees import plan_of
from dagster_ckpt.runtime.catalyst.values import Node
from dagster_ckpt.runtime.spark.jvm import java_class

_COUNTS = "Stream(df).key_by(...).aggregate(...), or .window(...).aggregate(...) where df groups by a window"
_DEDUPLICATES = "Stream(df).key_by(...).deduplicate()"
_EXPIRES = 'Stream(df).with_watermark(...).key_by(...).deduplicate(expire_after="1 hour")'
_JOINS = "Stream(left).key_by(...).interval_join(Stream(right).key_by(...), ...), or join, instant_join, window_join"
_PROCESSES = "Stream(df).key_by(...).process(...)"
_NOTHING_YET = "nothing in this release"

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

    relation: Node
    number: int


@dataclass(frozen=True)
class SourceOptions:
    """What a streaming relation reads: its format, and the options that it was given, by their names in small letters.

    `reads_files`: Spark keeps its positions as the files that it has seen.
    """

    format: str
    options: Mapping[str, str]
    reads_files: bool


def analysed_plan(asset: str, frame: object) -> Node:
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
    return node_of(frame)


def node_of(frame: AnyDataFrame) -> Node:
    """The analysed plan of a DataFrame that is known to have one, as values."""
    return read(frame.sparkSession, plan_of(frame))


def needs_steps(frame: AnyDataFrame) -> bool:
    """Whether Spark would keep state for a streaming DataFrame, or it reads what stands for a stream.

    A watermark is no state.
    """
    found = [node for node in node_of(frame).nodes() if node.streams]
    return any(
        node.kind == "LogicalRDD" or (node.kind != "EventTimeWatermark" and _stateful(node) is not None)
        for node in found
    )


def refuse_stateful_steps(asset: str, plan: Node) -> None:
    """Raise `InvalidPipelineError` if a streaming step keeps state: our checkpoints would not hold it."""
    for node in plan.nodes():
        found = _stateful(node) if node.streams else None
        if found is not None:
            _refuse(asset, *found)


def _stateful(node: Node) -> tuple[str, str] | None:
    """What a streaming node is that keeps state, and what to use instead; None: it keeps none."""
    if node.kind == "Join" and all(child.streams for child in node.children):
        return "a join of two streams", _JOINS
    return _STATEFUL.get(node.kind)


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


def leaves(plan: Node) -> tuple[Leaf, ...]:
    """The plan's streaming relations, each occurrence once, in the order of Spark's offset log."""
    found: list[Leaf] = []
    for node in plan.nodes():
        if not node.kind.startswith("StreamingRelation"):
            continue
        # As Spark does: equal relations share one source, and sources are numbered in order of first use.
        own: Any = node.java
        twins = [leaf.number for leaf in found if own.equals(leaf.relation.java)]
        number = twins[0] if twins else len({leaf.number for leaf in found})
        found.append(Leaf(node, number))
    return tuple(found)


def source_options(leaf: Leaf) -> SourceOptions:
    """What a streaming relation was told to read."""
    relation: Any = leaf.relation.java
    if leaf.relation.kind == "StreamingRelation":
        source = relation.dataSource()
        reads_files = str(source.sourceInfo().name()).startswith("FileSource[")
        return SourceOptions(str(source.className()).lower(), _options(source.options()), reads_files)
    options = {str(key).lower(): str(value) for key, value in relation.extraOptions().items()}
    if relation.identifier().isDefined():
        options["path"] = f"{relation.catalog().get().name()}.{relation.identifier().get()}"
    return SourceOptions(str(relation.sourceName()).lower(), options, reads_files=False)


def _options(options: Any) -> Mapping[str, str]:
    """A map of Scala's."""
    found = {}
    entries = options.iterator()
    while entries.hasNext():
        entry = entries.next()
        found[str(entry._1()).lower()] = str(entry._2())  # noqa: SLF001  (a Scala pair's names)
    return found


def _refuse(asset: str, step: str, ours: str) -> None:
    raise InvalidPipelineError(
        "the DataFrame may use stateless steps only: Spark's own state is in no checkpoint of this stream and would be "
        f"lost with the first crash. asset={asset}, step={step}, instead={ours}"
    )
