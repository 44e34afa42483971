"""What a DataFrame reads, and whether Spark would keep state for it, follows from nodes that no JVM has read."""

from types import SimpleNamespace
from typing import Any

import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.catalyst import query_plan
from dagster_ckpt.runtime.catalyst.query_plan import (
    Leaf,
    analysed_plan,
    leaves,
    needs_steps,
    refuse_stateful_steps,
    source_options,
)
from dagster_ckpt.runtime.catalyst.values import Java, Node

FRAME: Any = None


def relation(path: str = "in", kind: str = "StreamingRelation") -> Node:
    return Node(
        kind=kind,
        streams=True,
        from_jvm=lambda: Java(SimpleNamespace(equals=lambda other: path == other.path, path=path)),
    )


def above(kind: str, *below: Node, streams: bool = True) -> Node:
    return Node(kind=kind, children=below or (relation(),), streams=streams)


TABLE = above("LogicalRelation", Node(kind="Scan"), streams=False)


@pytest.mark.parametrize(
    ("plan", "needs"),
    [
        (above("Project"), False),
        (above("EventTimeWatermark"), False),
        (above("Aggregate"), True),
        (above("Project", above("Window")), True),
        (above("Join", relation(), relation("other")), True),
        (above("Join", relation(), TABLE), False),
        (above("Join", relation(), above("Aggregate", TABLE, streams=False)), False),
        (above("LogicalRDD"), True),
    ],
)
def test_what_keeps_state_needs_steps(monkeypatch: pytest.MonkeyPatch, plan: Node, *, needs: bool) -> None:
    monkeypatch.setattr(query_plan, "node_of", lambda _: plan)
    assert needs_steps(FRAME) is needs


def test_a_step_that_keeps_state_is_refused_with_what_to_use_instead() -> None:
    refuse_stateful_steps("a", above("Project", above("Filter")))
    with pytest.raises(InvalidPipelineError, match=r"asset=a, step=dropDuplicates.*instead=Stream\(df\)\.key_by"):
        refuse_stateful_steps("a", above("Project", above("Deduplicate")))
    with pytest.raises(InvalidPipelineError, match="step=a join of two streams"):
        refuse_stateful_steps("a", above("Join", relation(), relation("other")))


def test_equal_relations_share_one_source() -> None:
    plan = above("Union", relation("one"), above("Project", relation("two", "StreamingRelationV2")), relation("one"))
    assert [leaf.number for leaf in leaves(plan)] == [0, 1, 0]


def test_what_is_no_streaming_dataframe_has_no_plan() -> None:
    with pytest.raises(InvalidPipelineError, match=r"classic SparkSession.*found=builtins\.str"):
        analysed_plan("a", "SELECT 1")


class Entries:
    """A map of Scala's."""

    def __init__(self, **entries: str) -> None:
        self._entries = list(entries.items())

    def iterator(self) -> Any:
        return SimpleNamespace(hasNext=lambda: bool(self._entries), next=self._next)

    def _next(self) -> Any:
        name, value = self._entries.pop(0)
        return SimpleNamespace(_1=lambda: name, _2=lambda: value)


def test_the_options_of_a_folder() -> None:
    source = SimpleNamespace(
        className=lambda: "Parquet",
        sourceInfo=lambda: SimpleNamespace(name=lambda: "FileSource[s3://b/in]"),
        options=lambda: Entries(Path="s3://b/in", cleanSource="off"),
    )
    read = source_options(leaf_of("StreamingRelation", SimpleNamespace(dataSource=lambda: source)))
    assert (read.format, read.options) == ("parquet", {"path": "s3://b/in", "cleansource": "off"})
    assert read.reads_files


def test_the_options_of_a_table_of_a_catalog_have_its_name() -> None:
    relation = SimpleNamespace(
        sourceName=lambda: "Iceberg",
        extraOptions=lambda: {"Branch": "main"},
        identifier=lambda: SimpleNamespace(isDefined=lambda: True, get=lambda: "db.t"),
        catalog=lambda: SimpleNamespace(get=lambda: SimpleNamespace(name=lambda: "lake")),
    )
    read = source_options(leaf_of("StreamingRelationV2", relation))
    assert (read.format, read.options) == ("iceberg", {"branch": "main", "path": "lake.db.t"})
    assert not read.reads_files


def leaf_of(kind: str, java: object) -> Leaf:
    return Leaf(Node(kind=kind, streams=True, from_jvm=lambda: Java(java)), 0)
