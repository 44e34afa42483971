from collections.abc import Collection
from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt.runtime.spark.wide_rows import limit_batches, plan_wide_rows

UNCOUNTED = 2**31 - 1
NUMBERS = [("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))]


class Settings(dict[str, str]):
    """A session that has only settings."""

    @property
    def conf(self) -> Any:
        return self

    def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
        return super().get(name.removeprefix("spark.sql.execution.arrow."), default)

    def set(self, name: str, value: str) -> None:
        self[name.removeprefix("spark.sql.execution.arrow.")] = value


def limits(
    fields: list[tuple[str, pa.DataType]], keys: Collection[str] = (), bytes_max: int = 1 << 24, **given: str
) -> tuple[int, int]:
    session = Settings(given)
    types = [pa.schema(fields).field(key).type for key in keys]
    limit_batches(session, [pa.schema(fields)], types, bytes_max)  # type: ignore[arg-type]
    return int(session["maxRecordsPerBatch"]), int(session["maxBytesPerBatch"])


def test_rows_of_a_fixed_width_are_limited_by_their_number_alone() -> None:
    assert limits(NUMBERS, keys=["n"]) == (16_384, UNCOUNTED)
    assert limits(NUMBERS, bytes_max=1600) == (100, UNCOUNTED)
    assert limits(NUMBERS, bytes_max=1) == (1, UNCOUNTED)


def test_the_bytes_of_keys_of_any_length_are_counted_too() -> None:
    assert limits([("k", pa.string()), *NUMBERS], keys=["k"]) == (2_048, 1 << 24)
    assert limits([("k", pa.binary())], keys=["k"], bytes_max=1000) == (1_000, 1000)


def test_the_bytes_of_values_of_any_length_are_counted() -> None:
    assert limits([("k", pa.string()), ("text", pa.string())], keys=["k"]) == (2_048, 1 << 24)
    assert limits([("text", pa.list_(pa.int8()))]) == (16_384, 1 << 24)
    assert limits([("text", pa.binary())], bytes_max=1 << 40) == (16_384, UNCOUNTED - 1)


def test_a_stream_whose_rows_have_no_columns_is_limited_too() -> None:
    assert limits([]) == (16_384, UNCOUNTED)


def test_smaller_batches_that_the_user_has_asked_for_stay_small() -> None:
    assert limits(NUMBERS, maxRecordsPerBatch="100") == (100, UNCOUNTED)
    assert limits(NUMBERS, maxRecordsPerBatch="100000") == (16_384, UNCOUNTED)
    assert limits(NUMBERS, maxRecordsPerBatch="-1") == (16_384, UNCOUNTED)
    assert limits(NUMBERS, maxBytesPerBatch="4096") == (16_384, 4096)


@pytest.mark.parametrize(
    ("columns", "settings"), [(500, {}), (501, {"spark.sql.constraintPropagation.enabled": "false"})]
)
def test_spark_infers_no_conditions_of_many_columns(columns: int, settings: dict[str, str]) -> None:
    session = Settings()
    narrow, wide = (pa.schema([(f"c{number}", pa.int64()) for number in range(many)]) for many in (2, columns))
    plan_wide_rows(session, [narrow, wide])  # type: ignore[arg-type]
    assert session == settings
