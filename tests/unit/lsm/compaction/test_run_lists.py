import pytest

from dagster_ckpt.hash_range import HASH_MAX, HashRange
from dagster_ckpt.ids import Epoch
from dagster_ckpt.lsm.compaction.run_lists import RunLists, SliceMerge, TierMerge, after_merge, may_merge, with_news
from dagster_ckpt.protocol.manifest.manifest import RunRef
from tests.worlds.dict_runs import DictRuns, shard_ranges

QUARTER = 2**62
SHARDS = shard_ranges(4)
ALL = HashRange()


def run(path: str, clip: HashRange = ALL, hashes: HashRange = ALL) -> RunRef:
    return RunRef(path, 100, 1000, "", Epoch(1), hashes=hashes, clip=clip)


def slice_merge(lo: int, hi: int) -> SliceMerge:
    return SliceMerge(HashRange(lo, hi), 1, 1)


def shard(lists: RunLists, number: int) -> list[tuple[str, int, int, int, int]]:
    return [(ref.path, ref.clip.lo, ref.clip.hi, ref.moved_lo, ref.moved_hi) for ref in lists[number]]


def test_news_are_on_top_and_each_shard_has_its_own_part() -> None:
    lists = with_news(((),) * 4, SHARDS, [run("old")])
    lists = with_news(lists, SHARDS, [run("newer"), run("new")])
    assert [[ref.path for ref in refs] for refs in lists] == [["newer", "new", "old"]] * 4
    assert [[ref.clip for ref in refs] for refs in lists] == [[within] * 3 for within in SHARDS]


def test_a_shard_of_which_a_file_has_no_hash_does_not_name_it() -> None:
    lists = with_news(((),) * 4, SHARDS, [run("few", hashes=HashRange(5, QUARTER))])
    assert [len(refs) for refs in lists] == [1, 1, 0, 0]


def test_a_merge_range_grows_until_the_run_shows_nothing() -> None:
    lists = with_news(((),) * 1, SHARDS[:1], [run("new"), run("old")])
    one = after_merge(lists, SHARDS[:1], slice_merge(0, 99), [run("a", HashRange(0, 99))])
    assert shard(one, 0) == [
        ("new", 0, QUARTER - 1, 0, 100),
        ("a", 0, 99, 0, 0),
        ("old", 100, QUARTER - 1, 0, 0),
    ]
    two = after_merge(one, SHARDS[:1], slice_merge(100, 299), [run("b", HashRange(100, 299))])
    assert shard(two, 0)[0] == ("new", 0, QUARTER - 1, 0, 300)
    end = after_merge(two, SHARDS[:1], slice_merge(300, QUARTER - 1), [run("c", HashRange(300, QUARTER - 1))])
    assert [path for path, *_ in shard(end, 0)] == ["a", "b", "c"]


def test_a_run_from_the_middle_of_a_pass_is_gone_when_the_next_comes_to_there() -> None:
    """Behind the shard's end comes its beginning."""
    lists = with_news(((),), [ALL], [run("old")])
    lists = after_merge(lists, [ALL], slice_merge(0, 99), [run("a", HashRange(0, 99))])
    lists = with_news(lists, [ALL], [run("new")])
    lists = after_merge(lists, [ALL], slice_merge(100, HASH_MAX), [run("b", HashRange(100, HASH_MAX))])
    assert shard(lists, 0)[0] == ("new", 0, HASH_MAX, 100, 0)
    half = after_merge(lists, [ALL], slice_merge(0, 49), [run("c", HashRange(0, 49))])
    assert shard(half, 0) == [
        ("new", 0, HASH_MAX, 100, 50),
        ("c", 0, 49, 0, 0),
        ("a", 50, 99, 0, 0),
        ("b", 100, HASH_MAX, 0, 0),
    ]
    whole = after_merge(half, [ALL], slice_merge(50, 99), [run("d", HashRange(50, 99))])
    assert [path for path, *_ in shard(whole, 0)] == ["c", "d", "b"]


def test_a_merge_over_shards_goes_on_in_each_of_them_alone() -> None:
    lists = with_news(((),) * 4, SHARDS, [run("new"), run("old")])
    part = HashRange(10, 2 * QUARTER + 9)
    lists = after_merge(lists, SHARDS, SliceMerge(part, 1, 1), [run("slice", part)])
    assert shard(lists, 0) == [
        ("new", 0, QUARTER - 1, 10, 0),
        ("old", 0, 9, 0, 0),
        ("slice", 10, QUARTER - 1, 0, 0),
    ]
    assert shard(lists, 1) == [("slice", QUARTER, 2 * QUARTER - 1, 0, 0)]
    assert shard(lists, 2)[0] == ("new", 2 * QUARTER, 3 * QUARTER - 1, 2 * QUARTER, 2 * QUARTER + 10)
    assert shard(lists, 3) == [(path, 3 * QUARTER, HASH_MAX, 0, 0) for path in ("new", "old")]


def test_rows_split_into_several_files_are_in_the_order_of_their_hashes() -> None:
    lists = with_news(((),), [ALL], [run("new"), run("old")])
    outputs = [run("b", HashRange(50, 99)), run("a", HashRange(0, 49))]
    lists = after_merge(lists, [ALL], slice_merge(0, 99), outputs)
    assert [path for path, *_ in shard(lists, 0)] == ["new", "a", "b", "old"]


def test_of_a_merge_that_left_no_row_nothing_is_named() -> None:
    lists = with_news(((),), [ALL], [run("new"), run("old")])
    assert after_merge(lists, [ALL], SliceMerge(ALL, 1, 1), []) == ((),)
    hole = after_merge(lists, [ALL], slice_merge(100, 199), [])
    assert shard(hole, 0) == [("new", 0, HASH_MAX, 100, 200), ("old", 0, HASH_MAX, 100, 200)]


def test_the_lists_before_are_left_as_they_were() -> None:
    """A retained epoch goes on reading its own runs."""
    lists = with_news(((),), [ALL], [run("new"), run("old")])
    copy = tuple(tuple(refs) for refs in lists)
    after_merge(lists, [ALL], slice_merge(0, 99), [run("a", HashRange(0, 99))])
    assert lists == copy


def test_a_merge_of_the_newest_begins_a_new_merge_range() -> None:
    lists = with_news(((),), [ALL], [run("old")])
    lists = with_news(lists, [ALL], [run("two"), run("one")])
    lists = after_merge(lists, [ALL], slice_merge(0, 99), [run("a", HashRange(0, 99))])
    lists = with_news(lists, [ALL], [run("three")])
    lists = after_merge(lists, [ALL], TierMerge(2), [run("two and three")])
    assert shard(lists, 0) == [
        ("two and three", 0, HASH_MAX, 0, 0),
        ("one", 0, HASH_MAX, 0, 100),
        ("a", 0, 99, 0, 0),
        ("old", 100, HASH_MAX, 0, 0),
    ]


def test_the_bottom_is_no_part_of_a_merge_of_the_newest() -> None:
    """Even where the choice had thought there were more upper runs: a slice came out empty."""
    lists = with_news(((),), [ALL], [run("new"), run("old")])
    assert [path for path, *_ in shard(after_merge(lists, [ALL], TierMerge(5), [run("newer")]), 0)] == ["newer", "old"]


def test_what_would_leave_three_pieces_of_a_run_may_not_be_merged() -> None:
    lists = after_merge(with_news(((),), [ALL], [run("new"), run("old")]), [ALL], slice_merge(100, 199), [])
    assert not may_merge(lists[0], ALL, HashRange(300, 399))
    assert may_merge(lists[0], ALL, HashRange(50, 399))
    assert may_merge(lists[0], ALL, HashRange(200, 399))
    assert may_merge(lists[0], ALL, ALL)
    assert may_merge(lists[0], HashRange(0, 50), HashRange(300, 399)), "that is no hash of the shard"


TASKS = [[range(4)], [range(2), range(2, 4)], [range(1), range(1, 4)]]


@pytest.mark.parametrize("tasks", TASKS)
def test_no_key_is_lost_where_runs_are_rewritten_in_the_middle_of_a_pass(tasks: list[range]) -> None:
    """With a single bound in place of a merge range, rows were lost here; only comparing every key showed it."""
    runs = DictRuns(SHARDS)
    hashes = [step * 2**64 // 64 + 7 for step in range(64)]
    for epoch in range(200):
        runs.epoch = epoch
        for shards in tasks:
            part = SHARDS[shards.start].lo, SHARDS[shards.stop - 1].hi
            width = (part[1] - part[0] + 1) // 8
            lo = part[0] + epoch % 8 * width
            runs.carry_out(shards, SliceMerge(HashRange(lo, lo + width - 1), 1, 1))
            if epoch % 3 == 2:  # while the pass is somewhere else each time
                runs.carry_out(shards, TierMerge(2 + epoch % 4))
        said = runs.say(hashes[epoch % 5 :: 5], hashes[epoch % 7 + 1 :: 14])
        for shards in tasks:
            runs.news(shards, said)
        assert runs.read() == runs.rows
        assert max(map(len, runs.lists)) <= 8 + 8 + 1
