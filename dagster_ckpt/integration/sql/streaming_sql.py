"""`streaming_sql`: files of SQL become streaming assets, one for each table.

Nothing here loads sqlglot before it is called: Dagster's tools load all public names of a package.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Unpack

import dagster as dg

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.integration.asset_options import SharedOptions, Source


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
    from dagster_ckpt.integration.sql.sql_assets import build_assets

    return build_assets(sql, sources or {}, ins or {}, [asset.key for asset in assets], options)
