"""A stream's table as Dagster metadata: its columns and where it is stored, under the labels that Dagster knows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import dagster as dg

from dagster_ckpt.integration.events.epoch_metadata import Metadata
from dagster_ckpt.operators.column_lineage import Work, columns_of_sources
from dagster_ckpt.protocol.manifest.manifest import Manifest, Pipeline
from dagster_ckpt.protocol.manifest.row_key import row_key
from dagster_ckpt.runtime.spark.arrow_schemas import to_spark_schema

COLUMN_SCHEMA = "dagster/column_schema"
PRIMARY_KEY = "primary key"
"""The constraint of a key column. If several columns have it, their values together are unique."""

COLUMNS_MAX = 100
"""Up to this many columns each event has schema and lineage, some 200 bytes a column each; else the result alone has.

Dagster's page shows the columns of the newest event, so each event needs them, and its database keeps them all.
"""


@dataclass(frozen=True, slots=True)
class TablePlace:
    """The address of what holds a table, and the table's name there; None where it has none or is unknown."""

    uri: str | None = None
    table_name: str | None = None

    def metadata(self) -> Metadata:
        """Under the labels that Dagster knows."""
        labels = {"dagster/uri": self.uri, "dagster/table_name": self.table_name}
        return {label: dg.MetadataValue.text(text) for label, text in labels.items() if text is not None}


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """What Dagster shows of one stream's table.

    `place` is the folder of the stream in its store, or the table that a delivery writes. `upstreams` has for each
    input of the stream the asset whose table it reads, None for any other input, and `work` what Spark does with the
    rows before each input of each step. `inputs` are the data versions of the ordinary assets that the stream joins,
    and what else is known of what it reads.
    `descriptions` are those of columns, by their names.
    """

    place: TablePlace = TablePlace()
    upstreams: tuple[dg.AssetKey | None, ...] = ()
    work: tuple[tuple[Work, ...], ...] = ()
    inputs: Metadata = field(default_factory=dict)
    descriptions: Mapping[str, str] = field(default_factory=dict)

    def of_event(self, manifest: Manifest) -> Metadata:
        """The metadata of an event while the stream runs."""
        narrow = len(manifest.pipeline.output) <= COLUMNS_MAX
        return self.of_result(manifest) if narrow else self._place()

    def of_result(self, manifest: Manifest) -> Metadata:
        """The metadata of the step's result."""
        pipeline = manifest.pipeline
        return {COLUMN_SCHEMA: column_schema(pipeline, self.descriptions), **self._lineage(pipeline), **self._place()}

    def _lineage(self, pipeline: Pipeline) -> Metadata:
        """Where the columns come from, as far as they come from other streams."""
        if not any(self.upstreams) or len(self.upstreams) != len(pipeline.source_inputs):
            return {}  # the second: another run, of other code, has opened the stream since this one closed it
        deps = {
            column: [
                dg.TableColumnDep(asset_key=key, column_name=name)
                for number, name in read
                if (key := self.upstreams[number]) is not None
            ]
            for column, read in columns_of_sources(pipeline, self.work).items()
        }
        known = {column: of_column for column, of_column in deps.items() if of_column}
        lineage = dg.TableColumnLineage(deps_by_column=known)
        return {"dagster/column_lineage": dg.MetadataValue.column_lineage(lineage)} if known else {}

    def _place(self) -> Metadata:
        return self.place.metadata() | self.inputs


COLUMNS_ALONE = TableMetadata()
"""The metadata of a table whose place is unknown."""


def column_descriptions(assets: dg.AssetsDefinition, key: dg.AssetKey) -> dict[str, str]:
    """The descriptions of columns that an asset's definition has. Events have them too: they replace its columns."""
    declared = assets.metadata_by_key.get(key, {}).get(COLUMN_SCHEMA)
    schema = declared.schema if isinstance(declared, dg.TableSchemaMetadataValue) else declared
    columns = schema.columns if isinstance(schema, dg.TableSchema) else []
    return {column.name: column.description for column in columns if column.description is not None}


def column_schema(pipeline: Pipeline, descriptions: Mapping[str, str] | None = None) -> dg.TableSchemaMetadataValue:
    """The columns of the stream's table, with Spark SQL's names of their types, and the columns of its key marked."""
    keys: tuple[str, ...] = ()
    if pipeline.delivers:
        keys = tuple(cast(Sequence[str], pipeline.parameters["key"]))
    elif not pipeline.appends:
        keys = row_key(pipeline) or ()
    columns = [
        dg.TableColumn(
            each.name,
            each.dataType.simpleString(),
            (descriptions or {}).get(each.name),
            constraints=dg.TableColumnConstraints(
                nullable=each.nullable,
                unique=keys == (each.name,),
                other=[PRIMARY_KEY] if each.name in keys else [],
            ),
        )
        for each in to_spark_schema(pipeline.output).fields
    ]
    return dg.MetadataValue.table_schema(dg.TableSchema(columns))
