"""Windows and sessions compute what a running aggregate does that has the window as one more key column."""

from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.operators.shared.window_kinds import FixedWindow, Hopping, Session, Tumbling, Window
from tests.unit.operators.keyed_streams import Row, rows_of
from tests.unit.operators.streams import Streamed, build
from tests.unit.operators.test_registry import EVERY, HERE
from tests.unit.operators.windowed_streams import Stream, windowed

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("v", pa.int32()),
        ("d", pa.decimal128(19, 0)),
        ("at", pa.timestamp("us", "UTC")),
        ("b", pa.bool_()),
    ]
)
SEEDS = range(60)
INPUT: list[Row] = [
    {
        "k": ["a", "b", None][seed % 3],
        "v": None if seed % 7 == 0 else seed * seed % 23,
        "d": None if seed % 5 == 0 else seed * 31 % 17,
        "at": seed * 37 % 97,
        "b": [True, True, True, False, None][seed % 5],
    }
    for seed in SEEDS
]


def starts_of(window: Window, row: Row) -> list[int]:
    """Where the windows begin that the row is in."""
    if not isinstance(window, Session):
        return [start for start in range(-window.size_us, row["at"] + 1) if holds(window, start, row["at"])]
    first = row["at"]
    for other in sorted((other["at"] for other in INPUT if other["k"] == row["k"]), reverse=True):
        if first - window.gap_us <= other <= first:
            first = other
    return [first]


def holds(window: FixedWindow, start: int, time: int) -> bool:
    step = window.slide_us if isinstance(window, Hopping) else window.size_us
    return (start - window.offset_us) % step == 0 and start <= time < start + window.size_us


def running(window: Window, aggregations: dict[str, Aggregation]) -> list[Row]:
    """The results of the running aggregate, window by window."""
    schema = pa.schema([*SCHEMA, ("window_start", pa.int64())])
    rows = [{**row, "window_start": start} for row in INPUT for start in starts_of(window, row)]
    streamed = Streamed(build(schema, ("k", "window_start"), "at", **aggregations))
    streamed.epoch(pa.Table.from_pylist(rows, schema=schema))
    return rows_of(streamed.table())


def by_window(rows: list[Row]) -> dict[tuple[Any, Any], Row]:
    found = {(row["k"], row["window_start"]): row for row in rows}
    assert len(found) == len(rows)
    return found


def near(value: object) -> object:
    return pytest.approx(value, nan_ok=True) if isinstance(value, float) else value


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("window", [Tumbling(20, 3), Hopping(20, 8), Session(4)], ids=str)
@pytest.mark.parametrize("name", [name for name in HERE if EVERY[name].function != "user_defined"])
def test_every_aggregate_in_every_window(name: str, window: Window, early: bool) -> None:
    stream = Stream(windowed(window, {name: EVERY[name]}, SCHEMA, early=early), delay_us=1_000)
    table = pa.Table.from_pylist(INPUT, schema=SCHEMA)
    for start in range(0, table.num_rows, 17):
        rows = table.slice(start, 17)
        stream.epoch(*(rows.slice(first, 5) for first in range(0, rows.num_rows, 5)))
    stream.flush()
    found = by_window(stream.table())
    expected = by_window(running(window, {name: EVERY[name]}))
    assert {key: row[name] for key, row in found.items()} == {key: near(row[name]) for key, row in expected.items()}
