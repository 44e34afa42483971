"""Where a stream can be delivered to: `from dagster_ckpt.destinations import DeltaLake, Postgres`.

Each needs the extra of its name: `pip install 'dagster-ckpt[postgres]'`. Reading order

    delta     a table of Delta Lake
    postgres  a table of a PostgreSQL database
    secrets   addresses without their passwords
"""

from dagster_ckpt.destinations.delta import DeltaLake as DeltaLake
from dagster_ckpt.destinations.postgres import Postgres as Postgres

__all__ = ["DeltaLake", "Postgres"]
