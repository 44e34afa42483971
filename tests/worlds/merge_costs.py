"""What merges cost over many epochs, without a row: files are numbers of rows that lie evenly over the hash range.

Each epoch brings rows of distinct keys, any key as likely as another. A merge of runs that hold the shares p, q, ... of
all keys of a range holds 1 - (1 - p)(1 - q)... of them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from dagster_ckpt.hash_range import HASH_MAX, HashRange
from dagster_ckpt.ids import Epoch
from dagster_ckpt.lsm.compaction.compaction import CompactionLimits, choose_merges
from dagster_ckpt.lsm.compaction.levels import VisibleRun, split_levels
from dagster_ckpt.lsm.compaction.run_lists import RunLists, SliceMerge, after_merge, with_news
from dagster_ckpt.protocol.manifest.manifest import RunRef
from tests.worlds.dict_runs import shard_ranges

MERGED_ROW_MS = 45e-6
SEARCHED_ROW_MS = 0.5 / 90_000
MERGE_MS = 2.5
SEARCH_MS = 0.04
"""What it takes on a core here: each row a merge writes; each row searched in one upper run; a merge, and a look into
a run, however few rows it is for."""

ROW_BYTES = 100


@dataclass
class Epochs:
    """What some epochs did, an entry for each; of all tasks together."""

    read: list[float] = field(default_factory=list)
    written: list[float] = field(default_factory=list)
    slices: list[int] = field(default_factory=list)
    tiers: list[int] = field(default_factory=list)
    mean_depth: list[float] = field(default_factory=list)
    deepest: list[int] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    ms: list[float] = field(default_factory=list)


class Costs:
    """One state table: `keys` keys in all (None: each row is a new one), of which `rows` have a row to begin with."""

    def __init__(
        self, keys: int | None, rows: int = 0, shards: int = 8, tasks: int = 1, limits: CompactionLimits | None = None
    ) -> None:
        self.ranges = shard_ranges(shards)
        self.lists: RunLists = ((),) * shards
        self.tasks = tasks
        self.epochs = Epochs()
        self._keys = keys
        self._limits = limits or CompactionLimits()
        self._files = 0
        if rows:
            self.lists = with_news(self.lists, self.ranges, [self._file(HashRange(), rows)])

    def epoch(self, rows: int, flushes: int = 1) -> None:
        """Merge, then write `rows` rows `flushes` times."""
        read = written = depth = 0.0
        slices = tiers = 0
        lists: list[tuple[RunRef, ...]] = []
        for shards in self._layout():
            ranges = self.ranges[shards.start : shards.stop]
            within = HashRange(ranges[0].lo, ranges[-1].hi)
            own: RunLists = self.lists[shards.start : shards.stop]
            for merge in choose_merges(own, ranges, self._limits):
                levels = split_levels(own, ranges)
                if isinstance(merge, SliceMerge):
                    part, runs = merge.range, (*levels.upper, *levels.bottom)
                    slices += 1
                else:
                    part, runs = within, levels.upper[: merge.runs]
                    tiers += 1
                more_read, more_written = self._merged(runs, part)
                own = after_merge(own, ranges, merge, [self._file(part, max(1, round(more_written)))])
                read, written = read + more_read, written + more_written
            width = HASH_MAX + 1
            depth += sum(
                (each.hi - each.lo + 1) / width for run in split_levels(own, ranges).upper for each in run.shown
            )
            for _ in range(flushes):
                own = with_news(own, ranges, [self._file(within, rows * len(shards) // len(self.ranges))])
            lists += own
        self.lists = tuple(lists)
        self._note(rows, read, written, slices, tiers, depth)

    def _note(self, rows: int, read: float, written: float, slices: int, tiers: int, depth: float) -> None:
        done = self.epochs
        done.read.append(read)
        done.written.append(written)
        done.slices.append(slices)
        done.tiers.append(tiers)
        done.mean_depth.append(depth)
        done.deepest.append(max(map(len, self.lists)))
        done.files.append(len({ref.path for refs in self.lists for ref in refs}))
        merging = written / self.tasks * MERGED_ROW_MS + (slices + tiers) / self.tasks * MERGE_MS
        done.ms.append(merging + depth * (SEARCH_MS + rows / self.tasks * SEARCHED_ROW_MS))

    def _layout(self) -> list[range]:
        bounds = [len(self.ranges) * task // self.tasks for task in range(self.tasks + 1)]
        return [range(start, stop) for start, stop in pairwise(bounds)]

    def _file(self, part: HashRange, rows: int) -> RunRef:
        self._files += 1
        epoch = Epoch(1 + len(self.epochs.read))
        return RunRef(f"file {self._files}", rows, rows * ROW_BYTES, "", epoch, hashes=part, clip=part)

    def _merged(self, runs: Sequence[VisibleRun], part: HashRange) -> tuple[float, float]:
        """How many rows are read and written."""
        edges = {edge for run in runs for each in run.shown for edge in (each.lo, each.hi + 1)}
        places = sorted({part.lo, part.hi + 1} | {edge for edge in edges if part.lo < edge <= part.hi})
        read = written = 0.0
        for lo, until in pairwise(places):
            rows = [_share(run, lo, until) for run in runs]
            read += sum(rows)
            written += self._distinct(rows, until - lo)
        return read, written

    def _distinct(self, rows: Iterable[float], hashes: int) -> float:
        if self._keys is None:
            return sum(rows)
        keys = self._keys * hashes / (HASH_MAX + 1)
        absent = 1.0
        for each in rows:
            absent *= max(0.0, 1 - each / keys)
        return keys * (1 - absent)


def _share(run: VisibleRun, lo: int, until: int) -> float:
    """The rows from `lo` on and below `until`, between which the run is shown wholly or not at all."""
    if not any(each.lo <= lo and until <= each.hi + 1 for each in run.shown):
        return 0.0
    return run.ref.rows * (until - lo) / (run.ref.hashes.hi - run.ref.hashes.lo + 1)
