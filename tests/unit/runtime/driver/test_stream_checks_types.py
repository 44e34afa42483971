import pytest
from pyspark.sql import types
from pyspark.sql.types import ArrayType, DataType, LongType, MapType, StringType, StructField, StructType

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.declared.step_operator import arrow_schema

OTHERS = [types.VariantType(), *(getattr(types, name)() for name in ("TimeType",) if hasattr(types, name))]


@pytest.mark.parametrize("type_", OTHERS)
def test_variants_and_times_are_refused_at_any_depth_with_the_column_and_what_to_select(type_: DataType) -> None:
    nested = [
        type_,
        ArrayType(type_),
        MapType(StringType(), type_),
        StructType([StructField("a", LongType()), StructField("b", ArrayType(type_))]),
    ]
    for each in nested:
        columns = StructType([StructField("k", LongType()), StructField("c", each)])
        with pytest.raises(InvalidPipelineError, match=r"select `.*c.*asset=flights, column=c, type="):
            arrow_schema("flights", columns)
