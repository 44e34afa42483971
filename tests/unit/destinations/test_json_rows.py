"""Rows as JSON text."""

import base64
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.destinations import json_rows as module
from dagster_ckpt.destinations.json_rows import check_json, in_pieces, json_rows
from dagster_ckpt.errors import InvalidPipelineError

TEXT = st.text(st.characters(codec="utf-8"))
LONG = st.integers(-(2**63), 2**63 - 1)


def same(value: Any) -> Any:
    return value


def shortest(value: float) -> float:
    """A number with fewer digits than the double has may stand for the same float."""
    return float(str(np.float32(value)))


def instant(value: datetime) -> str:
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


FORMS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any], Callable[[Any], Any]]] = {
    "boolean": (pa.bool_(), st.booleans(), same),
    "long": (pa.int64(), LONG, same),
    "unsigned": (pa.uint64(), st.integers(0, 2**64 - 1), same),
    "double": (pa.float64(), st.floats(allow_nan=False, allow_infinity=False), same),
    "float": (pa.float32(), st.floats(width=32, allow_nan=False, allow_infinity=False), shortest),
    "text": (pa.string(), TEXT, same),
    "large text": (pa.large_string(), TEXT, same),
    "binary": (pa.binary(), st.binary(), lambda value: base64.b64encode(value).decode()),
    "date": (pa.date32(), st.dates(), date.isoformat),
    "time": (pa.time64("us"), st.times(), lambda value: value.isoformat("microseconds")),
    "instant": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC)), instant),
    "local": (pa.timestamp("us"), st.datetimes(), lambda value: value.isoformat(timespec="microseconds")),
    "list": (pa.list_(pa.string()), st.lists(st.none() | TEXT), same),
    "lists": (pa.list_(pa.list_(pa.int64())), st.lists(st.none() | st.lists(LONG)), same),
    "struct": (
        pa.struct([("x", pa.int64()), ('"y"', pa.list_(pa.string()))]),
        st.fixed_dictionaries({"x": st.none() | LONG, '"y"': st.none() | st.lists(TEXT)}),
        same,
    ),
    "map": (
        pa.map_(pa.string(), pa.int64()),
        st.dictionaries(TEXT, st.none() | LONG).map(lambda value: list(value.items())),
        dict,
    ),
}


@pytest.mark.parametrize("name", FORMS)
@given(data=st.data())
def test_each_value_comes_back_as_it_was(name: str, data: st.DataObject) -> None:
    kind, values, form = FORMS[name]
    check_json(name, kind, "kafka://shop")
    given_values = data.draw(st.lists(st.none() | values, max_size=8))
    cut = data.draw(st.integers(0, len(given_values)))
    rows = pa.table({'the "value"': pa.array(given_values, kind), "n": range(len(given_values))}).slice(cut)
    found = [json.loads(text) for batch in in_pieces(rows.to_batches()) for text in json_rows(batch).to_pylist()]
    expected = [None if value is None else form(value) for value in given_values]
    assert found == [{'the "value"': value, "n": n} for n, value in enumerate(expected)][cut:]


def text_of(value: object, kind: pa.DataType) -> str:
    [text] = json_rows(pa.RecordBatch.from_pydict({"x": pa.array([value], kind)})).to_pylist()
    return str(text)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (Decimal("12.50"), pa.decimal128(10, 2), '"12.50"'),
        (Decimal("-0.01"), pa.decimal128(38, 18), '"-0.010000000000000000"'),
        (float("nan"), pa.float64(), '"NaN"'),
        (float("inf"), pa.float32(), '"Infinity"'),
        (float("-inf"), pa.float64(), '"-Infinity"'),
        (1.0, pa.float64(), "1.0"),
        (-0.0, pa.float64(), "-0.0"),
        (1e300, pa.float64(), "1e+300"),
        (1, pa.timestamp("ns"), '"1970-01-01T00:00:00.000000001"'),
        (None, pa.null(), "null"),
        (
            datetime(2024, 5, 1, 12, tzinfo=timezone(timedelta(hours=2))),
            pa.timestamp("ms", "Europe/Berlin"),
            '"2024-05-01T10:00:00.000Z"',
        ),
        (time(23, 59), pa.time32("s"), '"23:59:00"'),
    ],
    ids=str,
)
def test_a_value_has_the_form_that_the_docs_name(value: object, kind: pa.DataType, text: str) -> None:
    assert text_of(value, kind) == '{"x":' + text + "}"


@pytest.mark.parametrize(
    "kind", [pa.duration("us"), pa.map_(pa.int64(), pa.int64()), pa.month_day_nano_interval()], ids=str
)
def test_a_type_without_a_form_is_refused_with_the_columns_name(kind: pa.DataType) -> None:
    with pytest.raises(InvalidPipelineError, match=r"column=extra\.x"):
        check_json("extra", pa.struct([("x", pa.list_(kind))]), "kafka://shop")


def test_a_batch_of_many_bytes_is_cut_and_no_row_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH_BYTES", 1000)
    batch = pa.RecordBatch.from_pydict({"x": ["a" * 100] * 95})
    pieces = list(in_pieces([batch, batch.slice(0, 0)]))
    assert sum(piece.num_rows for piece in pieces) == 95
    assert max(piece.num_rows for piece in pieces) <= 10
    assert [piece.num_rows for piece in in_pieces([pa.RecordBatch.from_pydict({"x": ["a" * 5000]})])] == [1]
