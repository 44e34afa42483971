"""A query of Nexmark kept up to date, by us, by Spark's own state where Spark runs it, and by computing it again.

Spark's own is tried in update mode, and then in append mode with a watermark, where its table has final rows alone.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from benchmarks.disk import check_disk
from benchmarks.nexmark.events import Events
from benchmarks.nexmark.inbox import EventInbox, batch_tables, stream_tables
from benchmarks.nexmark.queries import QUERIES, prepare, tables_of
from benchmarks.ours import NAME, Ours
from benchmarks.plan import Name, QueryRace
from benchmarks.progress import Tell
from benchmarks.retired import RetiredFiles
from benchmarks.rivals import SparkQuery
from benchmarks.session import rivals_session, start
from benchmarks.sides import Side, worked
from dagster_ckpt import Stream
from dagster_ckpt.runtime.plans.compiler import stream_of_sql
from dagster_ckpt.runtime.spark.session import open_session
from dagster_ckpt.runtime.spark.spark_reader import SparkReader

_MODES = (("update", None), ("append", "20 seconds"))
"""Spark's output modes, each with the watermark's delay."""
_COMPILED = 5
"""So often a query is compiled, the first time by a planner that has seen no query."""


@dataclass(frozen=True)
class QueryFigures:
    """Seconds of the counted triggers by side, a list for each round; of each time in batch and of each compilation.

    `mode` is the output mode of Spark's own; None where Spark does not run the query, and `refusal` says why.
    """

    seconds: dict[str, list[list[float]]]
    batch_seconds: list[float]
    compile_seconds: list[float]
    mode: str | None
    refusal: str
    state_bytes: int
    table_rows: int


@dataclass(frozen=True)
class _Rival:
    """Spark's own state, filled, or why there is none."""

    query: SparkQuery | None
    mode: str | None
    refusal: str


def run_query_race(race: QueryRace, folder: Path, tell: Tell) -> dict[str, object]:
    """The figures as JSON has them. Raises RuntimeError where disk is short or the table is not that of the batch."""
    check_disk(folder, 4 * race.history)
    tell(f"{race.history:,} events are put in")
    spark = start(folder)
    inbox = EventInbox(folder / "inbox", tables_of(race.query), Events())
    store = folder / "store"
    files = inbox.put(race.history, race.fill_rows)
    tell(f"{Name.OURS} fills its state")
    compiled = [_compiled(spark, race, inbox) for _ in range(_COMPILED)]
    ours = Ours(compiled[-1][1], store, retained=1)
    if len(ours.work(seen=RetiredFiles(store).seen)) != files:
        raise RuntimeError(f"not one epoch a file. query={race.query}, files={files}")
    tell(f"{Name.SPARK} fills its state")
    rival = _rival(spark, race, inbox, folder, files)
    sides: dict[Name, Side] = {Name.OURS: ours} if rival.query is None else {Name.OURS: ours, Name.SPARK: rival.query}
    seconds: dict[str, list[list[float]]] = {name: [] for name in sides}
    batch_seconds = []
    for turn in range(1, race.rounds + 1):
        files = inbox.put((race.warm + race.counted) * race.rows, race.rows)
        for name, side in sides.items():
            tell(f"{name}, round {turn} of {race.rounds}")
            seconds[name].append([round(one, 4) for one in worked(name, side, files)[race.warm :]])
        tell(f"{Name.BATCH}, round {turn} of {race.rounds}")
        batch_seconds.append(round(_seconds(lambda: _thrown_away(_batch(spark, race, inbox))), 4))
    tell("is the table right?")
    found, expected = (
        _digest(SparkReader(rivals_session(spark), store.as_uri()).read(NAME)),
        _digest(_batch(spark, race, inbox)),
    )
    if found != expected:
        raise RuntimeError(f"the table is wrong. query={race.query}, table={found}, batch={expected}")
    figures = QueryFigures(
        seconds,
        batch_seconds,
        [each for each, _ in compiled],
        rival.mode,
        rival.refusal,
        ours.state_bytes,
        int(found[0]),
    )
    spark.stop()
    return asdict(figures)


def _compiled(spark: SparkSession, race: QueryRace, inbox: EventInbox) -> tuple[float, Stream]:
    """The seconds that it takes, and the stream."""
    frame = _streaming(open_session(spark), inbox)
    began = perf_counter()
    stream = stream_of_sql(frame, QUERIES[race.query])
    return round(perf_counter() - began, 4), stream


def _rival(spark: SparkSession, race: QueryRace, inbox: EventInbox, folder: Path, files: int) -> _Rival:
    refusal = ""
    for mode, delay in _MODES:
        session = rivals_session(spark)
        _streaming(session, inbox, delay)
        query = SparkQuery(session.sql(QUERIES[race.query]), folder / f"sparks-{mode}", mode)
        try:
            worked(Name.SPARK, query, files)
        except AnalysisException as error:
            refusal = refusal or str(error.getMessage()).split("\n", 1)[0]
        else:
            return _Rival(query, mode, refusal)
    return _Rival(None, None, refusal)


def _streaming(session: SparkSession, inbox: EventInbox, delay: str | None = None) -> DataFrame:
    prepare(session)
    return stream_tables(session, inbox.folder, inbox.tables, delay)


def _batch(spark: SparkSession, race: QueryRace, inbox: EventInbox) -> DataFrame:
    session = rivals_session(spark)
    prepare(session)
    batch_tables(session, inbox.folder, inbox.tables)
    return session.sql(QUERIES[race.query])


def _thrown_away(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _seconds(work: Callable[[], None]) -> float:
    began = perf_counter()
    work()
    return perf_counter() - began


def _digest(frame: DataFrame) -> Row:
    """The number of rows, and a sum of all of them that does not depend on their order."""
    frame = frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))
    texts = [F.coalesce(F.col(name).cast("string"), F.lit("null")) for name in frame.columns]
    whole = frame.select(F.xxhash64(*texts).cast("decimal(38,0)").alias("hash"))
    [found] = whole.agg(F.count("*"), F.sum("hash")).collect()
    return found
