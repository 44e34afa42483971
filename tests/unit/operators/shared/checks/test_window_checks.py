import re
from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators import agg
from dagster_ckpt.operators.shared.window_kinds import Session, Tumbling
from dagster_ckpt.operators.windows.session_aggregate import SessionAggregate
from dagster_ckpt.operators.windows.window_aggregate import WindowAggregate
from dagster_ckpt.protocol.manifest.manifest import InputSpec

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("v", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("seconds", pa.timestamp("s")),
        ("window_start", pa.int64()),
        ("Window_End", pa.int64()),
        ("_rows", pa.int64()),
        ("_hash", pa.int64()),
    ]
)
GIVEN: dict[str, Any] = {
    "keys": ("k",),
    "aggregations": {"rows": agg.count()},
    "source": InputSpec((), SCHEMA),
    "event_time": "at",
}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"event_time": None}, "a window needs event time: call with_watermark(column, delay) before it"),
        ({"event_time": "v"}, "event time must be a timestamp: cast the column. column=v, type=int64"),
        ({"event_time": "seconds"}, "event time must be a timestamp: cast the column. column=seconds"),
        ({"event_time": "At"}, "no such column. Did you mean 'at'?"),
        ({"keys": ()}, "call key_by"),
        ({"aggregations": {}}, "aggregates=()"),
        ({"aggregations": {"x": agg.sum("k")}}, "sum needs numbers"),
        ({"keys": ("window_start",)}, "a window adds a column of this name itself: rename the key or aggregate. col"),
        ({"keys": ("Window_End",)}, "column=Window_End"),
        ({"keys": ("_hash",)}, "column=_hash"),
        ({"keys": ("_rows",)}, "the state has a column of this name: rename the key before key_by. key=_rows"),
        ({"aggregations": {"WINDOW_END": agg.count()}}, "column=WINDOW_END"),
        ({"late": "hide"}, "late rows can be dropped or kept: late='drop' or late='keep'. late='hide'"),
        (
            {"late": "keep", "source": InputSpec((), pa.schema([*SCHEMA, ("_row", pa.int8())]))},
            "late rows are kept with a column of this name: rename yours. column=_row",
        ),
        (
            {"late": "keep", "source": InputSpec((), pa.schema([*SCHEMA, ("V", pa.int8())]))},
            "could not tell these columns apart: rename one. columns=v, V",
        ),
    ],
)
def test_an_aggregate_over_windows_that_cannot_work(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=re.escape(message)):
        WindowAggregate.build(**{**GIVEN, **changed}, window=Tumbling(10))
    with pytest.raises(InvalidPipelineError, match=re.escape(message)):
        SessionAggregate.build(**{**GIVEN, **changed}, window=Session(10))


@pytest.mark.parametrize("window", ["5 minutes", None, 300, Tumbling])
def test_a_window_is_written_with_its_function(window: Any) -> None:
    with pytest.raises(InvalidPipelineError, match=r"write a window as tumbling\('5 minutes'\)"):
        WindowAggregate.build(**GIVEN, window=window)
    with pytest.raises(InvalidPipelineError, match=r"write a session window as session\('30 minutes'\)"):
        SessionAggregate.build(**GIVEN, window=window)


def test_a_column_that_nothing_reads_may_be_called_anything() -> None:
    assert WindowAggregate.build(**GIVEN, window=Tumbling(10)).pipeline.inputs[0].schema.names == ["k", "at"]
