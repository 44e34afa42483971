"""Where a stream can be delivered to: `from dagster_ckpt.destinations import Iceberg, Postgres`.

All but the folder need an extra: `pip install 'dagster-ckpt[postgres]'`. Reading order

    delta          a table of Delta Lake
    faults         whose fault an error of a destination is
    iceberg_table  an Iceberg table's mark, its data files and a commit that is made once
    iceberg        a table of Apache Iceberg
    json_rows      rows as JSON text, by arrays
    kafka_topics   topics of a Kafka cluster: made, described, read
    kafka          a topic of a Kafka cluster
    parquet        a folder of Parquet files with manifests
    postgres       a table of a PostgreSQL database
    secrets        addresses without their passwords
"""

from dagster_ckpt.destinations.delta import DeltaLake as DeltaLake
from dagster_ckpt.destinations.iceberg import Iceberg as Iceberg
from dagster_ckpt.destinations.kafka import Kafka as Kafka
from dagster_ckpt.destinations.parquet import ParquetFolder as ParquetFolder
from dagster_ckpt.destinations.postgres import Postgres as Postgres

__all__ = ["DeltaLake", "Iceberg", "Kafka", "ParquetFolder", "Postgres"]
