"""What was measured, as the goals, the tables and the picture ask for it. What was not measured is None."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.plan import Name, Read, Shape, Work, spread_as
from benchmarks.report.timing import Timing, p50, p95, times_as_fast
from benchmarks.results import Measured


@dataclass(frozen=True)
class Grown:
    """The triggers of one cell, at one size of the state. `merged_rows` is empty where the release does not tell.

    `peak_bytes` is the most memory that the process had, where it was measured.
    """

    cell: str
    keys: int
    timing: Timing
    merged_rows: Sequence[int]
    state_bytes: int
    recoveries: Sequence[Sequence[float]]
    peak_bytes: int | None

    @property
    def recovery_s(self) -> float | None:
        """Seconds to the first new epoch beyond what an empty stream needs."""
        return p50([full - empty for full, empty in self.recoveries]) if self.recoveries else None

    @property
    def unevenness(self) -> float:
        """How much longer than the median the slow triggers take."""
        return p95(self.timing.seconds) / p50(self.timing.seconds)

    @property
    def merge_unevenness(self) -> float | None:
        """The most rows merged in one epoch, against the median."""
        typical = p50(self.merged_rows) if self.merged_rows else 0
        return max(self.merged_rows) / typical if typical else None


@dataclass(frozen=True)
class Stepped:
    """A step in event time: our triggers, Spark's, and bytes of our state beside what it should have."""

    cell: str
    settings: Mapping[str, Any]
    ours: Timing
    sparks: Timing
    state_bytes: int
    live_bytes: int

    @property
    def faster(self) -> float:
        """How many times as fast as Spark's ours is."""
        return times_as_fast(self.ours, self.sparks)

    @property
    def state_ratio(self) -> float:
        """Our state's bytes against those of a stream that only ever had the rows that may still matter."""
        return self.state_bytes / self.live_bytes


@dataclass(frozen=True)
class Tabled:
    """The triggers of one table at one size: whole, and what their last step's slowest task worked."""

    cell: str
    settings: Mapping[str, Any]
    timing: Timing
    step_seconds: Sequence[float]
    state_bytes: int


@dataclass(frozen=True)
class Queried:
    """A query behind so many events: our triggers, Spark's own if it runs the query, and seconds of the batch."""

    cell: str
    settings: Mapping[str, Any]
    ours: Timing
    sparks: Timing | None
    mode: str | None
    batch_s: float
    compile_seconds: Sequence[float]
    state_bytes: int

    @property
    def compile_s(self) -> float:
        """Seconds to compile the query, as a rule: the first time Spark's planner has not seen any."""
        return p50(self.compile_seconds)


class Figures:
    """All cells by name. `code` is that of now: what was measured with another is marked."""

    def __init__(self, measured: Mapping[str, Measured], code: str) -> None:
        self.measured = measured
        self._code = code

    def is_of_other_code(self, cell: str) -> bool:
        return self.measured[cell].code != self._code

    def of_this_code(self) -> "Figures":
        """Only what was measured with the code of now."""
        there = {cell: each for cell, each in self.measured.items() if not self.is_of_other_code(cell)}
        return Figures(there, self._code)

    def cells(self, part: str) -> list[str]:
        """The part's cells, those with fewer keys first."""
        cells = [name for name in self.measured if name.startswith(f"{part}/")]
        return sorted(cells, key=lambda name: (self.measured[name].settings.get("keys", 0), name))

    def sizes(self, cell: str) -> list[int]:
        """How many rows the triggers of a race have."""
        return sorted(map(int, self.measured[cell].figures)) if cell in self.measured else []

    def timing(self, cell: str, rows: int, name: Name) -> Timing | None:
        """A side's triggers in a race."""
        if cell not in self.measured:
            return None
        rounds = self.measured[cell].figures.get(str(rows), {}).get(name)
        return None if rounds is None else Timing(rows, rounds)

    def faster(self, cell: str, rows: int, rival: Name) -> float | None:
        """How many times as fast as the rival ours is."""
        ours, theirs = self.timing(cell, rows, Name.OURS), self.timing(cell, rows, rival)
        return None if ours is None or theirs is None else times_as_fast(ours, theirs)

    def grown(self) -> list[Grown]:
        """By the size of the state."""
        return [self._grown(cell, self.measured[cell]) for cell in self.cells("growth")]

    def alone(self) -> list[Grown]:
        """The engine without Spark, by the size of the state."""
        return [self._grown(cell, self.measured[cell]) for cell in self.cells("engine")]

    def alone_at(self, keys: int) -> Grown | None:
        return next((grown for grown in self.alone() if grown.keys == keys), None)

    def grown_to(self, keys: int) -> Grown | None:
        return next((grown for grown in self.grown() if grown.keys == keys), None)

    def spread(self, cell: str) -> list[tuple[int, int, Timing]]:
        """The triggers of each pair of shards and tasks, in the plan's order."""
        measured = self.measured[cell]
        rows, seconds = measured.settings["rows"], measured.figures["seconds"]
        return [
            (shards, tasks, Timing(rows, seconds[spread_as(shards, tasks)]))
            for shards, tasks in measured.settings["sides"]
        ]

    def read(self, cell: str, what: Read) -> dict[str, Timing] | None:
        """Each time that so much of a table was read, by from where."""
        if cell not in self.measured:
            return None
        settings, seconds = self.measured[cell].settings, self.measured[cell].figures["seconds"][what]
        rows = settings["asked"] if what is Read.KEYS else settings["keys"]
        return {name: Timing(rows, [each]) for name, each in seconds.items()}

    def commits(self) -> list[float] | None:
        """Seconds of each commit."""
        seconds = [self.measured[cell].figures["seconds"] for cell in self.cells("commit")]
        return seconds[0] if seconds else None

    def stepped(self) -> list[Stepped]:
        """The steps in event time, as the plan has them."""
        return [self._stepped(cell) for cell in self.measured if cell.startswith("steps/")]

    def step(self, cell: str) -> Stepped | None:
        return self._stepped(cell) if cell in self.measured else None

    def shaped(self, cell: str, shape: Shape) -> Timing | None:
        """The triggers of one shape of the graph."""
        if cell not in self.measured:
            return None
        measured = self.measured[cell]
        return Timing(measured.settings["rows"], measured.figures["seconds"][shape])

    def tabled(self) -> list[Tabled]:
        """The steps over changing tables, as the plan has them."""
        return [self._tabled(cell) for cell in self.measured if cell.startswith("tables/")]

    def table(self, cell: str) -> Tabled | None:
        return self._tabled(cell) if cell in self.measured else None

    def queried(self, part: str) -> list[Queried]:
        """The queries of `nexmark` or `tpch`, as the plan has them."""
        return [self._queried(cell) for cell in self.measured if cell.startswith(f"{part}/")]

    def query(self, cell: str) -> Queried | None:
        return self._queried(cell) if cell in self.measured else None

    def _queried(self, cell: str) -> Queried:
        figures, settings = self.measured[cell].figures, self.measured[cell].settings
        ours, sparks = (figures["seconds"].get(name) for name in (Name.OURS, Name.SPARK))
        return Queried(
            cell,
            settings,
            Timing(settings["rows"], ours),
            None if sparks is None else Timing(settings["rows"], sparks),
            figures["mode"],
            p50(figures["batch_seconds"]),
            figures["compile_seconds"],
            figures["state_bytes"],
        )

    def _tabled(self, cell: str) -> Tabled:
        figures, settings = self.measured[cell].figures, self.measured[cell].settings
        timing = Timing(settings["rows"], [figures["seconds"]])
        return Tabled(cell, settings, timing, figures["step_seconds"], figures["state_bytes"])

    def _stepped(self, cell: str) -> Stepped:
        figures, settings = self.measured[cell].figures, self.measured[cell].settings
        # Of a join each trigger takes so many rows of either input.
        rows = settings["rows"] * (2 if settings["work"] == Work.INTERVAL_JOIN else 1)
        ours, sparks = (Timing(rows, figures["seconds"][name]) for name in (Name.OURS, Name.SPARK))
        return Stepped(cell, settings, ours, sparks, figures["state_bytes"], figures["live_bytes"])

    def _grown(self, cell: str, measured: Measured) -> Grown:
        figures, settings = measured.figures, measured.settings
        told = [rows for rows in figures["merged_rows"] if rows is not None]
        timing = Timing(settings["rows"], [figures["seconds"]])
        recoveries, peak = figures.get("recoveries", ()), figures.get("peak_bytes")
        return Grown(cell, settings["keys"], timing, told, figures["state_bytes"], recoveries, peak)
