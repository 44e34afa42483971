"""`streaming_sql`: files of SQL become streaming assets, one for each table.

Nothing here loads sqlglot before it is called: Dagster's tools load all public names of a package.
"""

import hashlib
import inspect
import keyword
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import dagster as dg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructField

from dagster_ckpt.errors import InvalidPipelineError, naming
from dagster_ckpt.integration.asset import streaming_asset
from dagster_ckpt.integration.asset_options import SharedOptions, Source
from dagster_ckpt.integration.declared.parameters import is_static
from dagster_ckpt.integration.declared.streaming_function import Function
from dagster_ckpt.integration.sql.inputs import Inputs, Outside, check_no_circle, find_inputs
from dagster_ckpt.integration.sql.project import Project, read_files
from dagster_ckpt.integration.sql.properties import Properties, read_properties
from dagster_ckpt.integration.sql.reads import blank_out
from dagster_ckpt.integration.sql.sql_file import FileLine
from dagster_ckpt.integration.sql.statements import Query, SqlColumn, SqlSourceView, SqlTable, StatementKind
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.runtime.catalyst.refusals import RefusedAtError
from dagster_ckpt.runtime.declared.stream import Stream, rows_of
from dagster_ckpt.runtime.plans.compiler import stream_of_sql


def streaming_sql(
    sql: str | Path,
    *,
    sources: Mapping[str, Source] | None = None,
    assets: Sequence[dg.AssetsDefinition] = (),
    ins: Mapping[str, dg.AssetIn] | None = None,
    **options: Unpack[SharedOptions],
) -> list[dg.AssetsDefinition]:
    """Make streaming assets of SQL, one of each table that its statements create.

        streaming_sql(
            \"\"\"
            CREATE MATERIALIZED VIEW delay_by_carrier COMMENT 'How late each carrier leaves.'
            TBLPROPERTIES ('dagster_ckpt.mode' = 'continuous', 'dagster_ckpt.interval' = '10 seconds')
            AS SELECT carrier, count(*) AS flights, avg(dep_delay) AS mean_delay FROM departures GROUP BY carrier
            \"\"\",
            sources={"departures": departures},
        )

    `sql` is a folder of `.sql` files, one file, or a text. The statements are those of Spark's declarative pipelines:
    `CREATE MATERIALIZED VIEW` is a table as it is now, `CREATE STREAMING TABLE ... FROM STREAM ...` one whose rows only
    come. `CREATE TEMPORARY VIEW` names a query, or with `USING` a source. A query reads by name

    - tables, views and sources of the same files;
    - `sources`: what `source(...)` declares, or any function that makes of a Spark session a streaming DataFrame or the
      `Stream` of `changes_from`;
    - `ins`: assets by another name than theirs, of another code location, or ordinary ones, as for `@streaming_asset`;
    - `assets`: streaming assets in Python;
    - with a schema before the name, tables of Spark's catalog, which are as they were when the stream started.

    `options` are those of `@streaming_asset`, for all tables; a table's TBLPROPERTIES override them.

    Raises `InvalidPipelineError`, with file and line, for what cannot work. Needs sqlglot: `dagster-ckpt[sql]`.
    """
    try:
        import sqlglot  # noqa: F401
    except ModuleNotFoundError as error:
        raise InvalidPipelineError(
            "streams in SQL need sqlglot, where the code location is loaded: pip install 'dagster-ckpt[sql]'"
        ) from error
    from dagster_ckpt.integration.sql.streaming_sql import build_assets

    return build_assets(sql, sources or {}, ins or {}, [asset.key for asset in assets], options)


_MERGED = ("metadata", "tags", "run_tags")
"""Options by name, of which a table adds its own to those that all have."""


def build_assets(
    sql: str | Path,
    sources: Mapping[str, Source],
    ins: Mapping[str, dg.AssetIn],
    assets: Sequence[dg.AssetKey],
    options: SharedOptions,
) -> list[dg.AssetsDefinition]:
    """An asset of each table. Raises `InvalidPipelineError`, with file and line."""
    prefix = options.get("key_prefix")
    project = Project.of(read_files(sql), [prefix] if isinstance(prefix, str) else list(prefix or ()))
    outside = Outside(sources, ins, assets)
    _check_names(project, outside)
    read = {table.name: read_properties(table.properties) for table in project.tables}
    inputs = {table.name: find_inputs(table, read[table.name].reads, project, outside) for table in project.tables}
    check_no_circle({name: of.tables for name, of in inputs.items()}, project.tables)
    return [_asset(table, read[table.name], inputs[table.name], project, options) for table in project.tables]


def _check_names(project: Project, outside: Outside) -> None:
    """Raise `InvalidPipelineError` for a name that is declared here and there: which one is read would be unclear."""
    for name in outside.sources:
        declared = project.find(name)
        if declared is not None:
            raise declared.place.error("a source in Python has this name: give another.", name=declared.name)
        if project.key(name) in outside.assets:
            raise InvalidPipelineError(f"a source and an asset have the same name: rename one of them. name={name}")


def _asset(
    table: SqlTable, properties: Properties, inputs: Inputs, project: Project, shared: SharedOptions
) -> dg.AssetsDefinition:
    options: dict[str, Any] = {name: value for name, value in shared.items() if name != "key_prefix"}
    own = {**properties.options, "metadata": {**properties.metadata, **_metadata(table)}}
    for name, value in own.items():
        options[name] = {**(options.get(name) or {}), **value} if name in _MERGED else value
    if table.primary_key:
        if "primary_key" in options:
            raise table.place.error("the primary key is given twice: leave the property out.", table=table.name)
        options["primary_key"] = table.primary_key
    options.setdefault("code_version", _version(table, inputs, project))
    with naming(file=table.place.file, line=str(table.place.line)):
        try:
            return streaming_asset(
                key=project.key(table.name),
                description=table.comment,
                ins=asset_ins(inputs),
                deps=[dg.AssetKey(parts) for parts in inputs.catalog],
                sources=[_spec(name, project) for name in inputs.sources],
                **options,
            )(streaming_function(table, inputs))
        except dg.DagsterInvalidDefinitionError as error:
            raise InvalidPipelineError(f"Dagster refuses this asset. reason={error}, asset={table.name}") from error


def _version(table: SqlTable, inputs: Inputs, project: Project) -> str:
    """Another one where the query, a view in it or a source that is declared in SQL has changed."""
    sources = [
        (each.name, each.format, each.schema, sorted(each.options.items()))
        for each in project.sources
        if each.name in inputs.sources
    ]
    text = f"{SparkText.of(table, inputs).text}\n{sources}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _spec(name: str, project: Project) -> dg.AssetSpec:
    """A source as Dagster shows it: an external asset."""
    declared = project.find(name)
    format_ = declared.format.rpartition(".")[2] if isinstance(declared, SqlSourceView) else None
    return dg.AssetSpec(project.key(name), kinds=set() if format_ is None else {format_})


def _metadata(table: SqlTable) -> dict[str, Any]:
    """What Dagster shows of the table before it is made: its query, its columns, and where it is written."""
    metadata: dict[str, Any] = {"query": dg.MetadataValue.md(f"```sql\n{table.query.text}\n```")}
    if table.columns:
        columns = [dg.TableColumn(each.name, each.type.lower(), each.comment) for each in table.columns]
        metadata["dagster/column_schema"] = dg.TableSchema(columns)
    path = table.query.file.path
    if path is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dg.BetaWarning)
            reference = dg.LocalFileCodeReference(file_path=str(path), line_number=table.place.line, label=path.name)
            metadata["dagster/code_references"] = dg.CodeReferencesMetadataValue(code_references=[reference])
    return metadata


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
