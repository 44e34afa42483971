"""A row of a thousand columns costs ten times one of a hundred, not a hundred times: nothing searches all columns for
each of them."""

from collections.abc import Callable
from pathlib import Path
from time import process_time

import pytest
from pyspark.sql.types import ArrayType, DataType, LongType, StringType, StructField, StructType

from dagster_ckpt.operators.operator import Operator
from dagster_ckpt.operators.rows.append import AppendOnly
from dagster_ckpt.operators.rows.deduplicate import Deduplicate
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from tests.worlds.task_stream import Row, TaskStream, input_of

NARROW, WIDE = 100, 1000
TYPES: list[tuple[DataType, object]] = [(LongType(), 1), (StringType(), "a"), (ArrayType(LongType()), [1])]


def a_cell_takes(folder: Path, columns: int, build: Callable[[InputSpec], Operator | AppendOnly]) -> float:
    """Seconds of the processor for a cell of an epoch's work and of reading the table; the fastest of some epochs."""
    kinds = [(f"c{number}", *TYPES[number % len(TYPES)]) for number in range(columns)]
    schema = StructType([StructField("k", LongType()), *(StructField(name, type_) for name, type_, _ in kinds)])
    rows: list[Row] = [{"k": k, **{name: value for name, _, value in kinds}} for k in range(10)]
    stream = TaskStream(folder, build(input_of(schema)), [schema], (None,))
    took = []
    for _ in range(4):
        begun = process_time()
        stream.epoch((0, rows))
        assert len(stream.history.read()) >= len(rows)
        took.append(process_time() - begun)
    return min(took) / columns


@pytest.mark.parametrize("build", [AppendOnly.build, lambda source: Deduplicate.build(("k",), source)])
def test_a_cell_of_a_thousand_columns_takes_at_most_twice_as_long_as_one_of_a_hundred(
    tmp_path: Path, build: Callable[[InputSpec], Operator | AppendOnly]
) -> None:
    (narrow, wide) = (a_cell_takes(tmp_path / str(columns), columns, build) for columns in (NARROW, WIDE))
    assert wide <= 2 * narrow, f"wide={wide:.2e} s, narrow={narrow:.2e} s"


def test_runs_of_wide_tables_keep_their_types_and_nulls(tmp_path: Path) -> None:
    schema = StructType([StructField("k", LongType()), *(StructField(f"c{n}", TYPES[n % 3][0]) for n in range(200))])
    stream = TaskStream(tmp_path, Deduplicate.build(("k",), input_of(schema)), [schema], (None,))
    rows: list[Row] = [{"k": k, **{f"c{n}": TYPES[n % 3][1] if k else None for n in range(200)}} for k in range(3)]
    for row in rows:
        stream.epoch((0, [row]))
    assert sorted(stream.rows(), key=lambda row: int(row["k"])) == rows
