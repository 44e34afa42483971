"""What a reader of a destination sees, as Arrow tables; rows in no order."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from dagster_ckpt.destinations import Iceberg


def of_postgres(url: str, table: str) -> pa.Table:
    """A table of a PostgreSQL database."""
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(f'SELECT * FROM "{table}"')
        return cursor.fetch_arrow_table()


def of_delta(folder: Path) -> pa.Table:
    """The newest version of a Delta table."""
    from deltalake import DeltaTable

    return pa.table(DeltaTable(str(folder)).to_pyarrow_table())


def of_iceberg(to: Iceberg) -> pa.Table:
    """The current snapshot of an Iceberg table."""
    from pyiceberg.catalog import load_catalog

    return pa.table(load_catalog(to.catalog, **to.properties).load_table(to.table).scan().to_arrow())


def of_parquet(folder: Path) -> pa.Table:
    """The files that the manifests of a `ParquetFolder` name."""
    manifests = [json.loads(each.read_text()) for each in sorted((folder / "_manifest").glob("*.json"))]
    files = [folder / file["path"] for manifest in manifests for file in manifest["files"]]
    return ds.dataset(files, format="parquet").to_table()
