"""Where a stream can be delivered to: `from dagster_ckpt.destinations import Postgres`.

Each needs the extra of its name: `pip install 'dagster-ckpt[postgres]'`. Reading order

    postgres  a table of a PostgreSQL database
    secrets   addresses without their passwords
"""

from dagster_ckpt.destinations.postgres import Postgres as Postgres

__all__ = ["Postgres"]
