"""Drive an aggregate over windows epoch by epoch, with the watermark that its rows move. Each epoch is a restart."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dagster_ckpt.operators import agg
from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.operators.shared.window_kinds import Session, Window
from dagster_ckpt.operators.windows.session_aggregate import SessionAggregate
from dagster_ckpt.operators.windows.window_aggregate import WindowAggregate
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from tests.unit.operators.dict_state import DictState
from tests.unit.operators.keyed_streams import TIME, DictWorld, Row
from tests.unit.operators.keyed_streams import Stream as KeyedStream

Windowed = WindowAggregate | SessionAggregate
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", TIME)])
ROWS: Mapping[str, Aggregation] = {"rows": agg.count()}


def windowed(
    window: Window,
    aggregations: Mapping[str, Aggregation] = ROWS,
    schema: pa.Schema = SCHEMA,
    keys: tuple[str, ...] = ("k",),
    event_time: str | None = "at",
    early: bool = False,
    late: str = "drop",
) -> Windowed:
    source = InputSpec((), schema)
    if isinstance(window, Session):
        return SessionAggregate.build(keys, aggregations, source, event_time, window, early, late)
    return WindowAggregate.build(keys, aggregations, source, event_time, window, early, late)


def table_of(rows: Iterable[Row], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=schema)


def at(*times: int | None, k: str | None = "a") -> pa.Table:
    """Rows of one key at these microseconds."""
    return table_of({"k": k, "v": time, "at": time} for time in times)


@dataclass
class Stream(KeyedStream):
    """A windowed operator, fed epoch by epoch; one hash for all keys by default."""

    operator: Windowed
    distinct: int = 1

    def flush(self) -> list[Row]:
        """An epoch in which everything comes out that waits."""
        if self.greatest_us is not None:
            moved = self.greatest_us + self.operator.horizon_us
            self.watermark_us = moved if self.watermark_us is None else max(self.watermark_us, moved)
        return self.epoch()

    @property
    def state(self) -> DictState:
        """Its state, where that are dicts."""
        assert isinstance(self.world, DictWorld)
        return self.world.state


def spans(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    """Key, window and count of each row, sorted."""
    return sorted(((row["k"], row["window_start"], row["window_end"], row["rows"]) for row in rows), key=repr)
