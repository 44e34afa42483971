from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.errors import IncompatibleStateError, InvalidPipelineError
from dagster_ckpt.ids import EMPTY, FIRST, Epoch, Version
from dagster_ckpt.protocol.manifest import Manifest, SourceIdentity, SourcePosition
from dagster_ckpt.runtime.plan import analysed_plan, leaves
from dagster_ckpt.runtime.sources import Source, positions_by_source, sources_of, without_secrets
from tests.worlds.manifests import a_manifest


def found(spark: SparkSession, frame: DataFrame) -> tuple[Source, ...]:
    return sources_of("a", spark, leaves(analysed_plan("a", frame)))


def having_read(*positions: SourcePosition, epoch: int = FIRST) -> Manifest:
    return a_manifest(version=Version(2), epoch=Epoch(epoch), sources=positions)


def parquet(spark: SparkSession, folder: Path | str, **options: str) -> DataFrame:
    return spark.readStream.schema("k long").options(**options).parquet(str(folder))


def test_a_folder_is_the_same_source_however_it_is_spelled_and_paced(spark: SparkSession, inbox: Path) -> None:
    [plain] = found(spark, parquet(spark, inbox))
    assert plain.identity == SourceIdentity("parquet", inbox.as_uri().replace("file:///", "file:/"))
    assert plain.reads_files
    for same in (f"{inbox}/", inbox.as_uri()):
        assert found(spark, parquet(spark, same, maxFilesPerTrigger="1"))[0].identity == plain.identity


def test_options_that_choose_rows_make_another_source(spark: SparkSession, inbox: Path) -> None:
    [source] = found(spark, parquet(spark, inbox, pathGlobFilter="*.parquet", latestFirst="false"))
    assert source.identity.options == (("pathglobfilter", "*.parquet"),)
    [rate] = found(spark, spark.readStream.format("rate").option("rowsPerSecond", "7").load())
    assert rate.identity == SourceIdentity("rate", "", (("rowspersecond", "7"),))
    assert not rate.reads_files


def test_equal_sources_are_counted_and_one_used_twice_is_one(spark: SparkSession, inbox: Path) -> None:
    once, again = parquet(spark, inbox), parquet(spark, inbox)
    first, second, rate = found(spark, once.union(once).union(again).union(ticks(spark)))
    assert (first.number, first.lines, first.identity.ordinal) == (0, (0, 1), 0)
    assert (second.number, second.lines, second.identity.ordinal) == (1, (2,), 1)
    assert (rate.number, rate.lines, rate.identity.ordinal) == (2, (3,), 0)


def ticks(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate").load().selectExpr("value as k")


def test_positions_follow_their_source_when_the_plan_is_reordered(spark: SparkSession, inbox: Path) -> None:
    sources = found(spark, parquet(spark, inbox).union(ticks(spark)))
    positions = [SourcePosition(source.identity, current=str(source.number)) for source in sources]
    swapped = found(spark, ticks(spark).union(parquet(spark, inbox)))
    assert [position.current for position in positions_by_source(swapped, having_read(*positions))] == ["1", "0"]


def test_another_source_on_existing_state_is_refused_and_named(spark: SparkSession, inbox: Path) -> None:
    [source] = found(spark, parquet(spark, inbox))
    position = SourcePosition(source.identity, current="0")
    with pytest.raises(IncompatibleStateError, match=rf"gone=\['parquet file:{inbox}'\], new=\['rate"):
        positions_by_source(found(spark, ticks(spark)), having_read(position))
    with pytest.raises(IncompatibleStateError, match=r"gone=\[\], new=\['rate"):
        positions_by_source(found(spark, ticks(spark).union(parquet(spark, inbox))), having_read(position))


def test_epoch_0_takes_any_sources_and_begins_where_those_it_knows_began(spark: SparkSession, inbox: Path) -> None:
    [rate] = found(spark, ticks(spark))
    begun = SourcePosition(rate.identity, initial="then")
    sources = found(spark, ticks(spark).union(parquet(spark, inbox)))
    emptied = having_read(begun, SourcePosition(SourceIdentity("kafka", ""), initial="12"), epoch=EMPTY)
    assert positions_by_source(sources, emptied) == (begun, SourcePosition(sources[1].identity))


def test_a_source_that_cannot_be_read_again_is_refused(spark: SparkSession, inbox: Path) -> None:
    socket = spark.readStream.format("socket").option("host", "localhost").option("port", "1").load()
    with pytest.raises(InvalidPipelineError, match=r"asset=a, source=.*socket"):
        found(spark, socket)
    with pytest.raises(InvalidPipelineError, match="cleanSource=delete"):
        found(spark, parquet(spark, inbox, cleanSource="delete"))


def test_a_password_in_an_address_is_never_kept() -> None:
    assert without_secrets("s3a://key:secret@bucket/in") == "s3a://bucket/in"
    assert without_secrets("file:/data/a@b") == "file:/data/a@b"
    assert without_secrets("file:///a@b/c") == "file:///a@b/c"
    assert without_secrets("jdbc:postgresql://me:secret@host:5432/db") == "jdbc:postgresql://host:5432/db"
    assert without_secrets("jdbc:postgresql://host/db?user=me&ssl=true&password=secret") == (
        "jdbc:postgresql://host/db?ssl=true"
    )
    assert without_secrets("jdbc:sqlserver://host;userName=me;PASSWORD=secret;database=db") == (
        "jdbc:sqlserver://host;database=db"
    )
    assert without_secrets("jdbc:oracle:thin:me/secret@//host:1521/db") == "jdbc:oracle:thin:@//host:1521/db"
    assert without_secrets("file:/data/user=5/token?") == "file:/data/user=5/token?"
