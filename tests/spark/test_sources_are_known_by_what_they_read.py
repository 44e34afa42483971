from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.errors import IncompatibleStateError, InvalidPipelineError
from dagster_ckpt.ids import EMPTY, FIRST, Epoch, Version
from dagster_ckpt.protocol.manifest.manifest import Manifest, SourceIdentity, SourcePosition
from dagster_ckpt.runtime.catalyst.query_plan import Leaf, analysed_plan, leaves
from dagster_ckpt.runtime.declared import sources
from dagster_ckpt.runtime.declared.sources import StreamSource, identify_sources, positions_by_source, spell_moves
from tests.worlds.manifests import a_manifest


def found(spark: SparkSession, frame: DataFrame) -> tuple[StreamSource, ...]:
    return identify_sources("a", spark, leaves(analysed_plan("a", frame)))


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
    before = found(spark, parquet(spark, inbox).union(ticks(spark)))
    positions = [SourcePosition(source.identity, current=str(source.number)) for source in before]
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
    both = found(spark, ticks(spark).union(parquet(spark, inbox)))
    emptied = having_read(begun, SourcePosition(SourceIdentity("kafka", ""), initial="12"), epoch=EMPTY)
    assert positions_by_source(both, emptied) == (begun, SourcePosition(both[1].identity))


def test_a_source_that_cannot_be_read_again_is_refused(spark: SparkSession, inbox: Path) -> None:
    socket = spark.readStream.format("socket").option("host", "localhost").option("port", "1").load()
    with pytest.raises(InvalidPipelineError, match=r"asset=a, source=.*socket"):
        found(spark, socket)
    with pytest.raises(InvalidPipelineError, match="cleanSource=delete"):
        found(spark, parquet(spark, inbox, cleanSource="delete"))


def test_a_token_in_an_address_is_not_part_of_the_source(spark: SparkSession, inbox: Path) -> None:
    folder = inbox / "day?sig=abc&v=1"
    folder.mkdir()
    [source] = found(spark, parquet(spark, folder))
    assert source.identity == SourceIdentity("parquet", f"file:{inbox}/day")
    assert source.path == f"file:{folder}"
    assert "abc" not in repr(source)


def test_a_kafka_source_is_its_topics_however_the_brokers_are_reached(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No jar of Kafka's is here: what its plan says is given as Spark says it of any source."""
    brokers = {0: "a:9092", 1: "a:9092"}

    def as_kafka(asset: str, session: SparkSession, leaf: Leaf) -> StreamSource:
        identity = SourceIdentity("kafka", brokers[leaf.number], (("subscribe", "departures"),))
        return StreamSource(identity, leaf.number, (), reads_files=False)

    monkeypatch.setattr(sources, "_source", as_kafka)
    [one] = found(spark, ticks(spark))
    assert one.identity == SourceIdentity("kafka", "", (("subscribe", "departures"),))
    twice = found(spark, ticks(spark).union(ticks(spark)))
    assert [(each.identity.address, each.identity.ordinal) for each in twice] == [("", 0), ("", 1)]
    brokers[1] = "b:9092"
    both = found(spark, ticks(spark).union(ticks(spark)))
    assert [each.identity.address for each in both] == ["a:9092", "b:9092"], "two clusters with topics of one name"


def test_moves_are_spelled_as_sources_are(spark: SparkSession, inbox: Path) -> None:
    moved = {str(inbox): f"{inbox.as_uri()}-2/", "s3a://me:pw@old/in/": "s3a://new/in", "a:9092,b:9092": "c:9092"}
    assert spell_moves("a", spark, moved) == (
        (f"file:{inbox}", f"file:{inbox}-2"),
        ("s3a://old/in", "s3a://new/in"),
        ("a:9092,b:9092", "c:9092"),
    )
    with pytest.raises(InvalidPipelineError, match="leave the pattern out"):
        spell_moves("a", spark, {"/in/*": "/out/*"})
