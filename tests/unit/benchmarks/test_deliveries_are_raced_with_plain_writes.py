from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.delivery.__main__ import _measured
from benchmarks.delivery.ways import OURS, PLAIN, way_to
from benchmarks.delivery.written_stream import SCHEMA, flights
from tests.servers import contents

ROWS, BATCHES, ROUNDS = 50, 2, 2


def test_both_sides_write_every_row_and_each_counted_transaction_is_timed(tmp_path: Path) -> None:
    way = way_to("parquet", tmp_path / "to", database="", broker="")
    ours, plain = _measured("parquet", way, tmp_path / "of", ROWS, BATCHES, ROUNDS)
    assert [len(turn) for turn in ours.rounds] == [len(turn) for turn in plain.rounds] == [BATCHES] * ROUNDS
    rows = (ROUNDS + 1) * (BATCHES + 1) * ROWS
    expected = flights(0, rows).column("id")
    assert contents.of_parquet(tmp_path / "to" / OURS).sort_by("id").column("id").equals(expected)
    assert pq.read_table(tmp_path / "to" / PLAIN, schema=SCHEMA).sort_by("id").column("id").equals(expected)


def test_a_side_that_has_not_written_all_rows_gives_no_figures(tmp_path: Path) -> None:
    way = replace(way_to("parquet", tmp_path / "to", database="", broker=""), plain=lambda _: None)
    with pytest.raises(RuntimeError, match=r"not all rows are there.*plain"):
        _measured("parquet", way, tmp_path / "of", ROWS, BATCHES, rounds=1)
