"""What exists for one step holds for several: the past, forks, reshards, damage, retention, readers, memory."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dagster_ckpt import agg
from dagster_ckpt.cli.output import text_tables
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.history.checkpoint_store import CheckpointStore
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.protocol.manifest.references import ancestors_named
from dagster_ckpt.protocol.object_names import folder_of
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.task.worker_engine import EngineOptions
from dagster_ckpt.runtime.upstreams.downstream import Downstream
from dagster_ckpt.runtime.upstreams.upstream_stream import newest_manifest, read_table
from tests.spark.streams import FAST, StreamUnderTest
from tests.spark.test_several_steps import drop, rows_of

SMALL = replace(FAST, engine=EngineOptions(memory_limit_bytes=16 * 1024**2))


def given(number: int) -> list[tuple[str, str, int]]:
    """Forty orders of ten shops, of which the next file repeats half."""
    return [(f"o{order}", f"s{order % 10}", order % 17) for order in range(20 * number, 20 * number + 40)]


def orders(rows: Stream) -> Stream:
    return rows.key_by("order").deduplicate()


def shops(once: Stream) -> Stream:
    return once.key_by("shop").aggregate(total=agg.sum("amount"), orders=agg.count())


def sizes(totals: Stream) -> Stream:
    return totals.with_column("size", "total div 50").key_by("size").aggregate(shops=agg.count(), all=agg.sum("total"))


def of_folder(folder: Path) -> Callable[[SparkSession], Stream]:
    return lambda session: sizes(shops(orders(rows_of(session, folder))))


def totals(files: Iterable[int]) -> dict[str, int]:
    each = {order: (shop, amount) for number in files for order, shop, amount in given(number)}
    found: Counter[str] = Counter()
    for shop, amount in each.values():
        found[shop] += amount
    return dict(found)


def expected(files: Iterable[int]) -> list[dict[str, int]]:
    by_size: dict[int, list[int]] = {}
    for total in totals(files).values():
        by_size.setdefault(total // 50, []).append(total)
    rows = ({"size": size, "shops": len(each), "all": sum(each)} for size, each in by_size.items())
    return sorted(rows, key=repr)


def fill(folder: Path, numbers: Iterable[int]) -> None:
    for number in numbers:
        drop(folder, number, given(number))


def check_work(manifest: Manifest) -> None:
    first, second, last = manifest.steps
    assert (first.rows_in, first.rows_out) == (40, 20), "half of them came before"
    assert (second.rows_in, second.rows_out) == (20, 20), "ten shops change, each from one row to another"
    assert last.rows_in == 20
    assert last.rows_out == manifest.statistics.rows_out > 0
    assert manifest.statistics.rows_in == 40
    assert all(each.milliseconds > 0 for each in manifest.steps)
    assert {each.step for each in manifest.slowest_shards} == {0, 1, 2}


def test_a_graph_has_a_past_is_forked_resharded_and_mended(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream, folder = StreamUnderTest(spark, tmp_path), tmp_path / "rows"
    function = of_folder(folder)
    fill(folder, range(2))
    stream.run(function, SMALL)
    first, second = (each.manifest.epoch for each in stream.epochs)
    history = stream.history()
    check_work(history.manifest())
    assert [stream.rows(epoch) for epoch in (first, second)] == [expected(range(n)) for n in (1, 2)]
    for row in expected([0]):
        assert history.get({"size": [row["size"]]}, epoch=first).to_pylist() == [row]

    fork = replace(stream, name="fork", epochs=[])
    history.fork("fork", epoch=first)
    fork.run(function, SMALL)
    assert fork.rows() == expected(range(2)), "the file that its origin had read later"
    assert len(ancestors_named(fork.history().manifest())) == 1
    assert fork.history().verify().whole

    for number, shards in ((2, 8), (3, 2)):
        assert history.reshard(shards).shards == shards
        fill(folder, [number])
        stream.run(function, SMALL)
        assert stream.history().manifest().shards == shards
        assert stream.rows() == expected(range(number + 1))
    assert history.verify().whole
    log = history.changes(after=first)
    net = Counter({tuple(row.values()): 1 for row in stream.rows(first)})
    for each in log.to_pylist():
        *values, _, change = each.values()
        net[tuple(values)] += 1 if change in ("insert", "update_postimage") else -1
    assert {row: n for row, n in net.items() if n} == {tuple(row.values()): 1 for row in stream.rows()}

    epochs = [each.manifest.epoch for each in stream.epochs]
    damaged = next(run for shard in history.manifest().runs["0.rows"] for run in shard if run.epoch == epochs[-1])
    (stream.folder / damaged.path).write_bytes(b"")
    verified = history.verify()
    assert [(each.object, each.step) for each in verified.findings] == [(damaged.path, 0)]
    text_tables.verify(stream.address.url, [verified])
    assert "in the state of step 0" in " ".join(capsys.readouterr().out.split())
    assert verified.good_epoch is not None
    history.rollback(verified.good_epoch)
    good = {epoch: files for files, epoch in enumerate(epochs, 1)}[verified.good_epoch]
    assert stream.rows() == expected(range(good))
    assert sum(each.rows_in for each in history.manifest().steps) > 0, "those of the epoch that is shown"


@pytest.mark.long
@pytest.mark.reads_streams
def test_one_graph_and_a_chain_of_streams_have_the_same_tables(spark_of_all: SparkSession, tmp_path: Path) -> None:
    """The same steps, cut over three streams; a stream behind several steps is read and cut like any other."""
    folder = tmp_path / "rows"
    whole = StreamUnderTest(spark_of_all, tmp_path, "whole", shards=2)
    start, middle, end = (StreamUnderTest(spark_of_all, tmp_path, name, shards=2) for name in ("one", "two", "three"))
    behind = StreamUnderTest(spark_of_all, tmp_path, "behind", shards=2)

    def reading(down: StreamUnderTest, up: StreamUnderTest, step: Callable[[Stream], Stream]) -> None:
        reads = Downstream(down.address, folder_of((down.name,)), epochs_max=100, tasks=2)
        down.run(lambda session: step(read_table(session, reads, newest_manifest(reads, (up.name,), SystemClock()))))

    for number in range(2):
        fill(folder, [number])
        whole.run(of_folder(folder))
        start.run(lambda session: orders(rows_of(session, folder)))
        reading(middle, start, shops)
        reading(end, middle, sizes)
        if number == 0:
            reading(behind, whole, lambda table: table.where("shops > 1"))
        assert whole.rows() == end.rows() == expected(range(number + 1))
        assert {row["shop"]: row["total"] for row in middle.rows()} == totals(range(number + 1))
    assert behind.rows() == [row for row in expected([0]) if row["shops"] > 1]
    cut = CheckpointStore(whole.address.url).snapshot(["whole", "behind"], consistency="aligned")
    assert cut.epochs["whole"] < whole.history().latest().epoch, "the epoch that its reader has seen"
    assert whole.rows(cut.epochs["whole"]) == expected([0])
