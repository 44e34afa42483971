"""Each destination by name: ours, and the plain way to write the same rows there in one batch job.

Both read the rows of a batch from a Parquet file, write them and commit them; the plain way keeps no position.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.delivery.written_stream import SCHEMA
from dagster_ckpt.delivery.destination import Destination
from dagster_ckpt.destinations import DeltaLake, Kafka, ParquetFolder, Postgres
from tests.servers import contents
from tests.servers.local_iceberg import iceberg_in

OURS, PLAIN = "delivered", "plain"
"""The tables in which the two write."""


@dataclass(frozen=True)
class Way:
    """`plain` writes the rows of a Parquet file; `rows` says how many there are, in our table or the plain one."""

    to: Destination
    what: str
    plain: Callable[[Path], None]
    rows: Callable[[str], int]


DESTINATIONS = ("postgres", "delta", "iceberg", "kafka", "parquet")


def way_to(name: str, folder: Path, database: str, broker: str = "") -> Way:
    """A destination by its name, with its files below `folder`. `database` is PostgreSQL's URL, `broker` Kafka's."""
    match name:
        case "postgres":
            return _postgres(database)
        case "delta":
            return _delta(folder)
        case "iceberg":
            return _iceberg(folder)
        case "kafka":
            return _kafka(broker)
        case "parquet":
            return _parquet(folder)
    raise KeyError(name)


def _postgres(url: str) -> Way:
    from adbc_driver_postgresql import dbapi

    connection = dbapi.connect(url)
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TABLE {PLAIN} (id bigint, at timestamptz, carrier text, flight integer, delay double precision)"
        )
    connection.commit()

    def plain(rows: Path) -> None:
        with connection.cursor() as cursor:
            cursor.adbc_ingest(PLAIN, pq.read_table(rows), mode="append")
        connection.commit()

    return Way(Postgres(url, OURS), "COPY by ADBC", plain, lambda table: len(contents.of_postgres(url, table)))


def _delta(folder: Path) -> Way:
    from deltalake import write_deltalake

    return Way(
        DeltaLake(str(folder / OURS)),
        "write_deltalake",
        lambda rows: write_deltalake(str(folder / PLAIN), pq.read_table(rows), mode="append"),
        lambda table: len(contents.of_delta(folder / table)),
    )


def _iceberg(folder: Path) -> Way:
    from pyiceberg.catalog import load_catalog

    ours, theirs = iceberg_in(folder, f"bench.{OURS}"), iceberg_in(folder, f"bench.{PLAIN}")
    catalog = load_catalog(theirs.catalog, **theirs.properties)
    catalog.create_namespace("bench")
    table = catalog.create_table(theirs.table, SCHEMA)
    return Way(
        ours,
        "table.append",
        lambda rows: table.append(pq.read_table(rows)),
        lambda name: len(contents.of_iceberg(ours if name == OURS else theirs)),
    )


def _kafka(broker: str) -> Way:
    """The plain way has the same forms in its JSON, and waits for all replies, without a transaction."""
    from confluent_kafka import Producer

    from tests.servers.kafka_records import records_of

    producer = Producer({"bootstrap.servers": broker, "acks": "all", "queue.buffering.max.messages": 1_000_000})

    def plain(rows: Path) -> None:
        table = pq.read_table(rows)
        table = table.set_column(1, "at", pc.strftime(table["at"], "%Y-%m-%dT%H:%M:%SZ"))
        for row in table.to_pylist():
            producer.produce(PLAIN, json.dumps(row).encode())
        producer.flush()

    return Way(Kafka(broker, OURS), "json.dumps, produce", plain, lambda table: len(records_of(broker, table)))


def _parquet(folder: Path) -> Way:
    (folder / PLAIN).mkdir(parents=True)

    def rows_of(table: str) -> int:
        if table == OURS:
            return len(contents.of_parquet(folder / OURS))
        return sum(len(pq.read_table(file)) for file in (folder / PLAIN).iterdir())

    return Way(
        ParquetFolder((folder / OURS).as_uri()),
        "pyarrow.parquet.write_table",
        lambda rows: pq.write_table(pq.read_table(rows), folder / PLAIN / rows.name, compression="zstd"),
        rows_of,
    )
