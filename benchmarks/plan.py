"""What is measured: cells, each small enough to be done again alone.

A cell's name is `part/what`. Change a number here and the cell counts as another: figures of the old one are not kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Spread(StrEnum):
    """How often a key occurs: all alike, or the key of rank r with a chance of 1/r."""

    UNIFORM = "uniform"
    ZIPF = "zipf"


class Name(StrEnum):
    """Who takes part in a race, by the name that tables and pictures show."""

    OURS = "dagster-ckpt"
    NATIVE = "groupBy().agg()"
    PANDAS = "transformWithStateInPandas"
    ROWS = "transformWithState"
    APPLY = "applyInPandasWithState"
    SPARK = "Spark's own"
    NOTHING = "doing nothing"
    BATCH = "in batch"
    PROCESS = "a process function"
    PARQUET = "one Parquet file"


class Work(StrEnum):
    """A step in event time, by the name that tables show."""

    TUMBLING = "tumbling window"
    SESSION = "session window"
    DEDUPLICATE = "deduplicate"
    INTERVAL_JOIN = "interval join"
    CHAINED = "windows of windows"


class Shape(StrEnum):
    """How much of the same graph of steps a side is, by the name that tables show."""

    ONE = "one step"
    TWO = "two steps"
    THREE = "three steps"
    CHAIN = "a chain of three streams"


class Suite(StrEnum):
    """A known benchmark whose queries are kept up to date, by the name that tables show."""

    NEXMARK = "Nexmark"
    TPCH = "TPC-H"


class Read(StrEnum):
    """What is read of a table, by the name that tables show."""

    WHOLE = "all rows, `read()`"
    SPARK = "all rows, `SparkReader` on two cores"
    KEYS = "1,000 keys, `get`"


class Table(StrEnum):
    """A step over a table that changes, by the name that tables show."""

    JOIN = "join"
    TOP = "top 3"
    OVER = "row_number"
    LEAST = "min"
    INTERSECT = "intersect"


@dataclass(frozen=True, slots=True)
class Triggers:
    """Triggers of one size: `warm` that do not count, of `warm_rows` each, then `counted` of `rows`."""

    rows: int
    warm: int
    counted: int
    warm_rows: int


@dataclass(frozen=True, slots=True)
class Race:
    """Sides that take the same files in turns: A B A B, `rounds` times all `triggers`.

    First each side takes every key once, in triggers of `fill_rows`. In the end the results of `checked` keys must be
    right.
    """

    keys: int
    spread: Spread
    sides: tuple[Name, ...]
    rounds: int
    triggers: tuple[Triggers, ...]
    checked: int
    fill_rows: int = 1_000_000

    @property
    def steps(self) -> int:
        """How often a side is set to work."""
        return len(self.sides) * (2 + self.rounds)


@dataclass(frozen=True, slots=True)
class StepRace:
    """Our step and Spark's own in turns, as in a `Race`; `rows` a file of each input, one file of each a trigger.

    A file is `span_s` of event time, rows out of order by up to half the watermark's delay of `delay_s`. `keys` are in
    use at once, and with each file `moved` of them give way to new ones. `reach_s` is a window's size, a session's gap,
    how long a join's rows wait. First both take `fill` files; then in each round `warm` that do not count, and
    `counted`.
    """

    work: Work
    keys: int
    moved: int
    rows: int
    span_s: int
    delay_s: int
    reach_s: int
    fill: int
    rounds: int
    warm: int
    counted: int

    @property
    def steps(self) -> int:
        """How often a side is set to work, and what is checked afterwards."""
        return 2 * (2 + self.rounds) + 1


@dataclass(frozen=True, slots=True)
class Growth:
    """Our triggers of `rows` at a state of `keys`, then `recoveries` by a process that knows nothing of it."""

    keys: int
    rows: int
    warm: int
    counted: int
    recoveries: int
    fill_rows: int

    @property
    def steps(self) -> int:
        return 4 + self.recoveries


@dataclass(frozen=True, slots=True)
class GraphRace:
    """Shapes of the graph in `graph.py` in turns, as in a `Race`: running totals of `keys`, then of `groups` of them.

    First each takes every key once, in one trigger.
    """

    keys: int
    groups: int
    rows: int
    rounds: int
    warm: int
    counted: int

    @property
    def steps(self) -> int:
        """How often a side is set to work."""
        return len(Shape) * (2 + self.rounds)


@dataclass(frozen=True, slots=True)
class QueryRace:
    """A query behind a history of so many rows: our triggers of `rows` more, Spark's own, and the query in batch.

    Rows are Nexmark's events of all tables, or changes of TPC-H's line items: its other tables have their share. In
    each of `rounds` either side takes `warm` triggers that do not count, and `counted`; then the batch runs once.
    """

    suite: Suite
    query: str
    history: int
    rows: int
    rounds: int
    warm: int
    counted: int
    fill_rows: int

    @property
    def steps(self) -> int:
        return 4 + 3 * self.rounds


@dataclass(frozen=True, slots=True)
class TableGrowth:
    """Our triggers of `rows`, of each input, where the step behind running totals keeps the rows of `keys`.

    `group` of them are in one group, partition or key's rows.
    """

    table: Table
    keys: int
    group: int
    rows: int
    warm: int
    counted: int
    fill_rows: int

    @property
    def steps(self) -> int:
        return 3


@dataclass(frozen=True, slots=True)
class Alone:
    """The engine without Spark: one of `tasks` works its part of the `keys`, in epochs of `rows`."""

    keys: int
    tasks: int
    shards: int
    rows: int
    warm: int
    counted: int
    fill_rows: int

    @property
    def steps(self) -> int:
        return 2


@dataclass(frozen=True, slots=True)
class Commits:
    """Manifests of `shards` with `runs` runs each, created one after another; `tasks` write files for equal parts."""

    shards: int
    tasks: int
    runs: int
    warm: int
    counted: int

    @property
    def steps(self) -> int:
        return 1


@dataclass(frozen=True, slots=True)
class Spreading:
    """The same triggers of `rows` by streams of other numbers of shards and tasks, in turns, as in a `Race`.

    `sides` are such pairs. First each takes every one of `keys` once.
    """

    keys: int
    sides: tuple[tuple[int, int], ...]
    rows: int
    rounds: int
    warm: int
    counted: int

    @property
    def steps(self) -> int:
        """How often a side is set to work."""
        return len(self.sides) * (2 + self.rounds)


def spread_as(shards: int, tasks: int) -> str:
    """The name of a stream of so many."""
    return f"{shards}x{tasks}"


@dataclass(frozen=True, slots=True)
class Reading:
    """A table of `keys`, put in by epochs of `fill_rows`: what `Read` has, `times` each; of `asked` keys by key."""

    keys: int
    fill_rows: int
    asked: int
    times: int

    @property
    def steps(self) -> int:
        return 1 + len(Read)


NEXMARK = tuple(f"q{number}" for number in range(23) if number != 12)
"""The queries that can be kept up to date: all but the one whose meaning is processing time alone."""
TPCH = tuple(f"{number:02d}" for number in range(1, 23))

Cell = Race | StepRace | GraphRace | QueryRace | TableGrowth | Growth | Alone | Commits | Spreading | Reading
Plan = Mapping[str, Cell]


def _alike(rows: int, warm: int, counted: int) -> Triggers:
    return Triggers(rows, warm, counted, warm_rows=rows)


# Warm triggers are small: what a turn must warm up is the query and its processes, and a key takes a rival its time.
_IN_PYTHON = Triggers(20_000, 10, 2, warm_rows=1_000)
_JVM = (Name.OURS, Name.NATIVE)
_PYTHON = (Name.OURS, Name.PROCESS, Name.PANDAS, Name.ROWS, Name.APPLY)
_SIZES = (_alike(1_000, 30, 20), _alike(20_000, 2, 8), _alike(200_000, 2, 8), _alike(1_000_000, 1, 3))


def _native(keys: int, spread: Spread, sides: tuple[Name, ...] = _JVM) -> Race:
    return Race(keys, spread, sides, rounds=3, triggers=_SIZES, checked=keys)


def _python(keys: int, spread: Spread, *triggers: Triggers, rounds: int = 2) -> Race:
    # Their time goes by the key, up to 10 seconds a trigger: few of them, and few keys to check.
    return Race(keys, spread, _PYTHON, rounds, triggers, checked=10_000)


def _windows(work: Work, keys: int, moved: int) -> StepRace:
    # A key that leaves was there for five files; two spans without one end its session.
    return StepRace(
        work, keys, moved, rows=200_000, span_s=20, delay_s=20, reach_s=60 if work is Work.TUMBLING else 40,
        fill=10, rounds=3, warm=1, counted=6,
    )  # fmt: skip


def _events(rows: int, fill: int, rounds: int, counted: int) -> StepRace:
    # Each event comes twice on the average, within two files; it is known for as long as the watermark's delay.
    return StepRace(
        Work.DEDUPLICATE, keys=rows, moved=rows // 2, rows=rows, span_s=20, delay_s=120, reach_s=120,
        fill=fill, rounds=rounds, warm=1, counted=counted,
    )  # fmt: skip


def _pairs(rows: int, fill: int, rounds: int, counted: int) -> StepRace:
    # A row of the left has one partner on the average, within the ten minutes after it.
    return StepRace(
        Work.INTERVAL_JOIN, keys=10 * rows, moved=0, rows=rows, span_s=60, delay_s=60, reach_s=600,
        fill=fill, rounds=rounds, warm=1, counted=counted,
    )  # fmt: skip


def _chained(rows: int, fill: int, rounds: int, counted: int) -> StepRace:
    # Windows of a third of a minute, in windows of a minute, in windows of three.
    return StepRace(
        Work.CHAINED, keys=100_000, moved=0, rows=rows, span_s=20, delay_s=20, reach_s=60,
        fill=fill, rounds=rounds, warm=1, counted=counted,
    )  # fmt: skip


def _graph(rows: int, warm: int, counted: int) -> GraphRace:
    return GraphRace(keys=100_000, groups=1_000, rows=rows, rounds=3, warm=warm, counted=counted)


def _table(table: Table, keys: int) -> TableGrowth:
    return TableGrowth(table, keys, group=10, rows=50_000, warm=10, counted=30, fill_rows=500_000)


def _nexmark(query: str, history: int) -> QueryRace:
    return QueryRace(Suite.NEXMARK, query, history, rows=50_000, rounds=2, warm=3, counted=8, fill_rows=500_000)


def _tpch(query: str) -> QueryRace:
    # Scale 1; a trigger changes a thousandth of each table.
    return QueryRace(Suite.TPCH, query, 6_000_000, rows=6_000, rounds=2, warm=3, counted=8, fill_rows=600_000)


def _spreading(rows: int, warm: int, counted: int) -> Spreading:
    # The most files that an epoch has are those of 64 tasks; a task of 512 shards has the most to look through.
    sides = ((8, 2), (64, 2), (512, 2), (64, 8), (64, 32), (64, 64))
    return Spreading(1_000_000, sides, rows, rounds=2, warm=warm, counted=counted)


def _growth(keys: int) -> Growth:
    return Growth(keys, rows=200_000, warm=10, counted=60, recoveries=3, fill_rows=2_000_000)


def _alone(keys: int) -> Alone:
    # Half of what a trigger of the growth has, in half of the shards: so much each of its two tasks gets.
    return Alone(keys, tasks=2, shards=4, rows=100_000, warm=10, counted=60, fill_rows=1_000_000)


FULL: Plan = {
    "native/10k-uniform": _native(10_000, Spread.UNIFORM),
    "native/10k-zipf": _native(10_000, Spread.ZIPF),
    "native/100k-uniform": _native(100_000, Spread.UNIFORM),
    "native/100k-zipf": _native(100_000, Spread.ZIPF),
    "native/1M-uniform": _native(1_000_000, Spread.UNIFORM, (*_JVM, Name.NOTHING)),
    "native/1M-zipf": _native(1_000_000, Spread.ZIPF),
    "python/10k-uniform": _python(10_000, Spread.UNIFORM, _IN_PYTHON, _alike(200_000, 1, 2), rounds=4),
    "python/10k-zipf": _python(10_000, Spread.ZIPF, _IN_PYTHON),
    "python/100k-uniform": _python(100_000, Spread.UNIFORM, _IN_PYTHON),
    "steps/tumbling-100k": _windows(Work.TUMBLING, 100_000, moved=0),
    "steps/tumbling-1M": _windows(Work.TUMBLING, 1_000_000, moved=0),
    "steps/session": _windows(Work.SESSION, 100_000, moved=20_000),
    "steps/deduplicate": _events(200_000, fill=10, rounds=3, counted=6),
    "steps/interval-join": _pairs(100_000, fill=14, rounds=3, counted=3),
    "steps/windows-of-windows": _chained(200_000, fill=10, rounds=3, counted=9),
    "graph/1k": _graph(1_000, warm=30, counted=20),
    "graph/200k": _graph(200_000, warm=2, counted=8),
    **{f"tables/{table.name.lower()}-1M": _table(table, 1_000_000) for table in Table},
    **{f"tables/{table.name.lower()}-10M": _table(table, 10_000_000) for table in Table},
    **{f"nexmark/{query}-1M": _nexmark(query, 1_000_000) for query in NEXMARK},
    **{f"nexmark/{query}-10M": _nexmark(query, 10_000_000) for query in NEXMARK},
    **{f"tpch/{query}": _tpch(query) for query in TPCH},
    "growth/1M": _growth(1_000_000),
    "growth/10M": _growth(10_000_000),
    "growth/100M": _growth(100_000_000),
    "engine/1M": _alone(1_000_000),
    "engine/10M": _alone(10_000_000),
    "engine/100M": _alone(100_000_000),
    "commit/512x8": Commits(shards=512, tasks=16, runs=8, warm=20, counted=200),
    "tasks/1k": _spreading(1_000, warm=10, counted=10),
    "tasks/200k": _spreading(200_000, warm=2, counted=6),
    "reading/10M": Reading(10_000_000, fill_rows=500_000, asked=1_000, times=9),
}

QUICK: Plan = {
    "native/10k-uniform": Race(
        10_000,
        Spread.UNIFORM,
        (*_JVM, Name.NOTHING),
        rounds=1,
        triggers=(_alike(1_000, 2, 5), _alike(200_000, 1, 2)),
        checked=10_000,
    ),
    "python/1k-uniform": Race(1_000, Spread.UNIFORM, _PYTHON, rounds=1, triggers=(_alike(2_000, 1, 1),), checked=1_000),
    "steps/windows-of-windows": _chained(20_000, fill=8, rounds=1, counted=5),
    "steps/deduplicate": _events(20_000, fill=4, rounds=1, counted=2),
    "steps/interval-join": _pairs(10_000, fill=4, rounds=1, counted=2),
    "graph/20k": GraphRace(keys=10_000, groups=100, rows=20_000, rounds=1, warm=1, counted=2),
    "tables/join-20k": TableGrowth(Table.JOIN, 20_000, 10, 5_000, warm=1, counted=4, fill_rows=10_000),
    "nexmark/q17-20k": QueryRace(Suite.NEXMARK, "q17", 20_000, 5_000, 1, warm=1, counted=2, fill_rows=10_000),
    "tpch/04": QueryRace(Suite.TPCH, "04", 60_000, rows=600, rounds=1, warm=1, counted=2, fill_rows=30_000),
    "growth/100k": Growth(100_000, rows=20_000, warm=1, counted=5, recoveries=1, fill_rows=100_000),
    "engine/100k": Alone(100_000, tasks=2, shards=4, rows=10_000, warm=3, counted=10, fill_rows=50_000),
    "engine/1M": Alone(1_000_000, tasks=2, shards=4, rows=10_000, warm=3, counted=10, fill_rows=250_000),
    "commit/512x8": Commits(shards=512, tasks=16, runs=8, warm=2, counted=10),
    "tasks/20k": Spreading(20_000, ((8, 2), (16, 4)), 20_000, rounds=1, warm=1, counted=3),
    "reading/100k": Reading(100_000, fill_rows=50_000, asked=1_000, times=3),
}


PLANS: Mapping[str, Plan] = {"full": FULL, "quick": QUICK}


def chosen(plan: Plan, only: str) -> list[str]:
    """The cells that a list such as `commit,native/1M-uniform` names, in the plan's order; all for an empty one.

    Raises ValueError for a word that names none.
    """
    words = [word.strip() for word in only.split(",") if word.strip()]
    for word in words:
        if not any(_names(word, cell) for cell in plan):
            raise ValueError(f"no cell has this name. name={word}, cells={', '.join(plan)}")
    return [cell for cell in plan if not words or any(_names(word, cell) for word in words)]


def _names(word: str, cell: str) -> bool:
    return word == cell or cell.startswith(f"{word}/")
