"""Parsing and functions use the time zone of the user's session; tasks and the store have UTC."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampNTZType, TimestampType

from dagster_ckpt import KeyedState, ProcessContext, ProcessFunction, SparkReader, agg, tumbling
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import IncompatibleStateError
from dagster_ckpt.integration.reading.io_manager import as_annotated
from dagster_ckpt.protocol.object_names import folder_of
from dagster_ckpt.runtime.declared.row_work import RowWork
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.upstreams.downstream import Downstream
from dagster_ckpt.runtime.upstreams.upstream_stream import newest_manifest, read_table
from tests.spark.streams import StreamUnderTest

ZONES = ["America/New_York", "Asia/Kolkata", "GMT-03:30"]
NIGHTS = ["2013-01-05 23:30:00", "2013-07-04 00:15:00", "2013-03-10 03:00:00"]


def zoned(spark: SparkSession, zone: str) -> SparkSession:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", zone)
    return session


@pytest.fixture(params=ZONES)
def zone(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def there(spark_of_all: SparkSession, zone: str) -> SparkSession:
    """The user's session."""
    return zoned(spark_of_all, zone)


@pytest.fixture
def stream(there: SparkSession, tmp_path: Path) -> StreamUnderTest:
    return StreamUnderTest(there, tmp_path)


@pytest.fixture
def nights(inbox: Path) -> Path:
    return nights_in(inbox)


def nights_in(folder: Path) -> Path:
    (folder / "nights.csv").write_text("".join(f"{number},{text}\n" for number, text in enumerate(NIGHTS)))
    return folder


@dataclass(frozen=True)
class Made:
    """A stream of `columns` that the user's session made, once for each zone; `batch` is the same in one batch."""

    zone: str
    there: SparkSession
    stream: StreamUnderTest
    batch: pa.Table


@pytest.fixture(scope="module", params=ZONES)
def made(request: pytest.FixtureRequest, spark_of_all: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Made:
    there = zoned(spark_of_all, request.param)
    nights, schema = nights_in(tmp_path_factory.mktemp("nights")), "n int, at timestamp"

    def read(reader: Callable[[], DataFrame]) -> DataFrame:
        return reader().select(*columns())

    stream = StreamUnderTest(there, tmp_path_factory.mktemp("stream"))
    stream.run(lambda spark: Stream(read(lambda: spark.readStream.schema(schema).csv(str(nights)))))
    return Made(request.param, there, stream, read(lambda: there.read.schema(schema).csv(str(nights))).toArrow())


def columns() -> list[Column]:
    at = F.col("at")
    return [
        F.col("n"),
        at,
        F.to_date(at).alias("day"),
        F.hour(at).alias("hour"),
        F.date_trunc("day", at).alias("midnight"),
        F.date_format(at, "yyyy-MM-dd HH:mm z").alias("text"),
        at.cast("timestamp_ntz").alias("wall"),
        F.to_timestamp(F.lit("2013-01-05 12:00:00")).alias("literal"),
        F.expr("timestamp'2013-01-05 12:00:00'").alias("constant"),
        F.current_timezone().alias("zone"),
        F.array(at).alias("list"),
        F.struct(at, F.array(F.struct(at))).alias("struct"),
        F.create_map(F.lit("at"), at).alias("map"),
    ]


def in_utc(rows: pa.Table, schema: pa.Schema) -> list[dict[str, object]]:
    return sorted(rows.cast(schema).to_pylist(), key=lambda row: row["n"])


def test_csv_and_functions_give_what_the_same_batch_gives(made: Made) -> None:
    table = made.stream.table()
    assert in_utc(table, table.schema) == in_utc(made.batch, table.schema)
    first = in_utc(table, table.schema)[0]
    if made.zone == "America/New_York":
        assert first["at"] == datetime(2013, 1, 6, 4, 30, tzinfo=UTC)
        assert (first["day"], first["hour"], first["zone"]) == (date(2013, 1, 5), 23, made.zone)
        assert first["midnight"] == datetime(2013, 1, 5, 5, tzinfo=UTC)
        assert first["text"] == "2013-01-05 23:30 EST"
    assert first["wall"] == datetime(2013, 1, 5, 23, 30)  # noqa: DTZ001  (a wall clock's)


def test_what_is_stored_is_labelled_utc(made: Made) -> None:
    for schema in (made.stream.table().schema, made.stream.history().manifest().pipeline.output):
        moment = pa.timestamp("us", tz="UTC")
        assert schema.field("at").type == moment
        assert schema.field("wall").type == pa.timestamp("us")
        assert schema.field("list").type.value_type == moment
        assert schema.field("map").type.item_type == moment


@pytest.mark.parametrize("zone", ["America/New_York"], indirect=True)
def test_a_day_as_a_key_is_the_users_day(stream: StreamUnderTest, nights: Path) -> None:
    def function(spark: SparkSession) -> Stream:
        rows = spark.readStream.schema("n int, at timestamp").csv(str(nights))
        days = rows.select(F.to_date("at").alias("day"), "at")
        return Stream(days).key_by("day").aggregate(rows=agg.count(), newest=agg.max("at"))

    stream.run(function)
    assert [row["day"] for row in stream.rows()] == [date(2013, 1, 5), date(2013, 3, 10), date(2013, 7, 4)]


@pytest.mark.parametrize("zone", ["Asia/Kolkata"], indirect=True)
def test_windows_and_joins_see_moments(stream: StreamUnderTest, nights: Path, zone: str) -> None:
    def timed(spark: SparkSession) -> Stream:
        rows = spark.readStream.schema("n int, at timestamp").csv(str(nights))
        return Stream(rows.select("n", "at")).with_watermark("at", "0s").key_by("n")

    def joined(spark: SparkSession) -> Stream:
        right = timed(spark)
        return timed(spark).interval_join(
            Stream(right.frame.withColumnRenamed("at", "then")).with_watermark("then", "0s").key_by("n"), "0s", "0s"
        )

    moment = datetime.fromisoformat(NIGHTS[0]).replace(tzinfo=_zone(zone))
    stream.run(
        lambda spark: timed(spark).window(tumbling("1 day"), on_end="flush").aggregate(rows=agg.count()),
    )
    starts = {row["window_start"] for row in stream.rows()}
    assert moment.astimezone(UTC).replace(hour=0, minute=0) in starts
    other = StreamUnderTest(stream.spark, stream.root, name="joined")
    other.run(joined)
    assert {row["n"]: row["then"] for row in other.rows()}[0] == moment


class Seen(ProcessFunction):
    """What type the event time has here."""

    output = pa.schema([("n", pa.int32()), ("type", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])

    def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
        types = pa.array([str(rows.schema.field("at").type)] * rows.num_rows)
        return pa.table({"n": rows["n"], "type": types, "at": rows["at"]})


def test_a_process_function_sees_utc(stream: StreamUnderTest, nights: Path, zone: str) -> None:
    def function(spark: SparkSession) -> Stream:
        return Stream(spark.readStream.schema("n int, at timestamp").csv(str(nights))).key_by("n").process(Seen())

    stream.run(function)
    rows = stream.table()
    assert pc.unique(rows["type"]).to_pylist() == ["timestamp[us, tz=UTC]"]
    moments = [datetime.fromisoformat(text).replace(tzinfo=_zone(zone)) for text in NIGHTS]
    assert sorted(rows["at"].to_pylist()) == sorted(moments)


@pytest.mark.parametrize("zone", ["America/New_York"], indirect=True)
def test_a_zone_set_within_the_function_holds_too(stream: StreamUnderTest, there: SparkSession, nights: Path) -> None:
    def function(spark: SparkSession) -> Stream:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
        rows = spark.readStream.schema("n int, at timestamp").csv(str(nights))
        noon = F.expr("timestamp'2013-01-05 12:00:00'")
        return Stream(rows.select("n", F.hour("at").alias("hour"), F.hour(noon).alias("noon")))

    stream.run(function)
    assert sorted((row["hour"], row["noon"]) for row in stream.rows()) == [(0, 12), (3, 12), (23, 12)]
    assert there.conf.get("spark.sql.session.timeZone") == "America/New_York"


def test_readers_give_the_same_moments_and_walls(made: Made) -> None:
    stream, there, table = made.stream, made.there, made.stream.table()
    for frame in (
        SparkReader(there, stream.address.url).read(stream.name),
        SparkReader(there, stream.address.url).changes(stream.name, after=0).drop("_epoch", "_change_type"),
    ):
        assert in_utc(frame.toArrow(), table.schema) == in_utc(table, table.schema)
        assert frame.where(F.hour("at") != F.col("hour")).count() == 0
        assert isinstance(frame.schema["wall"].dataType, TimestampNTZType)
        assert isinstance(frame.schema["at"].dataType, TimestampType)


def test_an_input_loaded_as_a_dataframe_keeps_moments_and_walls(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made.stream.table()
    monkeypatch.setattr("dagster_ckpt.integration.reading.io_manager._session", lambda: made.there)
    frame = as_annotated(table, DataFrame)
    assert isinstance(frame, DataFrame)
    assert in_utc(frame.toArrow(), table.schema) == in_utc(table, table.schema)
    assert isinstance(frame.schema["wall"].dataType, TimestampNTZType)
    assert frame.where(F.hour("at") != F.col("hour")).count() == 0


def moments_of(stream: StreamUnderTest, name: str) -> Downstream:
    return Downstream(stream.address, folder_of((name,)), 100, 2)


@pytest.mark.reads_streams
@pytest.mark.parametrize("zone", ["America/New_York"], indirect=True)
def test_a_condition_on_a_changing_table_keeps_the_zone_it_began_with(
    spark_of_all: SparkSession, stream: StreamUnderTest, nights: Path
) -> None:
    def newest(spark: SparkSession) -> Stream:
        rows = spark.readStream.schema("n int, at timestamp").csv(str(nights))
        return Stream(rows).key_by("n").aggregate(newest=agg.max("at"))

    def early(spark: SparkSession) -> Stream:
        reads = moments_of(stream, "down")
        return read_table(spark, reads, newest_manifest(reads, ("up",), SystemClock())).where("hour(newest) < 12")

    def down(zone: str) -> StreamUnderTest:
        return StreamUnderTest(zoned(spark_of_all, zone), stream.root, "down")

    StreamUnderTest(stream.spark, stream.root, "up").run(newest)
    down("America/New_York").run(early)
    assert down("America/New_York").history().read().num_rows > 0
    for zone in ("UTC", "Asia/Kolkata"):
        with pytest.raises(IncompatibleStateError, match=r"where was .*America/New_York"):
            down(zone).run(early)
    down("America/New_York").run(early)


@pytest.mark.reads_streams
@pytest.mark.parametrize("zone", ["America/New_York"], indirect=True)
def test_a_condition_is_named_with_a_zone_only_where_it_depends_on_one_that_is_not_utc(
    spark_of_all: SparkSession, there: SparkSession
) -> None:
    def named(session: SparkSession, condition: str) -> str:
        frame = session.createDataFrame([], "n int, at timestamp, wall timestamp_ntz, day date, text string")
        return RowWork(frame, frame.where(condition)).with_zone(condition)

    for condition in ("n > 1", "n > 1.5", "day = '2013-01-05'", "wall = wall", "CAST(n AS string) = text"):
        assert named(there, condition) == condition
    constants = ("at > '2013-01-06'", "at > timestamp'2013-01-06 00:00:00'")
    for condition in ("hour(at) = 3", "to_date(at) = day", "at > wall", "CAST(at AS string) = text", *constants):
        assert named(there, condition) == f"{condition} [in time zone America/New_York]"
        for utc in ("UTC", "Etc/UTC", "GMT", "+00:00"):
            assert named(zoned(spark_of_all, utc), condition) == condition


def _zone(name: str) -> ZoneInfo | None:
    if name == "GMT-03:30":
        return datetime.fromisoformat("2013-01-01T00:00:00-03:30").tzinfo  # type: ignore[return-value]
    return ZoneInfo(name)
