"""The destinations under fire by name: which stream goes there and how, where it is, and what is wrong with its table.

The right answer is plain pandas over all input rows. Half of the rows of `keyed` have keys that no later row has: a
lost transaction leaves these wrong for ever, where a busy key would be written again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pandas as pd
import pyarrow as pa

from dagster_ckpt.delivery.destination import Destination
from dagster_ckpt.destinations import DeltaLake, Iceberg, Kafka, ParquetFolder, Postgres
from tests.chaos.lanes import Judge, Wrong, wrong_aggregate, wrong_copy
from tests.servers import contents

TARGETS_VARIABLE = "DAGSTER_CKPT_TEST_TARGETS"
"""Which of the destinations there are, parted by commas."""

POSTGRES_VARIABLE = "DAGSTER_CKPT_TEST_POSTGRES_URL"
KAFKA_VARIABLE = "DAGSTER_CKPT_TEST_KAFKA_ADDRESS"

ROWS_A_KEY = 100
OLD_KEYS = 1_000_000
"""From here on: keys of rows that came together."""

ROW = pa.schema([("id", pa.int64()), ("key", pa.int64()), ("value", pa.int64())])
"""Of `appended`."""

KEY = f"IF(id % 2 = 0, {OLD_KEYS} + id DIV {ROWS_A_KEY}, key)"
"""The key of a row of `keyed`, as Spark computes it."""


def _wrong_keyed(table: pd.DataFrame, rows: pd.DataFrame) -> Wrong:
    together = OLD_KEYS + rows["id"] // ROWS_A_KEY
    return wrong_aggregate(table, rows.assign(key=rows["key"].where(rows["id"] % 2 != 0, together)))


STREAMS: dict[str, Judge] = {"keyed": _wrong_keyed, "appended": wrong_copy}
"""Every stream, with what tells its table from the right one."""


@dataclass(frozen=True)
class Target:
    """A destination: which stream is delivered to it, how, how often, and the server that it needs; empty for none.

    The delivery's asset has the name of the target.
    """

    stream: str
    mode: str
    server: str = ""
    interval: str = "500ms"


TARGETS: dict[str, Target] = {
    "postgres": Target("keyed", "upsert", server="postgres"),
    "delta": Target("keyed", "upsert"),
    "iceberg": Target("keyed", "upsert", interval="2s"),
    "kafka": Target("appended", "append", server="kafka"),
    "parquet": Target("appended", "append"),
}


def destination(name: str, place: Path) -> Destination:
    """Where the target is, in a process that has the addresses of the servers in its environment."""
    match name:
        case "postgres":
            return Postgres(dg.EnvVar(POSTGRES_VARIABLE), "keyed")
        case "delta":
            return DeltaLake(str(place / "delta"))
        case "iceberg":
            return Iceberg("chaos.keyed", properties=_catalog(place))
        case "kafka":
            return Kafka(dg.EnvVar(KAFKA_VARIABLE), "appended")
        case "parquet":
            return ParquetFolder((place / "parquet").as_uri())
    raise KeyError(name)


def table(name: str, place: Path, environment: Mapping[str, str]) -> pd.DataFrame:
    """What a reader of the destination sees; `environment` has the addresses of the servers."""
    match name:
        case "postgres":
            found = contents.of_postgres(environment[POSTGRES_VARIABLE], "keyed")
        case "delta":
            found = contents.of_delta(place / "delta")
        case "iceberg":
            found = contents.of_iceberg(_catalog(place), "chaos.keyed")
        case "kafka":
            found = contents.of_kafka(environment[KAFKA_VARIABLE], "appended", ROW)
        case "parquet":
            found = contents.of_parquet(place / "parquet")
        case _:
            raise KeyError(name)
    return found.to_pandas()


def _catalog(place: Path) -> dict[str, str]:
    """Iceberg's catalog, in SQLite."""
    return {
        "type": "sql",
        "uri": f"sqlite:///{place}/iceberg.db",
        "warehouse": (place / "warehouse").as_uri(),
    }
