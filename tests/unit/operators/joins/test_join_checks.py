"""A join that cannot work is refused with its reason."""

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.joins import IntervalJoin, WindowedJoin
from dagster_ckpt.operators.shared.window_kinds import Session, Tumbling
from tests.unit.operators.joined_streams import TIME, inputs

LEFT = pa.schema([("k", pa.string()), ("n", pa.int32()), ("at", TIME), ("v", pa.int64()), ("f", pa.float64())])
RIGHT = pa.schema(
    [("k", pa.string()), ("m", pa.int64()), ("bt", TIME), ("w", pa.int64()), ("plain", pa.timestamp("us"))]
)
GOOD: dict[str, Any] = {
    "inputs": inputs((LEFT, RIGHT)),
    "keys": (("k",), ("k",)),
    "event_times": ("at", "bt"),
    "how": "inner",
    "late": "drop",
}
BUILDERS: list[Callable[..., object]] = [
    lambda **options: IntervalJoin.build(lower_us=0, upper_us=1, **options),
    lambda **options: IntervalJoin.expiring(expire_after_us=1, **options),
    lambda **options: WindowedJoin.build(window=Tumbling(5), **options),
    lambda **options: WindowedJoin.build(window=None, **options),
]


def with_column(name: str) -> dict[str, object]:
    """Both inputs, of which the right has this column besides."""
    return {"inputs": inputs((LEFT, RIGHT.append(pa.field(name, pa.int64()))))}


@pytest.mark.parametrize("build", BUILDERS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"keys": ((), ())}, "key_by(column, ...) before it. input=left, keys=()"),
        ({"keys": (("k",), ())}, "input=right, keys=()"),
        (
            {"keys": (("k", "n"), ("k",))},
            "give key_by as many columns on the left as on the right. left=k, n; right=k",
        ),
        (
            {"keys": (("n",), ("m",))},
            "keys of different types are never compared: cast one of them. left=n (int32), right=m (int64)",
        ),
        ({"keys": (("f",), ("w",))}, "cast this column, or choose another. key=f, type=double"),
        ({"keys": (("k",), ("kk",))}, "no such column. Did you mean 'k'? column=kk, use=key"),
        ({"keys": (("k", "k"), ("k", "k"))}, "a column can be key only once. key=k"),
        ({"event_times": (None, "bt")}, "call with_watermark(column, delay) before it. input=left"),
        ({"event_times": ("at", None)}, "call with_watermark(column, delay) before it. input=right"),
        ({"event_times": ("v", "bt")}, "event time must be a timestamp: cast the column. column=v, type=int64"),
        (
            {"event_times": ("at", "plain")},
            "cast one of them. left=at (timestamp[us, tz=UTC]), right=plain (timestamp[us])",
        ),
        (
            {"how": "outer"},
            "choose one of inner, left, right, full, semi, anti. how='outer'",
        ),
        ({"how": None}, "how=None"),
        ({"late": "never"}, "late='drop' or late='keep'. late='never'"),
        (with_column("v"), "rename one of them before the join. column=v"),
        (with_column("V"), "rename one of them before the join. column=V"),
        (with_column("_row"), "the join's state has a column of this name: rename yours. column=_row, input=right"),
        (with_column("_epoch"), "the change log adds this column itself: rename yours. column=_epoch"),
        ({"keys": (("k",), ("w",)), "how": "left"}, "keys of different types"),
    ],
)
def test_a_join_that_cannot_work(build: Callable[..., object], change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=re.escape(message)):
        build(**{**GOOD, **change})


@pytest.mark.parametrize("build", BUILDERS)
def test_columns_that_clash_may_be_left_out_of_a_semi_join(build: Callable[..., object]) -> None:
    build(**{**GOOD, **with_column("v"), "how": "semi"})


@pytest.mark.parametrize(
    ("lower", "upper", "message"),
    [
        (5, 4, "the lower bound is above the upper one: exchange them. lower=5 us, upper=4 us"),
        (0, 2**60 + 1, "choose a nearer one. upper=1152921504606846977 us"),
        (-(2**63), 0, "choose a nearer one. lower="),
    ],
)
def test_bounds_that_contain_nothing_or_everything(lower: int, upper: int, message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=re.escape(message)):
        IntervalJoin.build(lower_us=lower, upper_us=upper, **GOOD)


def test_rows_that_expire_before_they_are_there() -> None:
    with pytest.raises(InvalidPipelineError, match=r"choose a time of 0 or more\. expire_after=-1 us"):
        IntervalJoin.expiring(expire_after_us=-1, **GOOD)


@pytest.mark.parametrize(
    ("window", "message"),
    [(Session(5), "join by tumbling or hopping windows, or use interval_join"), ("5s", "tumbling('5 minutes')")],
)
def test_windows_that_both_inputs_cannot_share(window: Any, message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=re.escape(message)):
        WindowedJoin.build(window=window, **GOOD)


@pytest.mark.parametrize("name", ["window_start", "Window_End"])
def test_a_column_that_the_window_adds(name: str) -> None:
    with pytest.raises(InvalidPipelineError, match="a window join adds a column of this name itself"):
        WindowedJoin.build(window=Tumbling(5), **{**GOOD, **with_column(name)})
