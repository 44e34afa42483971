"""Nodes of a query that cannot be kept up to date, and what to write in their place."""

from collections.abc import Mapping

from dagster_ckpt.errors import InvalidPipelineError

_PER_GROUP = "use aggregates, or a process function of a Stream"
_PER_BATCH = "use a function of columns, such as a UDF, or Stream.transform"
_INSTEAD: Mapping[str, str] = {
    "Sample": "filter by a hash of columns, such as xxhash64(id) % 10 = 0",
    "Offset": "say how many rows, by ORDER BY ... LIMIT n OFFSET m",
    "Tail": "use ORDER BY ... DESC LIMIT n",
    **dict.fromkeys(("MapInPandas", "MapInArrow", "MapPartitions", "MapElements", "TypedFilter"), _PER_BATCH),
    **dict.fromkeys(
        (
            "FlatMapGroupsInPandas",
            "FlatMapGroupsInArrow",
            "FlatMapCoGroupsInPandas",
            "FlatMapCoGroupsInArrow",
            "FlatMapGroupsInPandasWithState",
            "FlatMapGroupsWithState",
            "MapGroups",
            "TransformWithState",
            "TransformWithStateInPySpark",
        ),
        _PER_GROUP,
    ),
}
"""By the name of the node's class."""
_ELSE = "write it with joins, aggregates and windows"


def refused(kind: str, name: str) -> InvalidPipelineError:
    """The error about a node of this class, which Spark calls by this name."""
    return InvalidPipelineError(
        f"this part of the query cannot be kept up to date: {_INSTEAD.get(kind, _ELSE)}. found={name}"
    )
