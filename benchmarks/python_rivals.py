"""The three APIs of PySpark in which a user keeps state in Python, each with one value state per key."""

from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

_STATE = "rows long, total double, most long"
_OUTPUT = f"k long, {_STATE}"

Totals = tuple[int, float, int]

_NOTHING: Totals = (0, 0.0, -(2**63))


def in_pandas(frame: DataFrame) -> DataFrame:
    return frame.groupBy("k").transformWithStateInPandas(_InPandas(), _OUTPUT, "Update", "None")


def in_rows(frame: DataFrame) -> DataFrame:
    return frame.groupBy("k").transformWithState(_InRows(), _OUTPUT, "Update", "None")


def applied(frame: DataFrame) -> DataFrame:
    return frame.groupBy("k").applyInPandasWithState(_apply, _OUTPUT, _STATE, "update", "NoTimeout")


class _InPandas(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._totals = handle.getValueState("totals", _STATE)

    def handleInputRows(  # noqa: N802  (Spark's name)
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        totals = _added(self._totals.get() or _NOTHING, rows)
        self._totals.update(totals)
        yield _frame(key, totals)

    def close(self) -> None: ...


class _InRows(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._totals = handle.getValueState("totals", _STATE)

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Row]:
        count, total, most = self._totals.get() or _NOTHING
        for row in rows:
            count += 1
            total += row.v
            most = max(most, row.w)
        self._totals.update((count, total, most))
        yield Row(k=key[0], rows=count, total=total, most=most)

    def close(self) -> None: ...


def _apply(key: Any, frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    totals = _added(state.get if state.exists else _NOTHING, frames)
    state.update(totals)
    yield _frame(key, totals)


def _added(before: Any, frames: Iterable[pd.DataFrame]) -> Totals:
    count, total, most = before
    for frame in frames:
        count += len(frame)
        total += frame["v"].to_numpy().sum()
        most = max(most, frame["w"].to_numpy().max())
    return int(count), float(total), int(most)


def _frame(key: Any, totals: Totals) -> pd.DataFrame:
    rows, total, most = totals
    return pd.DataFrame({"k": [key[0]], "rows": [rows], "total": [total], "most": [most]})
