"""Where a stream can be delivered to: `from dagster_ckpt.destinations import DeltaLake, ParquetFolder, Postgres`.

Delta Lake and PostgreSQL need an extra: `pip install 'dagster-ckpt[postgres]'`. Reading order

    delta     a table of Delta Lake
    parquet   a folder of Parquet files with manifests
    postgres  a table of a PostgreSQL database
    secrets   addresses without their passwords
"""

from dagster_ckpt.destinations.delta import DeltaLake as DeltaLake
from dagster_ckpt.destinations.parquet import ParquetFolder as ParquetFolder
from dagster_ckpt.destinations.postgres import Postgres as Postgres

__all__ = ["DeltaLake", "ParquetFolder", "Postgres"]
