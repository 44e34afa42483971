"""What a table reads, by the names in its query: other tables, views, sources, assets, tables of Spark's catalog."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import dagster as dg
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.errors import did_you_mean
from dagster_ckpt.integration.asset_options import Source
from dagster_ckpt.integration.declared.file_formats import NEED_SCHEMA, is_absolute
from dagster_ckpt.integration.sql.project import Project
from dagster_ckpt.integration.sql.reads import TableRead, find_reads
from dagster_ckpt.integration.sql.statements import SqlSourceView, SqlTable, SqlView, StatementKind
from dagster_ckpt.runtime.declared.sources import DeclaredSource, source


@dataclass(frozen=True, slots=True)
class Outside:
    """What SQL can read that is declared in Python: sources and inputs by name, streaming assets by their keys."""

    sources: Mapping[str, Source]
    ins: Mapping[str, dg.AssetIn]
    assets: Sequence[dg.AssetKey]


@dataclass(slots=True)
class Inputs:
    """What one table reads, itself and by its views.

    `tables` are the inputs of its asset, `catalog` the names of tables of Spark's catalog. A view comes after those
    that it reads. `streams` has where in the text of a query, by its table's or view's name, STREAM is.
    """

    tables: dict[str, dg.AssetIn] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    views: list[SqlView] = field(default_factory=list)
    catalog: list[tuple[str, ...]] = field(default_factory=list)
    streams: dict[str, list[tuple[int, int]]] = field(default_factory=dict)


def find_inputs(table: SqlTable, reads: Sequence[str] | None, project: Project, outside: Outside) -> Inputs:
    """What the table reads; `reads` has the names if they are not those of its text.

    Raises `InvalidPipelineError` for a name that nothing has, for views in a circle, and for a wrong STREAM.
    """
    search = _Search(table, project, outside)
    if reads is None:
        search.follow(table, find_reads(table.query, _views(project)), ())
    else:
        search.follow(
            table, [TableRead(tuple(name.split(".")), None, table.place) for name in reads], (), written=False
        )
    found = search.found
    if not found.tables and not found.sources:
        raise table.place.error(
            "the query reads no stream and no source, so nothing would ever change: read one, or make it an ordinary "
            "asset.",
            table=table.name,
        )
    return found


def _views(project: Project) -> set[str]:
    return {each.name.lower() for each in project.declared if isinstance(each, SqlView)}


class _Search:
    """The search for what one table reads."""

    def __init__(self, table: SqlTable, project: Project, outside: Outside) -> None:
        self._table, self._project, self._outside = table, project, outside
        self.found = Inputs()

    def follow(
        self, holder: SqlTable | SqlView, reads: Iterable[TableRead], above: Sequence[str], *, written: bool = True
    ) -> None:
        if holder.name in above:
            raise holder.place.error(
                "views read each other in a circle: break it.", circle=" -> ".join([*above, holder.name])
            )
        for read in reads:
            if len(read.parts) > 1:
                if read.parts not in self.found.catalog:
                    self.found.catalog.append(read.parts)
                continue
            if written:
                self._check_stream(holder, read)
            if read.stream is not None:
                self.found.streams.setdefault(holder.name, []).append(read.stream)
            self._add(read, [*above, holder.name])

    def _check_stream(self, holder: SqlTable | SqlView, read: TableRead) -> None:
        """As in Spark, STREAM takes rows as they come, and a materialized view is made of tables as they are now."""
        if self._table.kind is StatementKind.MATERIALIZED_VIEW and read.stream is not None:
            raise read.place.error(
                "a materialized view is made of tables as they are now: leave STREAM out, or write CREATE STREAMING "
                "TABLE for rows that only come.",
                view=self._table.name,
                reads=read.name,
            )
        if self._table.kind is StatementKind.STREAMING_TABLE and read.stream is None and holder is self._table:
            raise read.place.error(
                f"a streaming table takes rows as they come: write STREAM {read.name}, or CREATE MATERIALIZED VIEW for "
                "a table that is made of tables as they are now.",
                table=self._table.name,
                reads=read.name,
            )

    def _add(self, read: TableRead, above: Sequence[str]) -> None:
        found, outside = self.found, self._outside
        declared = self._project.find(read.name)
        if isinstance(declared, SqlView):
            if declared not in found.views:
                self.follow(declared, find_reads(declared.query, _views(self._project)), above)
                found.views.append(declared)
        elif isinstance(declared, SqlTable):
            if declared is self._table:
                raise read.place.error("a table cannot read itself.", table=declared.name)
            found.tables[declared.name] = dg.AssetIn(self._project.key(declared.name))
        elif isinstance(declared, SqlSourceView):
            found.sources[declared.name] = declared_source(declared)
        elif (name := _same(read.name, outside.sources)) is not None:
            found.sources[name] = outside.sources[name]
        elif (name := _same(read.name, outside.ins)) is not None:
            given = outside.ins[name]
            found.tables[name] = given if given.key is not None else _with_key(given, name)
        else:
            key = self._key_outside(read)
            found.tables[key.path[-1]] = dg.AssetIn(key)

    def _key_outside(self, read: TableRead) -> dg.AssetKey:
        """The key of the Python asset of this name."""
        assets = self._outside.assets
        keys = [key for key in assets if key.path[-1].casefold() == read.name.casefold()]
        if len(keys) > 1:
            raise read.place.error(
                "several assets have this name: say which by ins={name: dg.AssetIn(key)}.",
                name=read.name,
                keys=[key.to_user_string() for key in keys],
            )
        if not keys:
            names = [each.name for each in self._project.declared]
            names += [*self._outside.sources, *self._outside.ins, *(key.path[-1] for key in assets)]
            raise read.place.error(
                f"nothing of this name is declared.{did_you_mean(read.name, names)} Declare a source, name an asset "
                "by ins={name: dg.AssetIn(key)}, or write a table of Spark's catalog with its schema: "
                f"default.{read.name}.",
                name=read.name,
            )
        return keys[0]


def _same(name: str, given: Iterable[str]) -> str | None:
    return next((each for each in given if each.casefold() == name.casefold()), None)


def _with_key(given: dg.AssetIn, name: str) -> dg.AssetIn:
    """The input under its name: as a parameter of a function it would be called so."""
    prefix = [given.key_prefix] if isinstance(given.key_prefix, str) else list(given.key_prefix or ())
    return dg.AssetIn(dg.AssetKey([*prefix, name]), metadata=given.metadata, input_manager_key=given.input_manager_key)


def check_no_circle(reads: Mapping[str, Iterable[str]], tables: Sequence[SqlTable]) -> None:
    """Raise `InvalidPipelineError` for tables that read each other. `reads` has the tables that each one reads."""
    left = {table.name: {*reads[table.name]} for table in tables}
    while free := [name for name, of in left.items() if not of & left.keys()]:
        for name in free:
            del left[name]
    if left:
        first = next(table for table in tables if table.name in left)
        raise first.place.error("tables read each other in a circle: break it.", tables=sorted(left))


_VARIABLE = re.compile(r"\$\{env:([^}]+)\}")
"""As Spark writes an environment variable in SQL."""


def declared_source(view: SqlSourceView) -> DeclaredSource:
    """The source, under the name of the view, for `run_batches` too. It is unbounded.

    Raises `InvalidPipelineError` for what Spark would refuse when the stream starts.
    """
    path = next((value for name, value in view.options.items() if name.lower() == "path"), None)
    if view.format.lower() in NEED_SCHEMA and not (path and view.schema):
        raise view.place.error(
            "files need columns and a path: CREATE TEMPORARY VIEW name (id BIGINT, ...) USING parquet OPTIONS "
            "(path '/data/orders').",
            source=view.name,
        )
    if path is not None and not is_absolute(path) and not _VARIABLE.match(path):
        raise view.place.error(
            "a relative path would depend on where a process was started: write it in full, as a URL, or from an "
            f"environment variable: '${{env:DATA}}/{path}'.",
            source=view.name,
            path=path,
        )

    def read(spark: SparkSession) -> DataFrame:
        options = {name: _with_variables(value, view) for name, value in view.options.items()}
        reader = spark.readStream.format(view.format).options(**options)
        if view.schema is not None:
            reader = reader.schema(view.schema)
        return reader.load()

    return source(view.name, read)


def _with_variables(text: str, view: SqlSourceView) -> str:
    """The text with environment variables in place of their names. They are read when the stream starts."""
    for name in _VARIABLE.findall(text):
        if name not in os.environ:
            raise view.place.error("this environment variable is not set: set it.", variable=name, source=view.name)
    return _VARIABLE.sub(lambda found: os.environ[found[1]], text)
