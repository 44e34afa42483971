"""Where this code location reads and keeps its data: below this checkout, unless the environment says otherwise."""

import os
from pathlib import Path

WORK = Path(__file__).resolve().parent.parent / ".work"

INPUT = os.environ.get("DAGSTER_CKPT_INPUT", str(WORK / "flights"))
"""The folder into which the days of flights are dropped; by default the whole year, which `make demo` prepares."""

WEATHER = os.environ.get("DAGSTER_CKPT_WEATHER", str(WORK / "weather"))
"""The folder with the days of weather."""

STORE = os.environ.get("DAGSTER_CKPT_STORE", (WORK / "checkpoints").as_uri())
"""The URL of the store that holds every stream."""

REPORT = os.environ.get("DAGSTER_CKPT_REPORT", str(WORK / "carrier_report.html"))
"""The page that `carrier_report` writes."""
