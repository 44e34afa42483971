"""What the figures should be, and whether they are."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from statistics import geometric_mean

from benchmarks.plan import NEXMARK, Name, Read, Shape, Table
from benchmarks.report.figures import Figures
from benchmarks.report.timing import p50, p95, times_as_fast

_MILLION = 1_000_000
_TRIGGER = 200_000
_IN_A_MILLION, _IN_TEN_THOUSAND = "native/1M-uniform", "python/10k-uniform"


class Verdict(StrEnum):
    """What a figure comes to."""

    AIM = "aim reached"
    MUST = "reached"
    MISSED = "missed"
    UNKNOWN = "not measured"


class Good(StrEnum):
    """Which way a figure should go."""

    AT_LEAST = "≥"
    AT_MOST = "≤"


@dataclass(frozen=True)
class Goal:
    """`must` or `aim` is None where there is only the other. `unit` follows the number."""

    work: str
    good: Good
    must: float | None
    aim: float | None
    unit: str
    value: Callable[[Figures], float | None]

    def verdict(self, figures: Figures) -> Verdict:
        value = self.value(figures)
        if value is None:
            return Verdict.UNKNOWN
        if self._reaches(value, self.aim):
            return Verdict.AIM
        return Verdict.MUST if self._reaches(value, self.must) else Verdict.MISSED

    def _reaches(self, value: float, bound: float | None) -> bool:
        if bound is None:
            return False
        return value >= bound if self.good is Good.AT_LEAST else value <= bound


def _faster(cell: str, rows: int, rival: Name) -> Callable[[Figures], float | None]:
    return lambda figures: figures.faster(cell, rows, rival)


def _slowest(figures: Figures) -> float | None:
    return min(native_ratios(figures), default=None)


def _mean(figures: Figures) -> float | None:
    ratios = native_ratios(figures)
    return geometric_mean(ratios) if ratios else None


def native_ratios(figures: Figures) -> list[float]:
    """How many times as fast as Spark's own aggregation ours is, in each mixture of keys and batches."""
    pairs = [(cell, size) for cell in figures.cells("native") for size in figures.sizes(cell)]
    found = [figures.faster(cell, size, Name.NATIVE) for cell, size in pairs]
    return [each for each in found if each is not None]


def _of_few_keys(figures: Figures) -> float | None:
    ratios = [figures.faster(cell, _MILLION, Name.NATIVE) for cell in ("native/10k-uniform", "native/10k-zipf")]
    return min((each for each in ratios if each is not None), default=None)


def _small_trigger(figures: Figures) -> float | None:
    ours = figures.timing(_IN_A_MILLION, 1_000, Name.OURS)
    native = figures.timing(_IN_A_MILLION, 1_000, Name.NATIVE)
    return None if ours is None or native is None else p50(ours.seconds) / p50(native.seconds)


def _own_share_ms(rows: int) -> Callable[[Figures], float | None]:
    def value(figures: Figures) -> float | None:
        ours = figures.timing(_IN_A_MILLION, rows, Name.OURS)
        nothing = figures.timing(_IN_A_MILLION, rows, Name.NOTHING)
        return None if ours is None or nothing is None else (p50(ours.seconds) - p50(nothing.seconds)) * 1000

    return value


def _of_nothing(figures: Figures) -> float | None:
    faster = figures.faster(_IN_A_MILLION, _TRIGGER, Name.NOTHING)
    return None if faster is None else faster * 100


def _against_a_file(what: Read) -> Callable[[Figures], float | None]:
    def value(figures: Figures) -> float | None:
        read = figures.read("reading/10M", what)
        return None if read is None else p50(read[Name.OURS].seconds) / p50(read[Name.PARQUET].seconds)

    return value


def _memory_at_most(figures: Figures) -> float | None:
    small, large = figures.alone_at(_MILLION), figures.alone_at(100 * _MILLION)
    if small is None or large is None or small.peak_bytes is None or large.peak_bytes is None:
        return None
    return large.peak_bytes / small.peak_bytes


def _slower_at(keys: int) -> Callable[[Figures], float | None]:
    def value(figures: Figures) -> float | None:
        large, small = figures.grown_to(keys), figures.grown_to(_MILLION)
        if large is None or small is None:
            return None
        return p50(large.timing.seconds) / p50(small.timing.seconds)

    return value


def _engine_slower_at(keys: int) -> Callable[[Figures], float | None]:
    def value(figures: Figures) -> float | None:
        large, small = figures.alone_at(keys), figures.alone_at(_MILLION)
        if large is None or small is None:
            return None
        return p50(large.timing.seconds) / p50(small.timing.seconds)

    return value


def _unevenness(figures: Figures) -> float | None:
    return max((grown.unevenness for grown in figures.grown()), default=None)


def _merge_unevenness(figures: Figures) -> float | None:
    known = [grown.merge_unevenness for grown in figures.grown()]
    return max((one for one in known if one is not None), default=None)


def _recovery_s(figures: Figures) -> float | None:
    grown = figures.grown_to(10 * _MILLION)
    return None if grown is None else grown.recovery_s


def _commit_ms(figures: Figures) -> float | None:
    commits = figures.commits()
    return None if commits is None else p95(commits) * 1000


def _step_faster(cell: str) -> Callable[[Figures], float | None]:
    def value(figures: Figures) -> float | None:
        step = figures.step(cell)
        return None if step is None else step.faster

    return value


def _state_ratio(figures: Figures) -> float | None:
    return max((step.state_ratio for step in figures.stepped()), default=None)


def _against_one(cell: str, shape: Shape) -> Callable[[Figures], float | None]:
    def value(figures: Figures) -> float | None:
        one, more = figures.shaped(cell, Shape.ONE), figures.shaped(cell, shape)
        return None if one is None or more is None else times_as_fast(one, more)

    return value


def _second_step_ms(figures: Figures) -> float | None:
    one, two = (figures.shaped("graph/1k", shape) for shape in (Shape.ONE, Shape.TWO))
    return None if one is None or two is None else (p50(two.seconds) - p50(one.seconds)) * 1000


def _against_the_chain(figures: Figures) -> float | None:
    three, chain = (figures.shaped("graph/200k", shape) for shape in (Shape.THREE, Shape.CHAIN))
    return None if three is None or chain is None else times_as_fast(three, chain)


def _table_slower(table: Table) -> Callable[[Figures], float | None]:
    def value(figures: Figures) -> float | None:
        small, large = (figures.table(f"tables/{table.name.lower()}-{size}") for size in ("1M", "10M"))
        if small is None or large is None:
            return None
        return p50(large.timing.seconds) / p50(small.timing.seconds)

    return value


def _compile_s(figures: Figures) -> float | None:
    return max((each.compile_s for suite in ("nexmark", "tpch") for each in figures.queried(suite)), default=None)


def _query_slower(figures: Figures) -> float | None:
    ratios = []
    for query in NEXMARK:
        small, large = (figures.query(f"nexmark/{query}-{size}") for size in ("1M", "10M"))
        if small is not None and large is not None:
            ratios.append(p50(large.ours.seconds) / p50(small.ours.seconds))
    return max(ratios, default=None)


GOALS = (
    Goal(
        f"rows a second against {Name.NATIVE} on RocksDB, the worst of all 24",
        Good.AT_LEAST, 1, 1.3, " x", _slowest,
    ),
    Goal(
        "the same, the geometric mean of all",
        Good.AT_LEAST, None, 3, " x", _mean,
    ),
    Goal(
        "10k keys, batches of 1M rows, the worse of uniform and zipf",
        Good.AT_LEAST, 1.2, 1.5, " x", _of_few_keys,
    ),
    Goal(
        "1M keys, batches of 1M rows",
        Good.AT_LEAST, 6, 8, " x", _faster(_IN_A_MILLION, _MILLION, Name.NATIVE),
    ),
    Goal(
        "1M keys, batches of 200k rows",
        Good.AT_LEAST, 4.5, 6, " x", _faster(_IN_A_MILLION, _TRIGGER, Name.NATIVE),
    ),
    Goal(
        "1M keys: the time of a trigger of 1k rows against its own",
        Good.AT_MOST, 1, 0.8, " x", _small_trigger,
    ),
    Goal(
        f"10k keys, batches of 200k rows: rows a second against {Name.PANDAS}",
        Good.AT_LEAST, 50, 80, " x", _faster(_IN_TEN_THOUSAND, _TRIGGER, Name.PANDAS),
    ),
    Goal(
        "the same, batches of 20k rows",
        Good.AT_LEAST, 20, 30, " x", _faster(_IN_TEN_THOUSAND, 20_000, Name.PANDAS),
    ),
    Goal(
        f"10k keys, batches of 20k rows: rows a second against {Name.ROWS} (rows)",
        Good.AT_LEAST, 8, 12, " x", _faster(_IN_TEN_THOUSAND, 20_000, Name.ROWS),
    ),
    Goal(
        "our own share of a trigger of 1k rows: less the same with an empty mapInArrow and collect",
        Good.AT_MOST, 25, 20, " ms", _own_share_ms(1_000),
    ),
    Goal(
        "our own share of a trigger of 200k rows",
        Good.AT_MOST, 70, 50, " ms", _own_share_ms(_TRIGGER),
    ),
    Goal(
        "our own share of a trigger of 1M rows",
        Good.AT_MOST, 250, 150, " ms", _own_share_ms(_MILLION),
    ),
    Goal(
        "a trigger of 200k rows at 10M keys against 1M",
        Good.AT_MOST, 1.4, 1.2, " x", _slower_at(10 * _MILLION),
    ),
    Goal(
        "a trigger of 200k rows at 100M keys against 1M",
        Good.AT_MOST, 1.8, 1.4, " x", _slower_at(100 * _MILLION),
    ),
    Goal(
        "the engine alone: an epoch of 100k rows of one of two tasks, at 10M keys against 1M",
        Good.AT_MOST, None, 2.2, " x", _engine_slower_at(10 * _MILLION),
    ),
    Goal(
        "the engine alone, at 100M keys against 1M",
        Good.AT_MOST, None, 4, " x", _engine_slower_at(100 * _MILLION),
    ),
    Goal(
        "p95 of a trigger against its p50, at each size of the state",
        Good.AT_MOST, 2, 1.5, " x", _unevenness,
    ),
    Goal(
        "the most rows merged in one epoch against their median, at each size",
        Good.AT_MOST, 1.5, 1.2, " x", _merge_unevenness,
    ),
    Goal(
        "recovery at 10M keys: first new epoch, beyond what an empty stream needs",
        Good.AT_MOST, 2, 1, " s", _recovery_s,
    ),
    Goal(
        "commit of 512 shards with 8 runs each, p95",
        Good.AT_MOST, 40, 25, " ms", _commit_ms,
    ),
    *(
        Goal(
            f"10M keys, {what}: the time against one Parquet file's with pyarrow",
            Good.AT_MOST, 1.5, 1.1, " x", _against_a_file(what),
        )
        for what in Read
    ),
    Goal(
        "the most memory of one task at 100M keys against 1M",
        Good.AT_MOST, 1.5, 1.2, " x", _memory_at_most,
    ),
    Goal(
        "1M keys, batches of 200k rows: of the rows a second of a shuffle and mapInArrow that do nothing",
        Good.AT_LEAST, 70, 85, " %", _of_nothing,
    ),
    Goal(
        f"interval join: rows a second against {Name.SPARK} on RocksDB",
        Good.AT_LEAST, 8, None, " x", _step_faster("steps/interval-join"),
    ),
    Goal(
        "deduplicate within the watermark, the same",
        Good.AT_LEAST, 3, 5, " x", _step_faster("steps/deduplicate"),
    ),
    Goal(
        "tumbling windows, 100k keys, the same",
        Good.AT_LEAST, 3, 5, " x", _step_faster("steps/tumbling-100k"),
    ),
    Goal(
        "tumbling windows, 1M keys, the same",
        Good.AT_LEAST, 3, 5, " x", _step_faster("steps/tumbling-1M"),
    ),
    Goal(
        "session windows, the same",
        Good.AT_LEAST, 3, 5, " x", _step_faster("steps/session"),
    ),
    Goal(
        "windows of windows of windows, the same",
        Good.AT_LEAST, 1, None, " x", _step_faster("steps/windows-of-windows"),
    ),
    Goal(
        "a second step: a trigger of 200k rows against one step's",
        Good.AT_MOST, 1.6, None, " x", _against_one("graph/200k", Shape.TWO),
    ),
    Goal(
        "a second step: what it adds to a trigger of 1k rows",
        Good.AT_MOST, 60, None, " ms", _second_step_ms,
    ),
    Goal(
        "three steps in one stream: rows a second against a chain of three streams, 200k rows",
        Good.AT_LEAST, 2, None, " x", _against_the_chain,
    ),
    *(
        Goal(
            f"{table} over a changing table: a trigger at 10M keys against 1M",
            Good.AT_MOST, 1.5, None, " x", _table_slower(table),
        )
        for table in Table
    ),
    Goal(
        "to compile a query of Nexmark or TPC-H, the slowest of all",
        Good.AT_MOST, 2, None, " s", _compile_s,
    ),
    Goal(
        "Nexmark: a trigger behind 10M events against 1M, the worst of all queries",
        Good.AT_MOST, None, 1.5, " x", _query_slower,
    ),
    Goal(
        "bytes of a step's state after expiry, against those of a state that only ever had the live rows",
        Good.AT_MOST, 1.5, None, " x", _state_ratio,
    ),
)  # fmt: skip
