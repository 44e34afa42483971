"""The files of SQL that a new user copies give the tables of the demo's batch computation, while inputs change."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from assets import IN_SQL
from dagster_ckpt.testing import run_batches
from demo.batch import EXPECTED
from demo.comparison import difference

pytestmark = pytest.mark.usefixtures("spark_of_all")

BEGIN = datetime(2013, 1, 1, 20, tzinfo=UTC)
READS = {
    "slow_routes": ["delay_by_route", "delay_by_carrier"],
    "top_aircraft": ["busiest_aircraft"],
    "punctuality_by_day": ["departures"],
}


def flights(numbers: range) -> pl.DataFrame:
    """One each ten minutes. SFO becomes the slow route, N5 overtakes other aircraft, and N6 is often cancelled."""
    rows = [
        {
            "scheduled_at": BEGIN + timedelta(minutes=10 * number),
            "departed_at": None if number % 10 == 9 else BEGIN + timedelta(minutes=10 * number + 5),
            "dep_delay": None
            if number % 10 == 9
            else 60.0
            if number % 2 == 0 and number >= 60
            else 5.0 * (1 + number % 3),
            "carrier": "UA",
            "flight": number,
            "tailnum": None if number % 7 == 0 else f"N{6 if number % 10 == 9 else number % 7 if number < 60 else 5}",
            "origin": "EWR",
            "destination": "SFO" if number % 2 == 0 else "BOS",
            "distance": 2565,
        }
        for number in numbers
    ]
    return pl.DataFrame(rows).cast({"flight": pl.Int32, "distance": pl.Int32})


def changes(stream: str, before: pl.DataFrame, after: pl.DataFrame) -> list[pa.Table]:
    """What the stream commits for these rows of its table: rows that only come, or the old and the new version."""
    if stream == "departures":
        return [before.to_arrow(), after.join(before, on="flight", how="anti").to_arrow()]
    kind = {name: pl.lit(name).alias("_change_type") for name in ("insert", "delete")}
    changed = [before.with_columns(kind["delete"]), after.with_columns(kind["insert"])]
    return [before.with_columns(kind["insert"]).to_arrow(), pl.concat(changed).to_arrow()]


@pytest.mark.parametrize("table", READS)
def test_a_file_of_sql_gives_the_batch_table(table: str, tmp_path: Path) -> None:
    for folder, numbers in (("before", range(60)), ("after", range(160))):
        (tmp_path / folder).mkdir()
        flights(numbers).write_parquet(tmp_path / folder / "flights.parquet")

    def expected(stream: str, folder: str) -> pl.DataFrame:
        return EXPECTED[stream].of(tmp_path / folder, tmp_path)

    [asset] = [each for each in IN_SQL if each.key.path == [table]]
    batches = {each: changes(each, expected(each, "before"), expected(each, "after")) for each in READS[table]}
    keys = {each: list(EXPECTED[each].key) for each in READS[table] if each != "departures"}
    wanted = expected(table, "after")
    assert not wanted.equals(expected(table, "before"))
    assert not wanted.is_empty()
    assert not difference(pl.DataFrame(run_batches(asset, batches, keys=keys)), wanted, EXPECTED[table].key)


def test_each_file_is_tested() -> None:
    assert {asset.key.path[-1] for asset in IN_SQL} == READS.keys()
