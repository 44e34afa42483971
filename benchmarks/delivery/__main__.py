"""`python -m benchmarks.delivery`: rows a second into each destination and out of Kafka, and how soon they are visible.

Into destinations: epochs are written without Spark beforehand; then a delivery takes them, a transaction each, and the
plain way writes the same rows from Parquet files, a commit each. In turns (A B A B), in one process, on the same
servers. Nothing else should run on the machine.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter

import click
import pyarrow.parquet as pq

from benchmarks.delivery.ways import DESTINATIONS, OURS, PLAIN, Way, way_to
from benchmarks.delivery.written_stream import WrittenStream, flights
from benchmarks.report.timing import Timing, p50, p95, times_as_fast
from benchmarks.report.words import count, duration
from tests.servers.kafka import kafka
from tests.servers.postgres import Database

SOURCE, LATENCY = "source", "latency"
PARTS = (*DESTINATIONS, SOURCE, LATENCY)


@click.command()
@click.option("--rows", default=100_000, show_default=True, help="In a batch.")
@click.option("--batches", default=10, show_default=True, help="Counted ones of each side in a round.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--seconds", default=60.0, show_default=True, help="How long rows are produced for the latency.")
@click.option("--only", default=",".join(PARTS), show_default=True, metavar="PARTS")
def main(rows: int, batches: int, rounds: int, seconds: float, only: str) -> None:
    """Measure, and print the tables of docs/benchmarks.md."""
    wanted = [part.strip() for part in only.split(",") if part.strip()]
    if unknown := [part for part in wanted if part not in PARTS]:
        raise click.UsageError(f"unknown parts: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    with ExitStack() as at_the_end:
        # PostgreSQL runs as another user where this one is root, who may not go into just any folder.
        folder = Path(tempfile.mkdtemp(prefix="dagster-ckpt-bench-"))
        at_the_end.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)
        database = broker = ""
        if {"postgres", LATENCY}.intersection(wanted):
            server = Database(folder / "postgres", "bench", "of the benchmark", "bench")
            at_the_end.callback(server.kill)
            database = server.url
        if {"kafka", SOURCE, LATENCY}.intersection(wanted):
            (folder / "kafka").mkdir()
            broker = at_the_end.enter_context(kafka(folder / "kafka")).address
        if destinations := [part for part in wanted if part in DESTINATIONS]:
            _head("destination", "the plain way", *_columns("delivered"), *_columns("plain"), "of the plain")
            for name in destinations:
                way = way_to(name, folder / f"to-{name}", database, broker)
                ours, plain = _measured(name, way, folder / f"of-{name}", rows, batches, rounds)
                _row(name, way.what, *_figures(ours), *_figures(plain), f"{times_as_fast(ours, plain):.2f} x")
        if SOURCE in wanted:
            from benchmarks.delivery.source import raced  # here: the others need no Spark

            ours, sparks = raced(broker, folder / SOURCE, rows, batches, rounds)
            _head("rows a trigger", *_columns("to a committed epoch"), *_columns("Spark's, noop sink"), "of Spark's")
            _row(f"{rows:,}", *_figures(ours), *_figures(sparks), f"{times_as_fast(ours, sparks):.2f} x")
        if LATENCY in wanted:
            from benchmarks.delivery.latency import measured

            took = measured(broker, database, folder / LATENCY, seconds)
            _head("rows", "p50", "p95", "most")
            _row(f"{len(took):,}", *(duration(each) for each in (p50(took), p95(took), max(took))))


def _measured(name: str, way: Way, folder: Path, rows: int, batches: int, rounds: int) -> tuple[Timing, Timing]:
    """The two sides. Raises RuntimeError where one has not written all rows."""
    stream, files = WrittenStream(folder / "store"), folder / "files"
    files.mkdir(parents=True)
    ours, plain, first = list[list[float]](), list[list[float]](), 0
    for turn in range(rounds + 1):
        batch_files = []
        for _ in range(batches + 1):
            table = flights(first, rows)
            stream.commit(table)
            batch_files.append(files / f"{first}.parquet")
            pq.write_table(table, batch_files[-1], compression="zstd")
            first += rows
        delivered, written = stream.deliver(name, way.to), [*_timed(way, batch_files)][1:]
        if turn:  # the first begins with the table as it is, and warms up
            ours.append(delivered)
            plain.append(written)
    for table_name in (OURS, PLAIN):
        if (found := way.rows(table_name)) != first:
            raise RuntimeError(f"not all rows are there. destination={name}, {table_name=}, rows={found} of {first}")
    return Timing(rows, ours), Timing(rows, plain)


def _timed(way: Way, files: list[Path]) -> Iterator[float]:
    for file in files:
        began = perf_counter()
        way.plain(file)
        yield perf_counter() - began


def _columns(side: str) -> list[str]:
    return [f"{side}, rows/s", "p50", "p95"]


def _figures(timing: Timing) -> list[str]:
    return [count(timing.rows_per_second), duration(p50(timing.seconds)), duration(p95(timing.seconds))]


def _head(*cells: str) -> None:
    print()
    _row(*cells)
    _row(*("---" for _ in cells))


def _row(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
