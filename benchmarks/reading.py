"""A table of many keys read whole, by Spark and by key, in turns with the same rows in one Parquet file."""

from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from benchmarks.disk import check_disk
from benchmarks.filling import fill_stream
from benchmarks.plan import Name, Read, Reading
from benchmarks.progress import Tell
from benchmarks.session import start
from dagster_ckpt import CheckpointStore
from dagster_ckpt.lsm.key_hash import key_hashes
from dagster_ckpt.operators import RunningAggregate, agg
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from dagster_ckpt.runtime.spark.spark_reader import SparkReader
from dagster_ckpt.storage.stores.address import StoreAddress

SHARDS = 8
STREAM = "sums"
INPUT = pa.schema([("key", pa.int64()), ("value", pa.int64())])
_VALUES = 1_000
Keys = npt.NDArray[np.int64]


def run_reading(reading: Reading, folder: Path, tell: Tell) -> dict[str, object]:
    """Seconds of each time, by what is read and from where.

    Raises RuntimeError where disk is short, or the rows are not those that were put in.
    """
    check_disk(folder, reading.keys)
    tell(f"{reading.keys:,} keys are put in")
    url, path = (folder / "store").as_uri(), folder / "rows.parquet"
    _fill(url, reading.keys, reading.fill_rows)
    stream = CheckpointStore(url).stream(STREAM)
    _check(stream.read(), np.arange(reading.keys))
    pq.write_table(stream.read(), path)
    spark, chance = start(folder), np.random.default_rng(7)
    reader = SparkReader(spark, url)
    seconds: dict[str, dict[str, list[float]]] = {}

    def in_turns(what: Read, ways: Mapping[Name, Callable[[], object]]) -> None:
        tell(f"{what}, {reading.times} times")
        for number in range(reading.times + 1):
            for name, way in ways.items():
                began = perf_counter()
                way()
                if number:  # the first time opens the files
                    seconds.setdefault(what, {}).setdefault(name, []).append(round(perf_counter() - began, 5))

    in_turns(Read.WHOLE, {Name.OURS: stream.read, Name.PARQUET: lambda: pq.read_table(path)})
    in_turns(
        Read.SPARK,
        {
            Name.OURS: lambda: _taken_in(reader.read(STREAM)),
            Name.PARQUET: lambda: pq.read_table(path),
            Name.SPARK: lambda: _taken_in(spark.read.parquet(str(path))),
        },
    )
    wanted: Keys = np.empty(0, np.int64)

    def ours() -> None:
        nonlocal wanted
        wanted = chance.choice(reading.keys, reading.asked, replace=False)
        _check(stream.get({"key": wanted}), wanted)

    def from_file() -> None:
        _check(pq.read_table(path, filters=ds.field("key").isin(wanted)), np.sort(wanted))

    in_turns(Read.KEYS, {Name.OURS: ours, Name.PARQUET: from_file})
    spark.stop()
    return {"seconds": seconds}


def _taken_in(frame: DataFrame) -> None:
    """All rows of a frame as Spark has them, thrown away."""
    frame.write.format("noop").mode("overwrite").save()


def _check(rows: pa.Table, keys: Keys) -> None:
    """Raise RuntimeError unless these are the rows of these keys, in whatever order."""
    rows = rows.sort_by("key")
    right = np.array_equal(rows["key"].to_numpy(), np.sort(keys))
    if not right or not np.array_equal(rows["total"].to_numpy(), np.sort(keys) % _VALUES):
        raise RuntimeError(f"other rows were read than were put in. keys={len(keys)}, rows={rows.num_rows}")


def _fill(url: str, keys: int, epoch_rows: int) -> None:
    """Put the keys in as epochs, in any order."""
    operator = RunningAggregate.build(("key",), {"rows": agg.count(), "total": agg.sum("value")}, InputSpec((), INPUT))
    every = np.random.default_rng(1).permutation(keys)
    parts = (every[first : first + epoch_rows] for first in range(0, keys, epoch_rows))
    epochs = ([pa.table({"key": part, "value": part % _VALUES}, schema=INPUT)] for part in parts)
    fill_stream(
        StoreAddress(url), STREAM, operator, SHARDS, epochs, lambda rows: key_hashes(rows.select(["key"])), retained=2
    )
