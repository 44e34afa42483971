"""The late rows of each step: counted by input, and found under the names that the steps' tables are stored under."""

from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.history.stream_table import late_rows_of
from dagster_ckpt.ids import Shard
from dagster_ckpt.integration.reading.late_rows_asset import LateRows
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.manifest.manifest import RunRef, Statistics
from dagster_ckpt.protocol.transitions.epoch_statistics import statistics_after
from dagster_ckpt.storage.stores.address import open_store
from tests.worlds.several_steps import sales_joined, with_runs

COLUMNS = [["at", "shop", "amount"], ["at", "shop"], ["shop", "total", "ended"]]
"""Of the inputs in order: both sources, then the windows that the join reads."""


def test_the_late_rows_of_each_input_are_read_from_its_step(tmp_path: Path) -> None:
    pipeline = sales_joined()
    nothing: dict[str, tuple[tuple[RunRef, ...], ...]] = {spec.name: ((), ()) for spec in pipeline.all_tables}
    manifest, store = replace(with_runs(pipeline), runs=nothing), open_store(tmp_path.as_uri())
    read = [late_rows_of(store, SystemClock(), manifest, number) for number in range(3)]
    assert [table.schema.names for table in read] == COLUMNS
    for number in (-1, 3):
        with pytest.raises(InvalidPipelineError, match="inputs=3"):
            late_rows_of(store, SystemClock(), manifest, number)


def test_a_late_row_in_a_step_that_reads_a_step_is_counted_as_that_inputs() -> None:
    parent = with_runs(sales_joined())
    late = ShardAck(Shard(0), late_rows=7, late_rows_by_input=(0, 2, 5), step=1)
    found = statistics_after(parent, [late], 1, parent.runs)
    assert found.late_rows_by_input == (0, 2, 5)
    assert found.total_late_rows == sum(found.late_rows_by_input)


def test_the_assets_have_the_late_rows_of_all_steps() -> None:
    statistics = Statistics(total_late_rows=7, late_rows_by_input=(0, 2, 5))
    manifest = replace(with_runs(sales_joined()), statistics=statistics)
    kept = LateRows.of_stream(dg.AssetKey("sales"), manifest)
    assert [(each.key.path[-1], each.total, each.state_bytes) for each in kept] == [
        ("sales_late_rows", 0, 6000),
        ("sales_late_rows_1", 2, 14000),
        ("sales_late_rows_2", 5, 12000),
    ]
