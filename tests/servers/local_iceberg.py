"""A table of an Iceberg catalog that is a SQLite file, with its files beside it."""

from pathlib import Path

from dagster_ckpt.destinations import Iceberg


def iceberg_in(folder: Path, table: str = "shop.delays") -> Iceberg:
    """Several tables may be in one folder."""
    warehouse = folder / "warehouse"
    warehouse.mkdir(parents=True, exist_ok=True)
    return Iceberg(
        table, catalog="local", properties={"uri": f"sqlite:///{folder}/catalog.db", "warehouse": warehouse.as_uri()}
    )
