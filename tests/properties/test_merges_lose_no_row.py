"""Any news, by any tasks, and any merges at any time: each hash has its newest row, and no other.

Runs are dicts here (`tests.worlds.dict_runs`): the test covers what is merged and how lists record it, not the merge.
"""

from itertools import combinations, pairwise

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dagster_ckpt.hash_range import HASH_MAX, HashRange
from dagster_ckpt.ids import Epoch
from dagster_ckpt.lsm.compaction.compaction import CompactionLimits, choose_merges
from dagster_ckpt.lsm.compaction.levels import split_levels
from dagster_ckpt.lsm.compaction.run_lists import SliceMerge, TierMerge
from dagster_ckpt.protocol.manifest.manifest import RunRef
from tests.worlds.dict_runs import DictRuns, shard_ranges, shows
from tests.worlds.examples import examples

SHARDS = 4
STEPS = 32
HASHES = sorted({edge for step in range(STEPS) for edge in (step * 2**64 // STEPS, (step + 1) * 2**64 // STEPS - 1)})
TIMES = sorted({2**63 + step for step in range(40)} | {0, HASH_MAX, 2**63 - 10**6, 2**63 + 10**9})
"""As a timeline has them: close to each other, but for a few."""

MASKS = st.integers(0, 2**64 - 1) | st.integers(0, 63).map(lambda number: 1 << number)
"""Which of the hashes."""


def layouts(shards: int) -> list[list[range]]:
    """Ways in which tasks may share `shards` shards."""
    half, quarter = max(1, shards // 2), max(1, shards // 4)
    cuts = [[], [half], [quarter], [quarter, quarter + half]]
    edges = [[0, *(cut for cut in each if cut < shards), shards] for each in cuts]
    return [[range(*pair) for pair in pairwise(each)] for each in edges]


class Lists(RuleBasedStateMachine):
    """A table in four shards, or a timeline of one."""

    @initialize(
        timeline=st.booleans(),
        depth_max=st.integers(1, 6),
        merge_cost=st.sampled_from([0.01, 1.0, 8.0]),
        small_rows=st.sampled_from([0, 3, 8]),
        slice_rows_min=st.sampled_from([1, 4, 20]),
        tier_runs=st.integers(2, 4),
        bytes_max=st.sampled_from([3, 10, 1000]),
    )
    def begin(
        self,
        timeline: bool,
        depth_max: int,
        merge_cost: float,
        small_rows: int,
        slice_rows_min: int,
        tier_runs: int,
        bytes_max: int,
    ) -> None:
        self.limits = CompactionLimits(
            merge_cost=merge_cost,
            search_rows=1,
            depth_min=1,
            depth_max=depth_max,
            small_rows=small_rows,
            tier_runs=tier_runs,
            slice_rows_min=slice_rows_min,
            file_bytes_max=bytes_max,
        )
        self.hashes = TIMES if timeline else HASHES
        self.is_timeline = timeline
        self.layouts = layouts(1 if timeline else SHARDS)
        self.runs = DictRuns([HashRange()] if timeline else shard_ranges(SHARDS))
        self.layout = self.layouts[0]
        self.retained: list[tuple[tuple[tuple[RunRef, ...], ...], dict[int, int]]] = []

    @precondition(lambda self: not self.runs.files)
    @rule(tiers=st.lists(MASKS, min_size=1, max_size=5))
    def begin_with_what_the_first_release_wrote(self, tiers: list[int]) -> None:
        """A run for each shard and tier, without a clip."""
        for number, mask in enumerate(tiers):
            said = self.runs.say(self._hashes(mask))
            for shard, within in enumerate(self.runs.ranges):
                own = {each: value for each, value in said.items() if within.lo <= each <= within.hi}
                if own:
                    path = f"state/{shard}/{number}"
                    self.runs.files[path] = own
                    hashes = HashRange(min(own), max(own))
                    ref = RunRef(path, len(own), len(own), "", Epoch(0), level=len(tiers) - number, hashes=hashes)
                    self.runs.put_on_top(shard, ref)

    @rule(flushes=st.lists(st.tuples(MASKS, MASKS), min_size=1, max_size=5), gap=st.integers(1, 3))
    def epoch(self, flushes: list[tuple[int, int]], gap: int) -> None:
        """As a task does it: merge, then write what is new, perhaps several times."""
        self.runs.epoch += gap
        for shards in self.layout:
            self.runs.compact(shards, self.limits)
        for puts, deletes in flushes:
            said = self.runs.say(self._hashes(puts), self._hashes(deletes & ~puts))
            for shards in self.layout:
                self.runs.news(shards, said)
        self.retained = [*self.retained[-5:], (self.runs.lists, dict(self.runs.rows))]

    @rule(number=st.integers(0, 3))
    def restart_with_another_number_of_tasks(self, number: int) -> None:
        self.layout = self.layouts[number]

    @precondition(lambda self: not self.is_timeline)
    @rule(shards=st.sampled_from([1, 2, 4, 8, 16]))
    def reshard(self, shards: int) -> None:
        """Up and down, whatever the lists look like. An older epoch keeps the number that it had."""
        self.runs.reshard(shards)
        self.layouts = layouts(shards)
        self.layout = self.layouts[0]

    @rule(number=st.integers(0, 2), bounds=st.tuples(st.integers(0, 63), st.integers(0, 63)), files=st.integers(1, 3))
    def merge_any_slice(self, number: int, bounds: tuple[int, int], files: int) -> None:
        """Also one that is never chosen, as long as references can express it."""
        shards = self.layout[number % len(self.layout)]
        edges = self._hashes_of(shards)
        lo, hi = sorted(edges[bound % len(edges)] for bound in bounds)
        if self.runs.may_merge(shards, HashRange(lo, hi)):
            self.runs.carry_out(shards, SliceMerge(HashRange(lo, hi), files, 1))

    @rule(number=st.integers(0, 3), runs=st.integers(1, 5))
    def merge_the_newest(self, number: int, runs: int) -> None:
        self.runs.carry_out(self.layout[number % len(self.layout)], TierMerge(runs))

    @rule(number=st.integers(0, 2), share=st.integers(0, 63))
    def merge_less_than_was_chosen(self, number: int, share: int) -> None:
        """As a worker does that counts more rows than the choice had thought."""
        shards = self.layout[number % len(self.layout)]
        ranges = self.runs.ranges[shards.start : shards.stop]
        merges = choose_merges(self.runs.lists[shards.start : shards.stop], ranges, self.limits)
        if merges and isinstance(first := merges[0], SliceMerge):
            lo, hi = first.range.lo, first.range.hi
            less = HashRange(lo, lo + (hi - lo) * share // 64)
            if self.runs.may_merge(shards, less):
                self.runs.carry_out(shards, SliceMerge(less, 1, 1))

    def teardown(self) -> None:
        """Every earlier epoch reads as it did."""
        for lists, rows in getattr(self, "retained", []):
            self.runs.lists = lists
            self.runs.ranges = [HashRange()] if self.is_timeline else shard_ranges(len(lists))
            assert self.runs.read() == rows

    def _hashes(self, mask: int) -> list[int]:
        return [each for number, each in enumerate(self.hashes) if mask >> number & 1]

    def _hashes_of(self, shards: range) -> list[int]:
        lo, hi = self.runs.ranges[shards.start].lo, self.runs.ranges[shards.stop - 1].hi
        return [each for each in self.hashes if lo <= each <= hi]

    @invariant()
    def every_hash_has_its_newest_row(self) -> None:
        if not hasattr(self, "runs"):
            return
        assert self.runs.read() == self.runs.rows
        together: dict[int, int] = {}
        for shards in self.layout:
            together |= self.runs.read_together(shards)
        assert together == self.runs.rows

    @invariant()
    def references_make_sense(self) -> None:
        """What the rules of manifests ask for, too."""
        if not hasattr(self, "runs"):
            return
        clips: dict[str, list[HashRange]] = {}
        for refs, within in zip(self.runs.lists, self.runs.ranges, strict=True):
            for ref in refs:
                assert all(0 <= bound <= HASH_MAX for bound in (ref.moved_lo, ref.moved_hi))
                lo, hi = max(ref.clip.lo, within.lo), min(ref.clip.hi, within.hi)
                assert lo <= hi
                clips.setdefault(ref.path, []).append(HashRange(lo, hi))
        for shared in clips.values():
            assert all(one.hi < other.lo for one, other in pairwise(sorted(shared, key=lambda clip: clip.lo)))

    @invariant()
    def levels_are_what_they_say(self) -> None:
        if not hasattr(self, "runs"):
            return
        for shards in self.layout:
            ranges = self.runs.ranges[shards.start : shards.stop]
            levels = split_levels(self.runs.lists[shards.start : shards.stop], ranges)
            for placed in (*levels.upper, *levels.bottom):
                assert placed.shown
                assert all(each.lo <= each.hi for each in placed.shown)
                assert all(one.hi + 1 < other.lo for one, other in pairwise(placed.shown))
                for each in self.runs.files[placed.ref.path]:
                    if any(piece.lo <= each <= piece.hi for piece in placed.shown):
                        assert self._is_shown(shards, placed.ref.path, each)
            assert all(len(placed.shown) == 1 for placed in levels.bottom)
            assert all(one.shown[0].hi < other.shown[0].lo for one, other in pairwise(levels.bottom))
            for one, other in combinations(levels.upper, 2):
                if one.ref.path == other.ref.path:
                    assert {piece.lo for piece in one.shown}.isdisjoint(piece.lo for piece in other.shown)

    def _is_shown(self, shards: range, path: str, hash_: int) -> bool:
        """By some shard that the hash is of."""
        return any(
            ref.path == path and shows(ref, hash_)
            for shard in shards
            if self.runs.ranges[shard].lo <= hash_ <= self.runs.ranges[shard].hi
            for ref in self.runs.lists[shard]
        )


TestLists = Lists.TestCase
TestLists.settings = examples(50, stateful_step_count=30)
