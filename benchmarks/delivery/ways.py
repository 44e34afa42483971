"""Each destination by name: ours, and the plain way to write the same rows there in one batch job.

Both read the rows of a batch from a Parquet file, write them and commit them; the plain way keeps no position.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.delivery.written_stream import SCHEMA, records
from dagster_ckpt.delivery.destination import Destination
from dagster_ckpt.destinations import DeltaLake, Iceberg, Kafka, ParquetFolder, Postgres
from tests.servers import contents

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


def way_to(name: str, folder: Path, database: str, broker: str) -> Way:
    """A destination by its name. All its files are below `folder`; the servers have these addresses."""
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

    folder.mkdir()
    properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": (folder / "files").as_uri()}
    catalog = load_catalog("default", **properties)
    catalog.create_namespace("bench")
    table = catalog.create_table(f"bench.{PLAIN}", SCHEMA)
    return Way(
        Iceberg(f"bench.{OURS}", properties=properties),
        "table.append",
        lambda rows: table.append(pq.read_table(rows)),
        lambda name: len(contents.of_iceberg(properties, f"bench.{name}")),
    )


def _kafka(broker: str) -> Way:
    from confluent_kafka import Producer

    # As ours but for the transaction: acknowledged by the brokers, and as much in its queue.
    producer = Producer(
        {
            "bootstrap.servers": broker,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
            "log_level": 2,
        }
    )

    def plain(rows: Path) -> None:
        for record in records(pq.read_table(rows)):
            producer.produce(PLAIN, record)
        if left := producer.flush(60):
            raise RuntimeError(f"the broker has not taken all records. left={left}")

    def rows_of(topic: str) -> int:
        return len(contents.of_kafka(broker, topic, SCHEMA))

    return Way(Kafka(broker, OURS), "produce, flush", plain, rows_of)


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
