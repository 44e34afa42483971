"""Spark and Arrow reach years that Python's datetime cannot have: a stream with such times is read like any other."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark.sql.types import DateType, LongType, StructField, StructType, TimestampType

from dagster_ckpt.cli import main
from dagster_ckpt.cli.far_times import read_times, values_of
from dagster_ckpt.operators.rows.deduplicate import Deduplicate
from tests.worlds.task_stream import NAME, TaskStream, input_of

COLUMNS = StructType(
    [
        StructField("key", TimestampType()),
        StructField("v", StructType([StructField("day", DateType()), StructField("at", TimestampType())])),
        StructField("n", LongType()),
    ]
)
YEAR_10000_US, CAESAR_US = 253_402_300_800_000_000, -63_549_360_000_000_000
FAR, LONG_AGO = "+10000-01-01T00:00:00.000000+00:00", "-0044-03-15T00:00:00.000000+00:00"


@pytest.fixture
def store(tmp_path: Path) -> str:
    stream = TaskStream(tmp_path, Deduplicate.build(("key",), input_of(COLUMNS)), [COLUMNS], (None,))
    times = [YEAR_10000_US, CAESAR_US, 0]
    stream.epoch((0, [{"key": time, "v": {"day": 5_000_000, "at": time}, "n": n} for n, time in enumerate(times)]))
    return tmp_path.as_uri()


def run(store: str, *words: str) -> str:
    result = CliRunner().invoke(main, ["--store", store, *words])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


@pytest.mark.parametrize("command", [("read", NAME), ("changes", NAME, "--after", "0")])
def test_rows_are_shown_as_a_table_and_as_json(store: str, command: tuple[str, ...]) -> None:
    shown = run(store, *command)
    for text in ("+10000-01-01 00:00:00.000000+00:00", "-0044-03-15", "1970-01-01 00:00:00+00:00"):
        assert text in shown
    rows = sorted(json.loads(run(store, *command, "--json"))["data"], key=lambda row: int(row["n"]))
    assert [row["key"] for row in rows] == [FAR, LONG_AGO, "1970-01-01T00:00:00+00:00"]
    assert rows[0]["v"] == {"day": "+15659-07-15", "at": FAR}


@pytest.mark.parametrize(
    "key", [FAR, LONG_AGO, "10000-01-01T00:00:00Z", "-0044-03-15 00:00:00Z", "1970-01-01T00:00:00Z"]
)
def test_a_row_is_got_by_such_a_key(store: str, key: str) -> None:
    [row] = json.loads(run(store, "get", NAME, "--key", f"key={key}", "--json"))["data"]
    assert row["n"] == (2 if key.startswith("1970") else 0 if "10000" in key else 1)


@pytest.mark.parametrize(
    "array",
    [
        pa.array([2**63 - 1, -(2**63) + 1], pa.timestamp("us", "UTC")),
        pa.array([2**62, -(2**62), None], pa.timestamp("us")),
        pa.array([10**14], pa.timestamp("s")),
        pa.array([2**31 - 1, -(2**31)], pa.date32()),
    ],
)
def test_a_time_that_is_shown_can_be_written_as_a_key(array: pa.Array) -> None:
    read = read_times([None if value is None else str(value) for value in values_of(array)], array.type)
    assert read is not None
    assert read.equals(array)


@pytest.mark.parametrize("text", ["999999999-01-01T00:00:00", "10000-01-01T00:00:00Z", "10000-13", "soon"])
def test_what_is_no_such_time_is_not_read_as_one(text: str) -> None:
    assert read_times([text], pa.timestamp("us")) is None


def test_far_times_are_found_within_lists_and_maps() -> None:
    time = pa.timestamp("us")
    lists = pa.array([[YEAR_10000_US], None], pa.list_(time))
    maps = pa.array([[("k", YEAR_10000_US)]], pa.map_(pa.string(), time))
    text = "+10000-01-01T00:00:00.000000"
    assert (values_of(lists), values_of(maps)) == ([[text], None], [[("k", text)]])
