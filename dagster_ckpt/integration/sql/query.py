"""The streaming function of a query: Spark parses and resolves the text, and its plan becomes the steps of a stream."""

import inspect
import keyword
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import dagster as dg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructField

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.integration.declared.parameters import is_static
from dagster_ckpt.integration.declared.streaming_function import Function
from dagster_ckpt.integration.sql.inputs import Inputs
from dagster_ckpt.integration.sql.reads import blank_out
from dagster_ckpt.integration.sql.sql_file import FileLine
from dagster_ckpt.integration.sql.statements import Query, SqlColumn, SqlTable, StatementKind
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.runtime.catalyst.refusals import RefusedAtError
from dagster_ckpt.runtime.declared.stream import Stream, rows_of
from dagster_ckpt.runtime.plans.compiler import stream_of_sql

_NO_NAMES = frozenset({"spark", "context", "config", "checkpoints", "state", "conf", "meta", "dict", "int", "str"})
_NO_NAMES_EITHER = frozenset({"float", "bool", "input", "output", "type", "arg_dict", "input_arg_dict", "result"})
"""What Dagster or a streaming asset reserves among the names of parameters."""


@dataclass(frozen=True, slots=True)
class SparkText:
    """The text that Spark is given: the views that the query reads, as a WITH before it, each on lines of its own.

    `parts` has the first line of each query in the text.
    """

    text: str
    parts: tuple[tuple[int, Query], ...]

    @classmethod
    def of(cls, table: SqlTable, inputs: Inputs) -> "SparkText":
        """Without STREAM in front of what is a stream anyway."""

        def plain(name: str, query: Query) -> str:
            return blank_out(query.text, inputs.streams.get(name, ()))

        lines: list[str] = []
        parts: list[tuple[int, Query]] = []
        for number, view in enumerate(inputs.views):
            lines.append(f"{'), ' if number else 'WITH '}`{view.name.replace('`', '``')}` AS (")
            parts.append((len(lines) + 1, view.query))
            lines += plain(view.name, view.query).split("\n")
        if inputs.views:
            lines.append(") (")
        parts.append((len(lines) + 1, table.query))
        lines += plain(table.name, table.query).split("\n")
        if inputs.views:
            lines.append(")")
        return cls("\n".join(lines), tuple(parts))

    def place(self, line: int) -> FileLine:
        """Where a line of the text is in its file."""
        first, query = next(((first, query) for first, query in reversed(self.parts) if first <= line), self.parts[0])
        return query.place_of_line(max(1, line - first + 1))


def parameter_names(tables: Sequence[str]) -> dict[str, str]:
    """For each table the name of the function's parameter: its own, where Python and Dagster allow that."""
    names: dict[str, str] = {}
    for number, table in enumerate(tables):
        fits = re.fullmatch(r"[A-Za-z_]\w*", table, re.ASCII) and not keyword.iskeyword(table)
        reserved = table in _NO_NAMES or table in _NO_NAMES_EITHER
        names[table] = table if fits and not reserved else f"table_{number}"
    return names


def streaming_function(table: SqlTable, inputs: Inputs) -> Function:
    """The function whose `Stream` is the table of the query. Its parameters are Spark and the tables that it reads."""
    text = SparkText.of(table, inputs)
    names = parameter_names([*inputs.tables])

    def stream(spark: SparkSession, **given: Stream | DataFrame) -> Stream:
        tables: dict[str, Stream | DataFrame] = {name: given[names[name]] for name in inputs.tables}
        tables |= {name: _read(name, source(spark), table.place) for name, source in inputs.sources.items()}
        with _errors_placed(text):
            made = stream_of_sql(spark, text.text, tables)
            rows = rows_of(made)
        _check_columns(table, [each for each in rows.frame.schema.fields if each.name != CHANGE_TYPE])
        if table.kind is StatementKind.STREAMING_TABLE and rows.updating:
            raise table.place.error(
                "rows of a streaming table only come, and this query changes or deletes rows that it gave before: "
                "write CREATE MATERIALIZED VIEW.",
                table=table.name,
            )
        return made

    annotations: dict[str, type] = {"spark": SparkSession}
    for name, given in inputs.tables.items():
        annotations[names[name]] = DataFrame if is_static(given) else Stream
    by_name = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(name, by_name, annotation=kind) for name, kind in annotations.items()]
    vars(stream)["__signature__"] = inspect.Signature(parameters)
    stream.__annotations__ = dict(annotations)
    stream.__name__ = stream.__qualname__ = table.name
    return stream


def asset_ins(inputs: Inputs) -> dict[str, dg.AssetIn]:
    """The inputs of the asset, by the names of its function's parameters."""
    names = parameter_names([*inputs.tables])
    return {names[name]: given for name, given in inputs.tables.items()}


def _read(name: str, made: object, place: FileLine) -> Stream | DataFrame:
    if isinstance(made, Stream) or (isinstance(made, DataFrame) and made.isStreaming):
        return made
    raise place.error(
        "a source gives a streaming DataFrame, as spark.readStream does, or the Stream of changes_from.",
        source=name,
        given=type(made).__name__,
    )


@contextmanager
def _errors_placed(text: SparkText) -> Iterator[None]:
    """Within it errors of the query have the file and the line."""
    first = text.parts[-1][1].place()
    try:
        yield
    except InvalidPipelineError as error:
        at, problem = (text.place(error.line), error.problem) if isinstance(error, RefusedAtError) else (first, error)
        # In its place, not caused by it: a reader of the innermost error alone, as Dagster is, must see all.
        raise InvalidPipelineError(f"{problem}, file={at.file}, line={at.line}") from error.__cause__


def _check_columns(table: SqlTable, found: Sequence[StructField]) -> None:
    """Raise `InvalidPipelineError` where the columns that a table declares are not those of its query."""
    if not table.columns:
        return
    declared, given = [each.name for each in table.columns], [each.name for each in found]
    if [name.casefold() for name in declared] != [name.casefold() for name in given]:
        raise table.place.error(
            "the columns of the table are not those of its query: name the same, in the same order.",
            table=table.name,
            declared=declared,
            query=given,
        )
    for column, field in zip(table.columns, found, strict=True):
        _check_type(table, column, field.dataType)


def _check_type(table: SqlTable, column: SqlColumn, given: DataType) -> None:
    declared = DataType.fromDDL(column.type)
    if declared.simpleString() != given.simpleString():
        raise table.place.error(
            "a column has another type in the query: CAST it there, or declare that type.",
            table=table.name,
            column=column.name,
            declared=declared.simpleString(),
            query=given.simpleString(),
        )
