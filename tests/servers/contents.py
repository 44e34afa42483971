"""What a reader of a destination sees, as Arrow tables; rows in no order."""

import json
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.json as pj


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


def of_parquet(folder: Path) -> pa.Table:
    """The files that the manifests of a `ParquetFolder` name."""
    manifests = [json.loads(each.read_text()) for each in sorted((folder / "_manifest").glob("*.json"))]
    files = [folder / file["path"] for manifest in manifests for file in manifest["files"]]
    return ds.dataset(files, format="parquet").to_table()


def of_iceberg(properties: Mapping[str, str], table: str) -> pa.Table:
    """The newest snapshot of an Iceberg table; `properties` are its catalog's."""
    from pyiceberg.catalog import load_catalog

    return load_catalog("default", **properties).load_table(table).scan().to_arrow()


def of_kafka(address: str, topic: str, schema: pa.Schema) -> pa.Table:
    """The rows of all committed records of a topic, as `read_committed` has them; `schema` is that of their JSON."""
    from tests.servers.kafka_records import records_of

    values = [value for _, _, value in records_of(address, topic) if value is not None]
    return pj.read_json(BytesIO(b"\n".join(values)), parse_options=pj.ParseOptions(explicit_schema=schema))
