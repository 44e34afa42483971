"""Where a stream keeps its late rows they are all there, those without an event time among them."""

import numpy as np
import pyarrow as pa
import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.ids import Epoch, Shard
from dagster_ckpt.operators.operator import EpochContext
from dagster_ckpt.operators.rows.deduplicate import Deduplicate
from dagster_ckpt.operators.shared.late_rows import KEEP, LATE_AT, keep_late, late_table
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from tests.unit.operators.dict_state import DictState

TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("k", pa.string()), ("at", TIME), ("v", pa.int64())])


def test_one_without_an_event_time_is_kept_too_and_equal_ones_are_kept_apart() -> None:
    operator = Deduplicate.build(("k",), InputSpec((), SCHEMA), "first", "at", 10, KEEP)
    state = DictState.of(operator.pipeline)
    context = EpochContext(Epoch(1), (Shard(0),), 1, 100, 1 << 20)
    rows = pa.Table.from_pylist(
        [
            {"k": "a", "at": 5, "v": 1},
            {"k": "a", "at": None, "v": 2},
            {"k": "a", "at": 5, "v": 1},
            {"k": "b", "at": 200, "v": 3},
            {"k": None, "at": -(10**15), "v": 4},
        ],
        schema=SCHEMA,
    )
    hashes = np.arange(5, dtype=np.uint64)
    late = operator.on_rows(0, hashes, rows, state, context)
    assert late.tolist() == [0, 1, 2, 4]
    timeline = state.timeline(late_table(0))
    keep_late(timeline, hashes, rows, late, "at", context)
    kept = pa.concat_tables(timeline.scan(None, None)).select(SCHEMA.names)
    assert sorted(kept.to_pylist(), key=repr) == sorted(rows.take(late).to_pylist(), key=repr)


def test_rows_with_times_out_of_range_are_kept_as_they_are() -> None:
    operator = Deduplicate.build(("k",), InputSpec((), SCHEMA), "first", "at", 10, KEEP)
    state = DictState.of(operator.pipeline)
    context = EpochContext(Epoch(1), (Shard(0),), 1, None, 1 << 20)
    times = [-(2**63), 2**63 - 1, 0]
    rows = pa.Table.from_pylist([{"k": "a", "at": time, "v": 1} for time in times], schema=SCHEMA)
    hashes = np.zeros(3, dtype=np.uint64)
    late = operator.on_rows(0, hashes, rows, state, context)
    timeline = state.timeline(late_table(0))
    keep_late(timeline, hashes, rows, late, "at", context)
    kept = pa.concat_tables(timeline.scan(None, None)).column("at").cast(pa.int64()).to_pylist()
    assert sorted(kept) == sorted(times[:2])


def test_a_column_with_the_name_of_their_table_is_refused() -> None:
    source = InputSpec((), SCHEMA.append(pa.field(LATE_AT, pa.int64())))
    with pytest.raises(InvalidPipelineError, match=f"rename yours. column={LATE_AT}"):
        Deduplicate.build(("k",), source, "first", "at", 10, KEEP)
