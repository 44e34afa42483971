"""A fork of a stream continues where its origin was, and each equals a batch over its input."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from dagster_ckpt import agg
from dagster_ckpt.protocol.manifest.references import ancestors_named
from dagster_ckpt.runtime.declared.stream import Stream
from tests.spark.input_files import drop
from tests.spark.streams import Function, StreamUnderTest

FORK = "dev/delays"


def counts(*folders: Path) -> Function:
    """How often each key comes; each input file is an epoch."""

    def function(spark: SparkSession) -> Stream:
        options = spark.readStream.schema("k long, v long").option("maxFilesPerTrigger", "1")
        [frame] = [options.parquet(str(folder)) for folder in folders]
        return Stream(frame).key_by("k").aggregate(n=agg.count(), total=agg.sum("v"))

    return function


def fill(folder: Path, numbers: Iterable[int]) -> None:
    for number in numbers:
        drop(folder, number, pa.table({"k": [each % 7 for each in range(20)], "v": range(number, number + 20)}))


def batch(numbers: Iterable[int]) -> list[dict[str, object]]:
    rows: dict[int, list[int]] = {}
    for number in numbers:
        for each in range(20):
            rows.setdefault(each % 7, []).append(number + each)
    return sorted(({"k": k, "n": len(v), "total": sum(v)} for k, v in rows.items()), key=repr)


def test_a_fork_goes_on_from_its_epoch_and_equals_batch(stream: StreamUnderTest, inbox: Path) -> None:
    fill(inbox, range(4))
    stream.run(counts(inbox))
    third = stream.epochs[2].manifest.epoch
    assert stream.history().fork(FORK, epoch=third).latest().epoch == 1
    fork = replace(stream, name=FORK, epochs=[])
    assert fork.rows() == batch(range(3))

    fill(inbox, range(4, 6))
    fork.run(counts(inbox))
    assert fork.rows() == batch(range(6)), "the fourth file too, which its origin had read after the epoch"
    assert fork.rows(1) == batch(range(3))
    assert len(fork.epochs) == 3
    assert ancestors_named(fork.history().manifest()), "nothing was copied"
    assert stream.rows() == batch(range(4))
    stream.run(counts(inbox))
    assert stream.rows() == batch(range(6))
    assert fork.history().verify().whole
