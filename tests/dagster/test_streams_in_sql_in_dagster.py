"""A folder of SQL as assets of Dagster: what runs, what is committed, what Dagster shows."""

import dagster as dg

from dagster_ckpt import CheckpointCoordinatorResource, build_streaming_definitions, streaming_sql
from tests.dagster.place import Place

FILES = {
    "inbox.sql": """
        CREATE TEMPORARY VIEW inbox (k STRING, v BIGINT) USING parquet OPTIONS (path '{inbox}', maxFilesPerTrigger 1);
        CREATE STREAMING TABLE large AS SELECT * FROM STREAM inbox WHERE v > 100;
    """,
    "totals.sql": """
        CREATE MATERIALIZED VIEW totals (k STRING COMMENT 'Whose it is.', total BIGINT) COMMENT 'The sum of each.'
        TBLPROPERTIES ('dagster_ckpt.tasks' = 1, 'dagster_ckpt.group' = 'sums')
        AS SELECT k, sum(v) AS total FROM inbox GROUP BY k
    """,
    "top2.sql": "SELECT k, total FROM totals ORDER BY total DESC, k LIMIT 2",
}


def test_a_table_and_one_that_reads_it_are_materialized_and_go_on(place: Place) -> None:
    folder = place.folder / "models"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text.replace("{inbox}", str(place.inbox)))
    assets = streaming_sql(folder, shards=1)
    defs = build_streaming_definitions(
        assets, CheckpointCoordinatorResource(url=place.url, event_interval="1s"), spark=place.spark
    )
    graph = defs.get_repository_def().asset_graph
    names = {key.to_user_string() for key in graph.executable_asset_keys}
    assert names == {"large", "totals", "top2"}
    assert graph.get(dg.AssetKey("totals")).parent_keys == {dg.AssetKey("inbox")}
    assert graph.get(dg.AssetKey("totals")).group_name == "sums"
    for rows, expected in (
        ([("a", 1), ("b", 5), ("c", 3)], {"b": 5, "c": 3}),
        ([("a", 9), ("b", -4)], {"a": 10, "c": 3}),
    ):
        place.drop(*rows)
        job = defs.resolve_implicit_global_asset_job_def()
        selected = [dg.AssetKey("totals"), dg.AssetKey("top2")]
        assert job.execute_in_process(instance=place.instance, asset_selection=selected).success
        assert {row["k"]: row["total"] for row in place.history("top2").read().to_pylist()} == expected
    assert {row["k"]: row["total"] for row in place.history("totals").read().to_pylist()} == {"a": 10, "b": 1, "c": 3}
    *_, event = place.events("totals")
    schema = event.metadata["dagster/column_schema"]
    assert isinstance(schema, dg.TableSchemaMetadataValue)
    columns = [(column.name, column.description) for column in schema.schema.columns]
    assert columns == [("k", "Whose it is."), ("total", None)]
