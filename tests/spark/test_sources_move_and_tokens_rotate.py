"""A stream goes on in a moved folder, and a token in an address is stored nowhere."""

import gzip
import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_ckpt.cli.output import documents
from dagster_ckpt.errors import CheckpointError, IncompatibleStateError
from dagster_ckpt.integration.events.epoch_metadata import epoch_metadata
from dagster_ckpt.runtime.declared.stream import Stream
from tests.spark.input_files import START_S, drop
from tests.spark.streams import FAST, Function, StreamUnderTest


def reading(folder: Path | str) -> Function:
    """A file at a time: of several with a `?` in their names Spark 4.2 reads each row of a micro-batch twice."""

    def function(spark: SparkSession) -> Stream:
        return Stream(spark.readStream.schema("k string").option("maxFilesPerTrigger", "1").parquet(str(folder)))

    return function


def whole_store(stream: StreamUnderTest) -> str:
    """Every byte of text in the store."""
    objects = (path.read_bytes() for path in (stream.root / "store").rglob("*") if path.is_file())
    unpacked = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data for data in objects)
    return b"\n".join(unpacked).decode(errors="replace")


@pytest.mark.parametrize("pattern", ["in", "*"])
def test_a_stream_goes_on_in_a_moved_folder_and_reads_no_file_again(
    stream: StreamUnderTest, tmp_path: Path, pattern: str
) -> None:
    old, new, newest = tmp_path / "old", tmp_path / "new place", tmp_path / "new place" / "again"
    (old / "in").mkdir(parents=True)
    drop(old / "in", 0, pa.table({"k": ["a"]}))
    stream.run(reading(old / pattern))
    old.rename(new)
    drop(new / "in", 1, pa.table({"k": ["b"]}))
    with pytest.raises(IncompatibleStateError, match=r"no longer reads parquet file:.*/old/.*set moved="):
        stream.run(reading(new / pattern))
    stream.moved = {str(old): str(new)}
    stream.run(reading(new / pattern))
    assert stream.rows() == [{"k": "a"}, {"k": "b"}]
    stream.moved = {}
    drop(new / "in", 2, pa.table({"k": ["c"]}))
    stream.run(reading(new / pattern))  # the manifest knows it from now on
    newest.mkdir()
    (new / "in").rename(newest / "in")
    drop(newest / "in", 3, pa.table({"k": ["d"]}))
    stream.moved = {f"file://{new}": f"file://{newest}"}  # a folder that is below where it was
    stream.run(reading(newest / pattern))
    stream.moved = {}
    stream.run(reading(newest / pattern))
    assert stream.rows() == [{"k": "a"}, {"k": "b"}, {"k": "c"}, {"k": "d"}]


def test_a_token_in_a_files_name_is_kept_nowhere_and_the_file_is_read_once(
    stream: StreamUnderTest, inbox: Path
) -> None:
    """As `wget` names them: `departures.parquet?sig=...`."""

    def arrive(number: int, name: str) -> Path:
        path = drop(inbox, number, pa.table({"k": [f"{number}"]})).rename(inbox / name)
        os.utime(path, (START_S + number, START_S + number))
        return path

    first = arrive(0, "departures.parquet?sig=SECRET0&page=1")
    arrive(1, "departures.parquet?sig=SECRET1&page=2")
    arrive(2, "departures.parquet")
    stream.run(reading(inbox))
    stream.run(reading(inbox))
    assert [row["k"] for row in stream.rows()] == ["0", "1", "2"], "seen files are still known as seen"
    first.rename(inbox / "departures.parquet?sig=SECRET9&page=1")  # a rotated token
    arrive(3, "departures.parquet?sig=SECRET3&page=3")
    stream.run(reading(inbox))
    assert [row["k"] for row in stream.rows()] == ["0", "1", "2", "3"]
    manifest = stream.history().manifest()
    shown = documents.show(stream.history().latest(), manifest, None)
    for text in (whole_store(stream), repr(manifest), repr(shown), repr(epoch_metadata(manifest))):
        assert "SECRET" not in text
    again = arrive(3, "departures.parquet?sig=SECRET4&page=4")
    assert again.exists()
    with pytest.raises(IncompatibleStateError, match=r"only some of these files were read.*there=2, read=1"):
        stream.run(reading(inbox))


def test_a_folder_with_a_token_is_the_same_source_with_another(stream: StreamUnderTest, tmp_path: Path) -> None:
    old, new = tmp_path / "in?sig=SECRET0", tmp_path / "in?sig=SECRET1"
    old.mkdir()
    drop(old, 0, pa.table({"k": ["a"]}))
    stream.run(reading(old))
    old.rename(new)
    drop(new, 1, pa.table({"k": ["b"]}))
    stream.run(reading(new))
    assert stream.rows() == [{"k": "a"}, {"k": "b"}]
    assert "SECRET" not in whole_store(stream)


def test_an_error_of_sparks_names_the_file_without_its_secrets(stream: StreamUnderTest, inbox: Path) -> None:
    (inbox / "departures.parquet?sig=SECRET").write_bytes(b"this is no Parquet")
    with pytest.raises(CheckpointError, match=r"departures\.parquet%3F\.\.\.") as raised:
        stream.run(reading(inbox), replace(FAST, tolerable_failures=0))
    assert "SECRET" not in f"{raised.value!r} {raised.value.__cause__!r}"
    assert raised.value.__suppress_context__
