"""Makes departures to try the streams with: another file each time, from Dagster or by `python departures.py`."""

import os
import random
import time
from pathlib import Path

import dagster as dg
import pandas as pd

FOLDER = Path(__file__).with_name("data") / "departures"
DELAYS = {"AA": 8.0, "B6": 13.0, "DL": 9.0, "UA": 12.0, "WN": 17.0}


@dg.asset
def departures() -> None:
    """A file with 1,000 more departures."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    carriers = random.choices(list(DELAYS), k=1_000)
    delays = [round(random.gauss(DELAYS[carrier], 20), 1) for carrier in carriers]
    file = FOLDER / f"{time.time_ns()}.parquet"
    # Spark ignores names that begin with an underscore, so it never reads half of a file.
    hidden = file.with_name(f"_{file.name}")
    pd.DataFrame({"carrier": carriers, "dep_delay": delays}).to_parquet(hidden)
    hidden.rename(file)


if __name__ == "__main__":
    os.environ.setdefault("DAGSTER_HOME", str(Path(__file__).with_name(".dagster")))
    with dg.DagsterInstance.get() as instance:
        dg.materialize([departures], instance=instance)
