"""The same graph of steps as one stream of one, two or three steps, and as a chain of three streams, in turns."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from benchmarks.inputs import Inbox
from benchmarks.ours import Ours
from benchmarks.plan import GraphRace, Shape, Spread
from benchmarks.progress import Tell
from benchmarks.session import CORES, read_inbox, start
from dagster_ckpt import CheckpointStore, Stream, agg
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.protocol.object_names import folder_of
from dagster_ckpt.runtime.spark.session import open_session
from dagster_ckpt.runtime.upstreams.downstream import Downstream
from dagster_ckpt.runtime.upstreams.upstream_stream import newest_manifest, read_table
from dagster_ckpt.storage.stores.address import StoreAddress

Step = Callable[[Stream], Stream]

_LARGE = 10
"""So many groups of the second step are in one of the third's, as their numbers end."""


def run_graph_race(race: GraphRace, folder: Path, tell: Tell) -> dict[str, dict[str, list[list[float]]]]:
    """Seconds of the counted triggers by shape, a list for each round.

    Raises RuntimeError for a shape whose results are wrong, or that took other epochs than it was given files.
    """
    spark = start(folder)
    inbox = Inbox(folder / "inbox", race.keys, Spread.UNIFORM)
    steps = steps_of(race.groups)
    sides = {shape: _side(shape, spark, inbox.folder, folder / shape.name, steps) for shape in Shape}
    seconds: dict[str, list[list[float]]] = {shape: [] for shape in Shape}
    files = inbox.put_each_key(race.keys)
    for turn in range(race.rounds + 1):
        for shape, side in sides.items():
            tell(f"{shape}, round {turn} of {race.rounds}" if turn else f"{shape} fills its state")
            of_triggers = side.work()
            if len(of_triggers) != files:
                raise RuntimeError(f"not one epoch a file. shape={shape}, files={files}, epochs={len(of_triggers)}")
            if turn:
                seconds[shape].append([round(one, 4) for one in of_triggers[race.warm :]])
        if turn < race.rounds:
            files = race.warm + race.counted
            inbox.put(files, race.rows)
    truth = truths(inbox.sums(), race.groups)
    for shape, side in sides.items():
        tell(f"{shape}: are its results right?")
        expected = truth[min(side.steps, len(truth)) - 1]
        found = side.results().select(expected.column_names).cast(expected.schema)
        order = expected.column_names[0]
        if not found.sort_by(order).equals(expected.sort_by(order)):
            raise RuntimeError(f"the results are wrong. shape={shape}, rows={len(found)}, expected={len(expected)}")
    spark.stop()
    return {"seconds": seconds}


def steps_of(groups: int) -> list[Step]:
    """Running totals of each key, of each group of keys, of each group of groups. A changed key changes its group."""

    def of_keys(rows: Stream) -> Stream:
        return rows.key_by("k").aggregate(rows=agg.count(), total=agg.sum("w"))

    def of_groups(keys: Stream) -> Stream:
        grouped = keys.select(f"k % {groups} AS g", "rows", "total").key_by("g")
        return grouped.aggregate(keys=agg.count(), rows=agg.sum("rows"), total=agg.sum("total"))

    def of_large(table: Stream) -> Stream:
        grouped = table.select(f"g % {_LARGE} AS h", "keys", "rows", "total").key_by("h")
        return grouped.aggregate(keys=agg.sum("keys"), rows=agg.sum("rows"), total=agg.sum("total"))

    return [of_keys, of_groups, of_large]


def truths(rows: pa.Table, groups: int) -> list[pa.Table]:
    """The table after each of the steps, of the `k`, `rows` and `total` of all keys."""
    one = pa.chunked_array([pa.repeat(pa.scalar(1, pa.int64()), len(rows))])
    grouped = _grouped(rows.append_column("keys", one), "k", groups, "g")
    return [rows, grouped, _grouped(grouped, "g", _LARGE, "h")]


def _grouped(table: pa.Table, column: str, groups: int, name: str) -> pa.Table:
    rest = pc.subtract(table[column], pc.multiply(pc.divide(table[column], groups), groups))
    sums = ["keys", "rows", "total"]
    grouped = table.append_column(name, rest).group_by(name).aggregate([(each, "sum") for each in sums])
    return grouped.rename_columns([name, *sums])


class _OneStream:
    """All steps in one stream."""

    def __init__(self, spark: SparkSession, inbox: Path, folder: Path, steps: list[Step]) -> None:
        stream = Stream(read_inbox(open_session(spark), inbox))
        for step in steps:
            stream = step(stream)
        self.steps = len(steps)
        self._ours = Ours(stream, folder)

    def work(self) -> list[float]:
        return self._ours.work()

    def results(self) -> pa.Table:
        return self._ours.results()


class _Chain:
    """A stream for each step, which work one after another; each takes one epoch of the one before in one of its own.

    Of three that work at once each would have the cores to itself a third of the time.
    """

    def __init__(self, spark: SparkSession, inbox: Path, folder: Path, steps: list[Step]) -> None:
        self.steps = len(steps)
        self._spark = spark
        self._inbox = inbox
        self._folder = folder
        self._graph = steps
        self._names = [f"step{number}" for number in range(len(steps))]

    def work(self) -> list[float]:
        """Seconds of each file: those of its epochs in all streams."""
        first = self._graph[0](Stream(read_inbox(open_session(self._spark), self._inbox)))
        of_files = Ours(first, self._folder, name=self._names[0]).work()
        for upstream, name, step in zip(self._names, self._names[1:], self._graph[1:], strict=False):
            reads = Downstream(StoreAddress(self._folder.as_uri()), folder_of((name,)), epochs_max=1, tasks=CORES)
            newest = newest_manifest(reads, (upstream,), SystemClock())
            stream = step(read_table(open_session(self._spark), reads, newest))
            of_epochs = Ours(stream, self._folder, name=name).work()
            of_files = [sum(both) for both in zip(of_files, of_epochs, strict=True)]
        return of_files

    def results(self) -> pa.Table:
        self.work()
        return CheckpointStore(self._folder.as_uri()).stream(self._names[-1]).read()


def _side(shape: Shape, spark: SparkSession, inbox: Path, folder: Path, steps: list[Step]) -> "_OneStream | _Chain":
    match shape:
        case Shape.ONE:
            return _OneStream(spark, inbox, folder, steps[:1])
        case Shape.TWO:
            return _OneStream(spark, inbox, folder, steps[:2])
        case Shape.THREE:
            return _OneStream(spark, inbox, folder, steps)
        case Shape.CHAIN:
            return _Chain(spark, inbox, folder, steps)
