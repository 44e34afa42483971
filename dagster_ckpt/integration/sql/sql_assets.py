"""Files of SQL as assets: what `streaming_sql` does."""

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from dagster_ckpt.errors import InvalidPipelineError, naming
from dagster_ckpt.integration.asset import streaming_asset
from dagster_ckpt.integration.asset_options import SharedOptions, Source
from dagster_ckpt.integration.sql.inputs import Inputs, Outside, check_no_circle, find_inputs
from dagster_ckpt.integration.sql.project import Project, read_files
from dagster_ckpt.integration.sql.properties import Properties, read_properties
from dagster_ckpt.integration.sql.query import SparkText, asset_ins, streaming_function
from dagster_ckpt.integration.sql.statements import SqlSourceView, SqlTable

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
