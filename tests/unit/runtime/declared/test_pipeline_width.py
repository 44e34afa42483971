"""A stream with too many columns is refused before anything is made of it, with their number and the limit."""

import pyarrow as pa
import pytest
from pyspark.sql.types import DataType, LongType, StructField, StructType

from dagster_ckpt import agg
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.declared.pipeline import build_dataflow
from dagster_ckpt.runtime.declared.step_operator import COLUMNS_MAX
from dagster_ckpt.runtime.declared.stream import Stream


class Frame:
    """A DataFrame of which only the columns are asked for."""

    def __init__(self, types: list[DataType]) -> None:
        self.schema = StructType([StructField(f"c{number}", type_) for number, type_ in enumerate(types)])


def stream_of(types: list[DataType]) -> Stream:
    return Stream(Frame(types))  # type: ignore[arg-type]


def struct_of(fields: int) -> DataType:
    return StructType([StructField(f"f{number}", LongType()) for number in range(fields)])


@pytest.mark.parametrize(
    "types", [[LongType()] * (COLUMNS_MAX + 1), [LongType(), struct_of(COLUMNS_MAX)]], ids=["columns", "fields"]
)
def test_a_stream_of_too_many_columns_is_refused_with_their_number_and_the_limit(types: list[DataType]) -> None:
    said = (
        rf"select fewer.* asset=flights, columns_read={COLUMNS_MAX + 1}, columns_kept={COLUMNS_MAX + 1}, "
        rf"columns_max={COLUMNS_MAX}$"
    )
    with pytest.raises(InvalidPipelineError, match=said):
        build_dataflow("flights", stream_of(types), [[]])
    with pytest.raises(InvalidPipelineError, match=said):
        build_dataflow("flights", stream_of(types).key_by("c0").deduplicate(), [[]])


def test_as_many_columns_as_the_limit_are_taken() -> None:
    dataflow = build_dataflow("flights", stream_of([LongType()] * COLUMNS_MAX), [[]])
    assert dataflow.pipeline.output == pa.schema([(f"c{number}", pa.int64()) for number in range(COLUMNS_MAX)])


def test_columns_that_no_step_reads_do_not_count() -> None:
    wide = stream_of([LongType()] * (COLUMNS_MAX + 1))
    build_dataflow("flights", wide.key_by("c0").aggregate(n=agg.sum("c1")), [[]])
