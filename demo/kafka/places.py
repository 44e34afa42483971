"""Where everything is, in the environment of the code location and of those who read the destinations."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from demo.run_folder import WORK

RUNS = WORK / "demo-kafka"

FLIGHTS, DEPARTURES, DELAYS = "flights", "departures", "delay_by_route"
"""The topic that is read, and the names of what is delivered."""

_FOLDER, BROKER, DATABASE = "DAGSTER_CKPT_DEMO_FOLDER", "DAGSTER_CKPT_DEMO_BROKER", "DAGSTER_CKPT_DEMO_DATABASE"


@dataclass(frozen=True, slots=True)
class Places:
    """`folder` has checkpoints, Delta tables and Iceberg's warehouse; `broker` is a host and port, `database` a URL."""

    folder: Path
    broker: str
    database: str

    @classmethod
    def of_environment(cls) -> "Places":
        return cls(Path(os.environ[_FOLDER]), os.environ[BROKER], os.environ[DATABASE])

    @property
    def environment(self) -> Mapping[str, str]:
        return {_FOLDER: str(self.folder), BROKER: self.broker, DATABASE: self.database}

    @property
    def store(self) -> str:
        return (self.folder / "checkpoints").as_uri()

    @property
    def delta(self) -> Path:
        return self.folder / "delta" / DELAYS

    @property
    def iceberg(self) -> str:
        return f"flights.{DEPARTURES}"

    @property
    def catalog(self) -> Mapping[str, str]:
        """Iceberg's, in SQLite."""
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.folder}/iceberg.db",
            "warehouse": (self.folder / "warehouse").as_uri(),
        }
