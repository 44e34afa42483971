from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.history import CheckpointStore, StreamHistory
from dagster_ckpt.operators import RunningAggregate, agg
from dagster_ckpt.operators.shared.window_kinds import Tumbling
from dagster_ckpt.operators.windows.window_aggregate import WindowAggregate
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from dagster_ckpt.state.engine import OpenRuns
from tests.unit.history.made_streams import HOUR_US, SOURCE, TIMED, MadeStream, append, departures

NAME = "flights/delays"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return tmp_path.as_uri()


def history(url: str) -> StreamHistory:
    return CheckpointStore(url).stream(NAME)


@pytest.fixture
def flights(url: str) -> StreamHistory:
    """Epochs 2 and 3: of UA 2 and 3 flights, of a carrier without a name 1, of AA one in epoch 3."""
    stream = MadeStream(url, NAME)
    stream.commit(departures({"UA": [1.0, 5.0], None: [3.0]}))
    stream.commit(departures({"UA": [6.0], "AA": [7.0]}))
    stream.close()
    return history(url)


def test_in_the_order_of_the_keys_without_those_that_have_no_row(flights: StreamHistory) -> None:
    found = flights.get({"carrier": ["UA", "XX", None, "AA"]})
    assert found.to_pydict() == {"carrier": ["UA", None, "AA"], "flights": [3, 1, 1], "mean_delay": [4.0, 3.0, 7.0]}


def test_as_they_were_at_an_epoch_and_some_columns_of_them(flights: StreamHistory) -> None:
    assert flights.get({"carrier": ["AA", "UA"]}, epoch=2, columns=["flights"]).to_pydict() == {"flights": [2]}
    then = flights.info(2).committed_at
    assert flights.get({"carrier": ["UA"]}, as_of=then)["flights"].to_pylist() == [2]


def test_a_key_that_is_asked_twice_is_found_twice(flights: StreamHistory) -> None:
    assert flights.get({"carrier": ["UA", "AA", "UA"]})["carrier"].to_pylist() == ["UA", "AA", "UA"]
    assert flights.get({"carrier": []}).schema == flights.read().schema


@pytest.mark.parametrize(
    "keys",
    [pa.table({"carrier": ["UA"]}), {"carrier": pa.array(["UA"]).dictionary_encode()}, {"carrier": ("UA",)}],
)
def test_keys_come_as_lists_or_as_arrow(flights: StreamHistory, keys: Any) -> None:
    assert flights.get(keys)["flights"].to_pylist() == [3]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"carier": ["UA"]}, "Did you mean 'carrier'"),
        ({}, r"missing=\['carrier'\]"),
        ({"carrier": [1]}, "type=string"),
        ({"carrier": "UA"}, "not a list of values"),
        (["UA"], "keys are columns with values"),
    ],
)
def test_keys_that_cannot_be_the_tables_are_refused(flights: StreamHistory, keys: Any, message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=message) as refused:
        flights.get(keys)
    assert f"stream='{NAME}'" in str(refused.value)


@pytest.mark.parametrize(
    ("number", "day", "message"),
    [
        (1.5, date(2013, 1, 1), r"column='number'.*1\.5 would have to be cut"),
        (1.0, datetime(2013, 1, 1, 5, tzinfo=UTC), r"column='day'.*would have to be cut"),
        (1.0, datetime(2013, 1, 1, tzinfo=UTC), None),
    ],
)
def test_no_value_is_cut_to_the_key_of_another_row(url: str, number: float, day: date, message: str | None) -> None:
    schema = pa.schema([("number", pa.int64()), ("day", pa.date32()), ("carrier", pa.string())])
    of_day = RunningAggregate.build(("number", "day"), {"flights": agg.count()}, InputSpec((SOURCE,), schema))
    MadeStream(url, NAME, of_day).close()
    if message is None:
        assert history(url).get({"number": [number], "day": [day]}).num_rows == 0
        return
    with pytest.raises(InvalidPipelineError, match=message):
        history(url).get({"number": [number], "day": [day]})


def test_a_stream_that_only_appends_has_none(url: str) -> None:
    MadeStream(url, NAME, append()).close()
    with pytest.raises(InvalidPipelineError, match="read its table, and filter it"):
        history(url).get({"carrier": ["UA"]})


def test_a_stream_that_has_committed_nothing_has_no_row(url: str) -> None:
    MadeStream(url, NAME).close()
    assert history(url).get({"carrier": ["UA"]}).num_rows == 0


def test_windows_of_a_key_by_where_they_begin(url: str) -> None:
    early = WindowAggregate.build(
        ("carrier",), {"flights": agg.count()}, InputSpec((SOURCE,), TIMED), "at", Tumbling(HOUR_US), early=True
    )
    stream = MadeStream(url, NAME, early)
    hours = pa.array([HOUR_US, HOUR_US + 1, 3 * HOUR_US], TIMED.field("at").type)
    stream.commit(departures({"UA": [1.0, 2.0, 3.0]}).append_column(TIMED.field("at"), hours))
    stream.close()
    starts = [datetime(1970, 1, 1, hour, tzinfo=UTC) for hour in (1, 2, 3)]
    found = history(url).get({"carrier": ["UA"] * 3, "window_start": starts}, columns=["window_start", "flights"])
    assert found.to_pydict() == {"window_start": [starts[0], starts[2]], "flights": [2, 1]}
    with pytest.raises(InvalidPipelineError, match=r"missing=\['window_start'\]"):
        history(url).get({"carrier": ["UA"]})


def test_only_the_runs_that_may_have_a_key_are_opened(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = MadeStream(url, NAME)
    for carrier in ("UA", "AA", "DL", "WN", "B6", "AS"):
        stream.commit(departures({carrier: [1.0]}))
    stream.close()
    opened: list[str] = []
    run: Callable[..., Any] = OpenRuns.run

    def seen(self: OpenRuns, store: Any, ref: Any, schema: pa.Schema) -> Any:
        opened.append(ref.path)
        return run(self, store, ref, schema)

    monkeypatch.setattr(OpenRuns, "run", seen)
    assert history(url).get({"carrier": ["DL"]})["flights"].to_pylist() == [1]
    assert len(opened) == 1
