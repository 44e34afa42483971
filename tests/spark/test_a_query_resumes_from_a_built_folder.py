"""Spark resumes exactly where the built scratch folder ends, whatever the source."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.protocol.manifest.manifest import FileSeen, IndexedList, SourcePosition
from dagster_ckpt.runtime.catalyst.query_plan import analysed_plan, leaves
from dagster_ckpt.runtime.declared.sources import StreamSource, identify_sources
from dagster_ckpt.runtime.micro_batch.seen_files import files_table
from dagster_ckpt.runtime.micro_batch.spark_checkpoint import SparkCheckpoint, build_checkpoint, query_conf
from tests.spark.input_files import drop


@dataclass(frozen=True)
class Standing:
    """What a manifest would hold: the positions and the last batch."""

    positions: tuple[SourcePosition, ...]
    batch_id: int | None = None


def found_sources(spark: SparkSession, frame: DataFrame) -> tuple[StreamSource, ...]:
    return identify_sources("a", spark, leaves(analysed_plan("a", frame)))


def built(spark: SparkSession, sources: Sequence[StreamSource], standing: Standing) -> SparkCheckpoint:
    files = {index: [files_table(position.files.tail)] for index, position in enumerate(standing.positions)}
    return build_checkpoint(
        sources, standing.positions, files, standing.batch_id, query_conf(spark), "0123456789abcdef" * 2
    )


def run(frame: DataFrame, standing: Standing, batches_max: int = 99) -> tuple[Standing, list[set[int]]]:
    """Run at most that many batches, as one query; returns the positions and the values of each batch."""
    sources = found_sources(frame.sparkSession, frame)
    scratch = built(frame.sparkSession, sources, standing)
    seen: list[set[int]] = []
    ids: list[int] = []
    standings = [standing]

    def work(batch: DataFrame, batch_id: int) -> None:
        if len(seen) == batches_max:
            return  # killed: whatever Spark does from here on is lost
        assert batch_id == scratch.last_batch + len(seen) + 1
        advances = scratch.advances(batch_id)
        positions = tuple(
            replace(
                position,
                current=advance.current,
                initial=advance.initial,
                files=IndexedList((), (*position.files.tail, *advance.files)),
            )
            for position, advance in zip(standings[-1].positions, advances, strict=True)
        )
        seen.append({row[0] for row in batch.select("v").collect()})
        ids.append(batch_id)
        standings.append(Standing(positions, batch_id))

    query = (
        frame.writeStream.foreachBatch(work)
        .option("checkpointLocation", scratch.location)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    scratch.remove()
    return standings[-1], seen


def files(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema("v long").option("maxFilesPerTrigger", "1").parquet(str(folder))


def fill(folder: Path, first: int, last: int) -> None:
    for number in range(first, last):
        drop(folder, number, pa.table({"v": [number]}))


def start(spark: SparkSession, frame: DataFrame) -> Standing:
    return Standing(tuple(SourcePosition(source.identity) for source in found_sources(spark, frame)))


def test_files_are_read_once_each_over_restarts_after_every_batch(spark: SparkSession, inbox: Path) -> None:
    fill(inbox, 0, 5)
    standing, worked = start(spark, files(spark, inbox)), []
    for _ in range(5):
        standing, batches = run(files(spark, inbox), standing, batches_max=1)
        worked += batches
    assert worked == [{0}, {1}, {2}, {3}, {4}]
    assert run(files(spark, inbox), standing) == (standing, [])
    [position] = standing.positions
    assert [Path(file.path).name for file in position.files.tail] == [f"{number:05d}.parquet" for number in range(5)]


def test_a_log_that_spark_compacted_gives_each_file_once(spark: SparkSession, inbox: Path) -> None:
    fill(inbox, 0, 7)
    spark.conf.set("spark.sql.streaming.fileSource.log.compactInterval", "3")
    standing, worked = run(files(spark, inbox), start(spark, files(spark, inbox)))
    assert worked == [{number} for number in range(7)]
    assert len(set(standing.positions[0].files.tail)) == len(standing.positions[0].files.tail) == 7
    fill(inbox, 7, 9)
    assert run(files(spark, inbox), standing)[1] == [{7}, {8}]


def test_two_sources_keep_their_positions_when_reordered(spark: SparkSession, inbox: Path) -> None:
    left, right = inbox / "left", inbox / "right"
    fill(left, 0, 3)
    fill(right, 100, 101)
    frame = files(spark, left).union(files(spark, right))
    standing, worked = run(frame, start(spark, frame), batches_max=2)
    assert worked == [{0, 100}, {1}]
    fill(right, 101, 102)
    swapped = files(spark, right).union(files(spark, left))
    turned = Standing(standing.positions[::-1], standing.batch_id)
    assert run(swapped, turned)[1] == [{2, 101}]


def test_a_source_used_twice_and_one_without_a_position_yet(spark: SparkSession, inbox: Path) -> None:
    left, right = inbox / "left", inbox / "right"
    fill(left, 0, 2)
    right.mkdir()
    once = files(spark, left)
    frame = once.union(files(spark, right)).union(once)
    standing, worked = run(frame, start(spark, frame), batches_max=1)
    assert worked == [{0}]
    assert standing.positions[1].current is None
    fill(right, 7, 8)
    assert run(frame, standing)[1] == [{1, 7}]


def test_the_rate_source_keeps_its_initial_position(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "3").load().selectExpr("value as v")
    standing, worked = run(frame, start(spark, frame))
    assert worked == [{0, 1, 2}]
    assert run(frame, standing)[1] == [{3, 4, 5}]


def test_paths_with_spaces_and_umlauts_are_read_once(spark: SparkSession, tmp_path: Path) -> None:
    inbox = tmp_path / "grüße an alle"
    fill(inbox, 0, 2)
    standing, worked = run(files(spark, inbox), start(spark, files(spark, inbox)), batches_max=1)
    assert worked == [{0}]
    assert run(files(spark, inbox), standing)[1] == [{1}]
    assert isinstance(standing.positions[0].files.tail[0], FileSeen)


def test_a_built_folder_has_the_settings_that_spark_itself_writes(spark: SparkSession, inbox: Path) -> None:
    fill(inbox, 0, 1)
    frame = files(spark, inbox)
    scratch = built(spark, found_sources(spark, frame), start(spark, frame))
    query = (
        frame.writeStream.foreachBatch(lambda batch, batch_id: None)
        .option("checkpointLocation", scratch.location)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    offsets = Path(scratch.location.removeprefix("file://")) / "offsets"
    ours, sparks = (
        json.loads((offsets / str(batch)).read_text().splitlines()[1])["conf"]
        for batch in (scratch.last_batch, scratch.last_batch + 1)
    )
    assert ours == sparks != {}
    scratch.remove()
