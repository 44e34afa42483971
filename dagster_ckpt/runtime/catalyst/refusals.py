"""Nodes of a query that cannot be kept up to date, and what to write in their place."""

import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger

from dagster_ckpt.errors import InvalidPipelineError, did_you_mean
from dagster_ckpt.runtime.catalyst.catalyst import Catalyst
from dagster_ckpt.runtime.catalyst.values import Expression, Java, Node
from dagster_ckpt.runtime.catalyst.work_text import is_cut

_LINE = re.compile(r"\(?line (\d+),? pos (\d+)\)?")
_NO_TABLE = "TABLE_OR_VIEW_NOT_FOUND"
_PER_GROUP = "use aggregates, or a process function of a Stream"
_PER_BATCH = "use a function of columns, such as a UDF, or Stream.transform"
_INSTEAD: Mapping[str, str] = {
    "Sample": "filter by a hash of columns, such as xxhash64(id) % 10 = 0",
    "Offset": "say how many rows, by ORDER BY ... LIMIT n OFFSET m",
    "UnionLoop": "write a join for each level, as many as there are",
    "CollectMetrics": "leave observe out: each epoch's event has its rows and times",
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


def refusal(kind: str, name: str) -> InvalidPipelineError:
    """The error about a node of this class, which Spark calls by this name."""
    return InvalidPipelineError(
        f"this part of the query cannot be kept up to date: {_INSTEAD.get(kind, _ELSE)}. found={name}"
    )


class RefusedAtError(InvalidPipelineError):
    """A part of a query is refused that is in this line of its text. `problem` is the error without the line."""

    def __init__(self, problem: str, line: int) -> None:
        super().__init__(f"{problem}, line={line}")
        self.problem, self.line = problem, line


@contextmanager
def query_errors(tables: Callable[[], Iterable[str]]) -> Iterator[None]:
    """Within it what Spark says against the text of a query is an `InvalidPipelineError`, with its line.

    `tables` gives the names that the text may have meant.
    """
    logger, here = PySparkLogger.getLogger("SQLQueryContextLogger"), threading.get_ident()

    def is_of_another_thread(record: logging.LogRecord) -> bool:
        return record.thread != here

    logger.addFilter(is_of_another_thread)  # PySpark logs each error with its trace, handled or not
    try:
        yield
    except AnalysisException as error:
        raise _query_error(error, tables) from None  # its cause would be shown with Spark's whole plan
    finally:
        logger.removeFilter(is_of_another_thread)


def _query_error(error: AnalysisException, tables: Callable[[], Iterable[str]]) -> InvalidPipelineError:
    whole = str(error)
    reason = " ".join(_LINE.sub("", whole.strip().split("\n\n")[0].split(";\n")[0]).split()).rstrip("; ")
    near = ""
    if error.getCondition() == _NO_TABLE:
        name = (error.getMessageParameters() or {}).get("relationName", "").replace("`", "")
        near = did_you_mean(name, tables())
    found = _LINE.search(whole)
    problem = f"Spark cannot read this query.{near} reason={reason}"
    return InvalidPipelineError(problem) if found is None else RefusedAtError(problem, int(found[1]))


@contextmanager
def naming_columns(catalyst: Catalyst, names: Iterable[str], expressions: Iterable[Java]) -> Iterator[None]:
    """Within it an `InvalidPipelineError` about a column between steps whose name is cut says what the query has."""
    try:
        yield
    except RefusedAtError:
        raise
    except InvalidPipelineError as error:
        cut = ((name, each) for name, each in zip(names, expressions, strict=False) if is_cut(name))
        more = "".join(f", {name}={catalyst.sql_of(each)}" for name, each in cut if name in str(error))
        raise InvalidPipelineError(f"{error}{more}").with_traceback(error.__traceback__) from error.__cause__


@contextmanager
def naming_line(catalyst: Catalyst, part: Node | Expression | Java) -> Iterator[None]:
    """Within it an `InvalidPipelineError` says in which line of the query this part of it is, where Spark knows."""
    try:
        yield
    except RefusedAtError:
        raise
    except InvalidPipelineError as error:
        line = catalyst.line_of(part)
        if line is None:
            raise
        raise RefusedAtError(str(error), line).with_traceback(error.__traceback__) from error.__cause__
