"""Drive a process function over epochs of batches, on the plainest state there is, and look at what comes out."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from dagster_ckpt.ids import Epoch, Shard
from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.operators import EpochContext
from dagster_ckpt.operators.process import ProcessFunction, ProcessOperator
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from tests.unit.operators.dict_state import DictState
from tests.worlds.event_times import is_out_of_range

TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", TIME)])
Given = tuple[str | None, int | None, int | None]
"""A row of `SCHEMA`; its time in microseconds."""


def rows(*given: Given) -> pa.Table:
    """A table of `SCHEMA`."""
    keys, values, times = zip(*given, strict=True) if given else ((), (), ())
    return pa.table([pa.array(keys, pa.string()), pa.array(values, pa.int64()), pa.array(times, TIME)], schema=SCHEMA)


def plain(table: pa.Table) -> list[dict[str, Any]]:
    """Its rows, times as numbers of microseconds."""
    return [
        {name: value.value if isinstance(value, pa.TimestampScalar) else value.as_py() for name, value in row.items()}
        for row in ({name: table[name][i] for name in table.column_names} for i in range(table.num_rows))
    ]


def colliding(keys: Sequence[object]) -> Hashes:
    """One hash for every key."""
    return np.full(len(keys), 7, dtype=np.uint64)


@dataclass
class ProcessStream:
    """A process function at work, fed epoch by epoch; each epoch by an operator that was built again."""

    function: ProcessFunction
    event_time: str | None = "at"
    expire_after_us: int | None = None
    delay_us: int = 0
    memory_bytes: int = 1 << 20
    keys: tuple[str, ...] = ("k",)
    schema: pa.Schema = SCHEMA
    operator: ProcessOperator = field(init=False)
    state: DictState = field(init=False)
    watermark_us: int | None = None
    greatest_us: int | None = None
    epochs: int = 0
    late: list[dict[str, Any]] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        source = InputSpec((), self.schema)
        self.operator = ProcessOperator.build(
            self.function, self.keys, source, self.event_time, expire_after_us=self.expire_after_us
        )
        self.state = DictState.of(self.operator.pipeline)

    def epoch(self, *batches: pa.Table) -> list[dict[str, Any]]:
        """The rows that come out of an epoch of these batches; they move the watermark of the next."""
        pipeline = self.operator.pipeline
        parameters = json.loads(json.dumps(pipeline.parameters))
        operator = ProcessOperator.from_pipeline(replace(pipeline, parameters=parameters), self.function)
        self.epochs += 1
        context = EpochContext(
            Epoch(self.epochs),
            (Shard(0),),
            1,
            self.watermark_us,
            memory_bytes=self.memory_bytes,
            event_times_us=(self.greatest_us,),
        )
        for batch in batches:
            late = operator.on_rows(0, colliding(batch), batch, self.state, context)
            self.late += plain(batch.take(pa.array(late)))
        made = []
        for changes in operator.finish(self.state, context):
            assert changes.count == changes.rows.num_rows
            assert set(changes.rows["_change_type"].to_pylist()) <= {"insert"}
            made += plain(changes.rows.drop_columns(["_change_type"]))
        self.state.next_epoch()
        self.counters = context.counters
        assert self.state.tables["out"].rows == {}, "nothing waits to come out from epoch to epoch"
        self._move(batches)
        return made

    def at(self, watermark_us: int, *batches: pa.Table) -> list[dict[str, Any]]:
        """An epoch with this watermark."""
        self.watermark_us = watermark_us
        return self.epoch(*batches)

    def table(self, name: str) -> list[dict[str, Any]]:
        """The rows of a state table."""
        return plain(self.state.tables[name].live())

    def _move(self, batches: Sequence[pa.Table]) -> None:
        if self.event_time is None:
            return
        times = [time for batch in batches for time in batch[self.event_time].cast(pa.int64()).to_pylist()]
        self.greatest_us = max(
            [*(t for t in times if t is not None and not is_out_of_range(t)), *_known(self.greatest_us)], default=None
        )
        if self.greatest_us is not None:
            self.watermark_us = max([self.greatest_us - self.delay_us, *_known(self.watermark_us)])


def _known(number: int | None) -> list[int]:
    return [] if number is None else [number]
