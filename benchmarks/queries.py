"""A query of a known benchmark kept up to date, by us, by Spark's own state where it can, and by computing it again.

Spark's own is tried in update mode, and then in append mode with a watermark, where its table has final rows alone.
TPC-H's rows are updated and deleted, which no stream of Spark's own follows.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Protocol

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from benchmarks.disk import check_disk
from benchmarks.nexmark.events import Events
from benchmarks.nexmark.inbox import EventInbox
from benchmarks.nexmark.queries import QUERIES as NEXMARK
from benchmarks.nexmark.queries import tables_of as events_of
from benchmarks.ours import NAME, Ours
from benchmarks.plan import Name, QueryRace, Suite
from benchmarks.progress import Tell
from benchmarks.retired import RetiredFiles
from benchmarks.rivals import SparkQuery
from benchmarks.session import rivals_session, start
from benchmarks.sides import Side, worked
from benchmarks.tpch.inbox import TradeInbox
from benchmarks.tpch.queries import QUERIES as TPCH
from benchmarks.tpch.queries import tables_of
from dagster_ckpt import Stream
from dagster_ckpt.runtime.plans.compiler import stream_of_sql
from dagster_ckpt.runtime.spark.session import open_session
from dagster_ckpt.runtime.spark.spark_reader import SparkReader

_MODES = (("update", None), ("append", "20 seconds"))
"""Spark's output modes, each with the watermark's delay."""
_COMPILED = 5
"""So often a query is compiled, the first time by a planner that has seen no query."""


class Inbox(Protocol):
    """The tables of a query: files of each, one of which comes in each trigger."""

    def fill(self, rows: int, a_file: int, /) -> int:
        """The rows of the history; how many files that is."""
        ...

    def put(self, rows: int, a_file: int, /) -> int:
        """So many rows more; how many files that is."""
        ...

    def stream(self, session: SparkSession, delay: str | None = None) -> Mapping[str, Stream | DataFrame]:
        """The tables as they stream; they have their names in the session too. `delay` is that of a watermark."""
        ...

    def batch(self, session: SparkSession) -> None:
        """Give the tables their names, with the rows that they have now."""
        ...


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
    tell(f"{race.history:,} rows are put in")
    spark = start(folder)
    text, inbox = _asked(race, folder / "inbox")
    store = folder / "store"
    files = inbox.fill(race.history, race.fill_rows)
    tell(f"{Name.OURS} fills its state")
    compiled = [_compiled(spark, text, inbox) for _ in range(_COMPILED)]
    ours = Ours(compiled[-1][1], store, retained=1)
    if len(ours.work(seen=RetiredFiles(store).seen)) != files:
        raise RuntimeError(f"not one epoch a file. query={race.query}, files={files}")
    tell(f"{Name.SPARK} fills its state")
    rival = _rival(spark, race, text, inbox, folder, files)
    sides: dict[Name, Side] = {Name.OURS: ours} if rival.query is None else {Name.OURS: ours, Name.SPARK: rival.query}
    seconds: dict[str, list[list[float]]] = {name: [] for name in sides}
    batch_seconds, session = [], rivals_session(spark)
    for turn in range(1, race.rounds + 1):
        files = inbox.put((race.warm + race.counted) * race.rows, race.rows)
        for name, side in sides.items():
            tell(f"{name}, round {turn} of {race.rounds}")
            seconds[name].append([round(one, 4) for one in worked(name, side, files)[race.warm :]])
        tell(f"{Name.BATCH}, round {turn} of {race.rounds}")
        inbox.batch(session)
        batch_seconds.append(round(_batch_seconds(session, text), 4))
    tell("is the table right?")
    found, expected = (
        _digest(SparkReader(rivals_session(spark), store.as_uri()).read(NAME)),
        _digest(session.sql(text)),  # no row has come since
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


def _asked(race: QueryRace, folder: Path) -> tuple[str, Inbox]:
    """The query's text, and an inbox of the tables that it reads."""
    match race.suite:
        case Suite.NEXMARK:
            return NEXMARK[race.query], EventInbox(folder, events_of(race.query), Events())
        case Suite.TPCH:
            text = TPCH[race.query]
            return text, TradeInbox(folder, tables_of(text), race.history)


def _compiled(spark: SparkSession, text: str, inbox: Inbox) -> tuple[float, Stream]:
    """The seconds that it takes, and the stream."""
    session = open_session(spark)
    tables = inbox.stream(session)
    began = perf_counter()
    stream = stream_of_sql(session, text, tables)
    return round(perf_counter() - began, 4), stream


def _rival(spark: SparkSession, race: QueryRace, text: str, inbox: Inbox, folder: Path, files: int) -> _Rival:
    if race.suite is Suite.TPCH:
        return _Rival(None, None, "rows are updated and deleted")
    refusal = ""
    for mode, delay in _MODES:
        session = rivals_session(spark)
        inbox.stream(session, delay)
        query = SparkQuery(session.sql(text), folder / f"sparks-{mode}", mode)
        try:
            worked(Name.SPARK, query, files)
        except AnalysisException as error:
            refusal = refusal or str(error.getMessage()).split("\n", 1)[0]
        else:
            return _Rival(query, mode, refusal)
    return _Rival(None, None, refusal)


def _batch_seconds(session: SparkSession, text: str) -> float:
    """How long the query takes, its rows thrown away."""
    began = perf_counter()
    session.sql(text).write.format("noop").mode("overwrite").save()
    return perf_counter() - began


def _digest(frame: DataFrame) -> Row:
    """The number of rows, and a sum of all of them that does not depend on their order."""
    frame = frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))
    texts = [F.coalesce(F.col(name).cast("string"), F.lit("null")) for name in frame.columns]
    whole = frame.select(F.xxhash64(*texts).cast("decimal(38,0)").alias("hash"))
    [found] = whole.agg(F.count("*"), F.sum("hash")).collect()
    return found
