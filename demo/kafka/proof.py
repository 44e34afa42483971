"""The proof: what a reader of each destination sees, against a batch computation of the flights that were produced."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa

from dagster_ckpt import CheckpointStore
from demo.batch import EXPECTED, Inputs
from demo.comparison import difference
from demo.kafka.places import DELAYS, DEPARTURES, Places
from demo.report import Report
from tests.servers import contents


@dataclass(frozen=True, slots=True)
class Delivered:
    """A destination: the stream that it must equal, and how a reader of it gets the rows."""

    stream: str
    read: Callable[[], pl.DataFrame]


def destinations(places: Places) -> dict[str, Delivered]:
    """Each delivery's destination, by the delivery's name."""
    return {
        "delays_in_postgres": Delivered(DELAYS, lambda: pl.DataFrame(contents.of_postgres(places.database, DELAYS))),
        "delays_in_delta": Delivered(DELAYS, lambda: pl.DataFrame(contents.of_delta(places.delta))),
        "departures_in_kafka": Delivered(DEPARTURES, lambda: pl.DataFrame(_in_kafka(places))),
        "departures_in_iceberg": Delivered(
            DEPARTURES, lambda: pl.DataFrame(contents.of_iceberg(places.catalog, places.iceberg))
        ),
    }


def prove(places: Places, days: Sequence[Path], report: Report) -> dict[str, bool]:
    """For each delivery, whether its destination has what the flights of these files must lead to.

    Rows that differ are reported.
    """
    inputs = Inputs(pl.scan_parquet([*days]), pl.LazyFrame())
    expected = {stream: EXPECTED[stream].table(inputs).collect() for stream in (DELAYS, DEPARTURES)}
    equal = {}
    for delivery, to in destinations(places).items():
        right = expected[to.stream]
        # A destination has types of its own for what is the same, such as the moment of a departure.
        found = difference(to.read().select(right.columns).cast(right.schema), right, EXPECTED[to.stream].key)
        report.difference(delivery, found)
        equal[delivery] = not found
    return equal


def _in_kafka(places: Places) -> pa.Table:
    """What a consumer with `read_committed` sees. The stream's own schema says how to read the JSON."""
    schema = CheckpointStore(places.store).stream(DEPARTURES).manifest().pipeline.output
    return contents.of_kafka(places.broker, DEPARTURES, schema)
