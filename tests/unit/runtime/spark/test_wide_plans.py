from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt.runtime.spark.wide_plans import plan_wide_rows


class Settings(dict[str, str]):
    """A session of which only the settings are asked for."""

    @property
    def conf(self) -> Any:
        return self

    def set(self, name: str, value: str) -> None:
        self[name] = value


@pytest.mark.parametrize(
    ("columns", "settings"), [(500, {}), (501, {"spark.sql.constraintPropagation.enabled": "false"})]
)
def test_spark_infers_no_conditions_of_many_columns(columns: int, settings: dict[str, str]) -> None:
    session = Settings()
    narrow, wide = (pa.schema([(f"c{number}", pa.int64()) for number in range(many)]) for many in (2, columns))
    plan_wide_rows(session, [narrow, wide])  # type: ignore[arg-type]
    assert session == settings
