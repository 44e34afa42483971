"""A stream's table as Dagster shows it."""

from dataclasses import replace

import dagster as dg
import pyarrow as pa

from dagster_ckpt.integration.events.table_metadata import (
    COLUMNS_MAX,
    TableMetadata,
    TablePlace,
    column_descriptions,
    column_schema,
)
from dagster_ckpt.operators import RunningAggregate, agg
from dagster_ckpt.protocol.manifest.manifest import InputSpec, StateTableSpec
from tests.worlds.manifests import PIPELINE, a_manifest

DELAYS = pa.schema(
    [
        pa.field("carrier", pa.string()),
        pa.field("day", pa.date32()),
        pa.field("flights", pa.int64(), nullable=False),
        pa.field("fares", pa.list_(pa.decimal128(10, 2))),
        pa.field("at", pa.timestamp("us", "UTC")),
    ]
)


def test_columns_have_the_types_that_readers_see_and_the_key_is_marked() -> None:
    table = StateTableSpec("groups", DELAYS, ("carrier", "day"))
    columns = column_schema(replace(PIPELINE, output=DELAYS, tables=(table,))).schema.columns
    assert {column.name: column.type for column in columns} == {
        "carrier": "string",
        "day": "date",
        "flights": "bigint",
        "fares": "array<decimal(10,2)>",
        "at": "timestamp",
    }
    assert {column.name: column.constraints.other for column in columns if column.constraints.other} == {
        "carrier": ["primary key"],
        "day": ["primary key"],
    }
    assert [column.name for column in columns if not column.constraints.nullable] == ["flights"]
    assert not any(column.constraints.unique for column in columns), "only both together are unique"


def test_a_key_of_one_column_is_unique_and_an_append_only_table_has_no_key() -> None:
    [carrier, delay] = column_schema(PIPELINE).schema.columns
    assert (carrier.constraints.unique, delay.constraints.unique) == (True, False)
    appends = replace(PIPELINE, operator="append", keys=(), tables=(), appends=True)
    assert [column.constraints for column in column_schema(appends).schema.columns] == [dg.TableColumnConstraints()] * 2


def test_descriptions_of_columns_are_on_events_too() -> None:
    columns = [dg.TableColumn("carrier", description="Who flies."), dg.TableColumn("other")]

    @dg.asset(metadata={"dagster/column_schema": dg.TableSchema(columns)})
    def delays() -> None: ...

    descriptions = column_descriptions(delays, delays.key)
    assert descriptions == {"carrier": "Who flies."}
    [schema] = [
        each
        for each in TableMetadata(descriptions=descriptions).of_event(a_manifest()).values()
        if isinstance(each, dg.TableSchemaMetadataValue)
    ]
    assert [column.description for column in schema.schema.columns] == ["Who flies.", None]
    assert column_descriptions(delays, dg.AssetKey("other")) == {}


def test_the_schema_of_a_wide_table_is_on_the_result_of_the_step_alone() -> None:
    shown = TableMetadata(TablePlace("file:///store/delays"))
    for columns, on_events in ((COLUMNS_MAX, True), (COLUMNS_MAX + 1, False)):
        output = pa.schema([("carrier", pa.string()), *((f"c{number}", pa.int64()) for number in range(columns - 1))])
        manifest = a_manifest(pipeline=replace(PIPELINE, output=output))
        assert ("dagster/column_schema" in shown.of_event(manifest)) is on_events
        assert "dagster/column_schema" in shown.of_result(manifest)
        assert shown.of_event(manifest)["dagster/uri"].value == "file:///store/delays"


def test_a_column_has_the_columns_of_upstream_streams_that_it_is_made_from() -> None:
    upstream = pa.schema([("carrier", pa.string()), ("day", pa.date32()), ("delay", pa.int64())])
    aggregates = {"flights": agg.count(), "mean_delay": agg.avg("delay"), "first_day": agg.min("day")}
    operator = RunningAggregate.build(("carrier",), aggregates, InputSpec((), upstream), None, None)
    manifest, delays = a_manifest(pipeline=operator.pipeline), dg.AssetKey(["eu", "delays"])
    of_delays = TableMetadata(upstreams=(delays,), work=((None,),))
    shown = of_delays.of_event(manifest)["dagster/column_lineage"]
    assert isinstance(shown, dg.TableColumnLineageMetadataValue)
    assert shown.column_lineage.deps_by_column == {
        "carrier": [dg.TableColumnDep(asset_key=delays, column_name="carrier")],
        "mean_delay": [dg.TableColumnDep(asset_key=delays, column_name="delay")],
        "first_day": [dg.TableColumnDep(asset_key=delays, column_name="day")],
    }
    assert "dagster/column_lineage" not in TableMetadata(upstreams=(None,), work=((None,),)).of_event(manifest)
    later = replace(manifest.pipeline, inputs=(InputSpec((), upstream, step=0),), before=(manifest.pipeline,))
    of_several_steps = a_manifest(pipeline=later)
    assert "dagster/column_lineage" not in of_delays.of_event(of_several_steps), "the work of other steps"
    between = {"carrier": ("carrier",), "delay": ("mean_delay",)}
    shown = replace(of_delays, work=((None,), (between,))).of_event(of_several_steps)["dagster/column_lineage"]
    assert isinstance(shown, dg.TableColumnLineageMetadataValue)
    assert shown.column_lineage.deps_by_column == {
        "carrier": [dg.TableColumnDep(asset_key=delays, column_name="carrier")],
        "mean_delay": [dg.TableColumnDep(asset_key=delays, column_name="delay")],
    }
    of_other_code = TableMetadata(upstreams=(delays, delays), work=((None, None),))
    assert "dagster/column_lineage" not in of_other_code.of_result(manifest)
