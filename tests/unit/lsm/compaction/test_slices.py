from dataclasses import replace

import pytest

from dagster_ckpt.hash_range import HASH_MAX, HashRange
from dagster_ckpt.ids import Epoch
from dagster_ckpt.lsm.compaction.compaction import CompactionLimits, choose_merges, is_rewritten
from dagster_ckpt.lsm.compaction.run_lists import RunLists, SliceMerge, TierMerge, after_merge, with_news
from dagster_ckpt.lsm.compaction.slices import Stretch, next_slice
from dagster_ckpt.protocol.manifest.manifest import RunRef
from tests.worlds.dict_runs import DictRuns, shard_ranges

ALL = HashRange()
HALF = 2**63


def run(rows: int, lo: int = 0, hi: int = 999, clip: HashRange | None = None, epoch: int = 1) -> RunRef:
    """Rows spread evenly from `lo` to `hi`."""
    hashes = HashRange(lo, hi)
    return RunRef(f"{rows} from {lo} of {epoch}", rows, rows * 10, "", Epoch(epoch), hashes=hashes, clip=clip or ALL)


def slice_of(
    upper: list[RunRef], bottom: list[RunRef], rows: float, lo: int = 0, hi: int = HASH_MAX
) -> tuple[int, int]:
    piece = next_slice([Stretch(lo, hi, ALL, upper, bottom)], rows)
    assert piece is not None
    return piece.range.lo, piece.range.hi


def test_a_slice_ends_where_it_has_its_rows_also_in_the_middle_of_a_run() -> None:
    """So one huge file is cut off from its low end, a slice at a time."""
    upper, bottom = [run(1000), run(1000)], [run(98_000)]
    assert slice_of(upper, bottom, 10_000) == (0, 99)
    assert slice_of(upper, bottom, 10_000, lo=100) == (100, 199)


def test_the_last_slices_are_alike() -> None:
    """None is tiny, and none much greater than the others."""
    upper = [run(1000)]
    assert slice_of(upper, [], 300, lo=0) == (0, 249)
    assert slice_of(upper, [], 300, lo=500) == (500, 749)
    assert slice_of(upper, [], 300, lo=600) == (600, 799)
    assert slice_of(upper, [], 300, lo=750) == (750, HASH_MAX)


def test_a_slice_with_all_the_rows_there_are_goes_to_the_end_of_the_shard() -> None:
    assert slice_of([run(10)], [run(10)], 1000) == (0, HASH_MAX)


def test_what_is_below_no_upper_run_is_left_alone() -> None:
    """A timeline's old rows: new ones come above them."""
    bottom = [run(1000, 0, 99, HashRange(0, 99)), run(1000, 100, 199, HashRange(100, 199)), run(1000, 200, 299)]
    assert slice_of([run(500, 150, 250)], bottom, 3000) == (100, 250)
    assert slice_of([run(500, 1000, 1999)], bottom, 3000) == (1000, HASH_MAX)


def test_a_run_of_the_bottom_is_merged_from_its_beginning() -> None:
    """Else what is left of it would be in two pieces."""
    assert slice_of([run(500, 600, 700)], [run(10_000)], 2000)[0] == 0


def test_a_few_rows_beneath_no_upper_run_go_along() -> None:
    bottom = [run(100, 0, 99, HashRange(0, 99)), run(10_000, 100, 199, HashRange(100, 199))]
    assert slice_of([run(500, 150, 250)], bottom, 2000)[0] == 0


def test_where_no_upper_run_is_nothing_is_merged() -> None:
    assert next_slice([Stretch(0, HASH_MAX, ALL, [], [run(100)])], 10) is None
    assert next_slice([], 10) is None


def test_rows_of_one_time_are_merged_together_however_many() -> None:
    """There is no less of them than all; and they count as what they are."""
    piece = next_slice([Stretch(0, HASH_MAX, ALL, [run(5000, 7, 7), run(5000, 8, 8)], [])], 1000)
    assert piece is not None
    assert (piece.range, round(piece.rows)) == (HashRange(0, 7), 5000)


def test_wide_rows_make_the_smallest_slice_one_of_fewer_rows() -> None:
    """Ten bytes a row here: a merge is worth its while from 3000 rows on, though they are fewer than 65,000."""
    lists = news(with_news(((),), [ALL], [run(10_000, 0, HASH_MAX)]), [ALL], 9)
    (merge,) = choose_merges(lists, [ALL], CompactionLimits(small_rows=100, search_rows=0, slice_bytes_min=30_000))
    assert merge.rows == pytest.approx(3000, rel=0.25) if isinstance(merge, SliceMerge) else False


def test_a_slice_is_about_as_large_with_any_number_of_upper_runs() -> None:
    """Its range is narrower then."""
    assert slice_of([run(10_000)] * 9, [run(10_000)], 1000) == (0, 9)
    assert slice_of([run(10_000)], [run(10_000)], 1000) == (0, 49)


def news(lists: RunLists, ranges: list[HashRange], count: int, rows: int = 1000, first: int = 2) -> RunLists:
    """Several epochs of one run each."""
    for epoch in range(first, first + count):
        lists = with_news(lists, ranges, [run(rows, 0, HASH_MAX, epoch=epoch)])
    return lists


LIMITS = CompactionLimits(small_rows=100, slice_rows_min=10, search_rows=0, depth_min=4)
"""With a bottom ten times an epoch the best depth is the root of 2 * 8 * 10, about 13."""


def test_upper_runs_gather_until_they_are_about_half_of_what_costs_least() -> None:
    """A slice an epoch from then on lets the depth grow to the whole of it where the last slice is."""
    start = with_news(((),), [ALL], [run(10_000, 0, HASH_MAX)])
    assert choose_merges(news(start, [ALL], 6), [ALL], LIMITS) == ()
    (merge,) = choose_merges(news(start, [ALL], 7), [ALL], LIMITS)
    assert isinstance(merge, SliceMerge)
    assert merge.rows == pytest.approx(10_000 / 13 + 1000, rel=0.1)
    assert (merge.range.lo, merge.files) == (0, 1)


def test_a_slice_of_many_bytes_is_written_in_several_files() -> None:
    lists = news(with_news(((),), [ALL], [run(10_000, 0, HASH_MAX)]), [ALL], 7)
    (merge,) = choose_merges(lists, [ALL], CompactionLimits(small_rows=100, slice_rows_min=10, file_bytes_max=5000))
    assert isinstance(merge, SliceMerge)
    assert merge.files == -(-merge.rows * 10 // 5000)


@pytest.mark.parametrize(("bottom", "depth"), [(60, 10), (18, 3), (7, 2)])
def test_where_rows_expire_upper_runs_are_no_great_part_of_all(bottom: int, depth: int) -> None:
    """And a slice is written in several files, of which the next one cuts few."""
    limits = CompactionLimits(search_rows=0, expiring_rows_min=1000)
    start = with_news(((),), [ALL], [run(bottom * 100_000, 0, HASH_MAX)])
    (merge, *_) = choose_merges(news(start, [ALL], depth // 2 + 1, rows=100_000), [ALL], limits, expiring=True)
    assert isinstance(merge, SliceMerge)
    assert merge.rows == pytest.approx(bottom * 100_000 / depth + 100_000, rel=0.25)
    assert merge.files == 4


def test_what_is_dead_in_a_small_table_is_no_reason_to_merge() -> None:
    limits = CompactionLimits(search_rows=0, small_rows=100, slice_rows_min=10)
    start = with_news(((),), [ALL], [run(limits.expiring_rows_min - 501, 0, HASH_MAX)])
    assert choose_merges(news(start, [ALL], 1, rows=500), [ALL], limits, expiring=True) == ()
    assert choose_merges(news(start, [ALL], 2, rows=500), [ALL], limits, expiring=True)


@pytest.mark.parametrize(
    ("there", "new", "rewritten"),
    [(600_000, 100_000, True), (600_000, 99_999, False), (0, 1, False), (0, 100_000, True)],
)
def test_a_table_whose_rows_expire_is_rewritten_by_an_epoch_with_a_large_part_of_it(
    there: int, new: int, rewritten: bool
) -> None:
    lists = with_news(((),), [ALL], [run(there, 0, HASH_MAX)] if there else [])
    assert is_rewritten(lists, [ALL], new, CompactionLimits()) is rewritten


def test_a_small_table_is_rewritten_only_once_its_runs_are_many() -> None:
    lists = news(((),), [ALL], 3, rows=10)
    assert not is_rewritten(lists, [ALL], 10, LIMITS)
    assert is_rewritten(news(lists, [ALL], 1, rows=10), [ALL], 10, LIMITS)
    assert not is_rewritten(news(lists, [ALL], 1, rows=10), [ALL], 0, LIMITS), "there is nothing to write"


def test_the_deepest_shard_comes_first_and_others_follow_from_their_beginning() -> None:
    """Also where a restart with other tasks left each shard somewhere else."""
    ranges = shard_ranges(4)
    lists = news(with_news(((),) * 4, ranges, [run(40_000, 0, HASH_MAX)]), ranges, 20)
    two = HashRange(ranges[1].lo, ranges[1].lo + 2**61)
    lists = after_merge(lists, ranges, SliceMerge(two, 1, 1), [])
    one = HashRange(ranges[0].lo, ranges[0].hi)
    lists = after_merge(lists, ranges, SliceMerge(one, 1, 1), [])
    first = choose_merges(lists, ranges, CompactionLimits(small_rows=100, slice_rows_min=10, search_rows=0))[0]
    assert isinstance(first, SliceMerge)
    assert first.range.lo == two.hi + 1, "shard 1 is in the middle of its pass"


def test_a_shard_that_gets_no_rows_is_not_merged() -> None:
    """Nor do its rows make the slices of others greater."""
    ranges = shard_ranges(2)
    lists = with_news(((),) * 2, ranges, [run(1_000_000, 0, HASH_MAX)])
    for epoch in range(30):
        lists = with_news(lists, ranges, [run(1000, HALF, HASH_MAX, epoch=epoch + 2)])
    merges = choose_merges(lists, ranges, CompactionLimits(small_rows=100, depth_max=8, slice_rows_min=10))
    slices = [merge for merge in merges if isinstance(merge, SliceMerge)]
    assert slices
    assert all(merge.range.lo >= HALF for merge in slices)
    assert all(merge.rows <= 1.5 * (500_000 / 8 + 1000) for merge in slices)


def test_small_runs_are_merged_with_each_other_and_not_into_slices() -> None:
    start = with_news(((),), [ALL], [run(100_000, 0, HASH_MAX)])
    assert choose_merges(news(start, [ALL], 5, rows=20), [ALL], LIMITS) == ()
    assert choose_merges(news(start, [ALL], 6, rows=20), [ALL], LIMITS) == (TierMerge(6),)
    assert choose_merges(news(start, [ALL], 60, rows=20), [ALL], LIMITS) == (TierMerge(6),), "a part of a burst"


def test_a_small_run_waits_for_more_of_its_size() -> None:
    lists = news(with_news(((),), [ALL], [run(100_000, 0, HASH_MAX)]), [ALL], 1, rows=90)
    assert choose_merges(news(lists, [ALL], 5, rows=1, first=5), [ALL], LIMITS) == ()
    assert choose_merges(news(lists, [ALL], 6, rows=1, first=5), [ALL], LIMITS) == (TierMerge(6),)


def test_small_runs_beneath_a_large_one_go_down_with_it() -> None:
    """They are never the newest again: so they count."""
    lists = with_news(((),), [ALL], [run(10_000, 0, HASH_MAX)])
    for epoch in range(2, 42, 2):
        lists = news(news(lists, [ALL], 1, rows=20, first=epoch), [ALL], 1, rows=1000, first=epoch + 1)
    assert isinstance(choose_merges(lists, [ALL], LIMITS)[0], SliceMerge)


def test_in_a_state_of_few_rows_no_run_is_small() -> None:
    lists = news(with_news(((),), [ALL], [run(100, 0, HASH_MAX)]), [ALL], 8, rows=20)
    merges = choose_merges(lists, [ALL], LIMITS)
    assert [type(merge) for merge in merges] == [SliceMerge]


def test_where_merge_ranges_end_here_and_there_a_whole_shard_is_merged() -> None:
    """We write no such lists; but a slice would leave a run in three pieces, which no reference can express."""
    ranges = shard_ranges(2)
    runs = DictRuns(ranges)
    eighth = 2**61
    runs.news(range(2), runs.say(range(0, 2**64, 2**53)))
    for _ in range(8):
        runs.epoch += 1
        runs.news(range(2), runs.say(range(0, 2**64, 2**57)))
    runs.carry_out(range(2), SliceMerge(HashRange(HALF - eighth // 8, HALF - eighth // 8 + 9), 1, 1))
    (first, *others) = runs.lists[0]
    runs.lists = ((replace(first, moved_lo=eighth, moved_hi=eighth + 10), *others), runs.lists[1])
    runs.rows = runs.read()
    limits = CompactionLimits(small_rows=0, slice_rows_min=10, depth_max=4, search_rows=0)
    merge = runs.compact(range(2), limits)[0]
    assert isinstance(merge, SliceMerge)
    assert merge.range == ranges[0]
    assert runs.read() == runs.rows
