from dataclasses import replace

from dagster_ckpt.hash_range import HashRange
from dagster_ckpt.ids import Epoch, StreamUuid
from dagster_ckpt.lsm.compaction.levels import Levels, split_levels
from dagster_ckpt.protocol.manifest.manifest import RunRef, TimeRange
from tests.worlds.dict_runs import shard_ranges

QUARTER = 2**62
SHARDS = shard_ranges(4)


def run(path: str, epoch: int, clip: HashRange = HashRange(), moved: tuple[int, int] = (0, 0)) -> RunRef:
    return RunRef(path, 100, 1000, "", Epoch(epoch), clip=clip, moved_lo=moved[0], moved_hi=moved[1])


def shared(path: str, epoch: int, shards: range = range(4)) -> dict[int, RunRef]:
    """A file of these shards, each with a different clip."""
    return {shard: run(path, epoch, SHARDS[shard]) for shard in shards}


def lists(*files: dict[int, RunRef]) -> list[list[RunRef]]:
    """What each shard has of these files, newest first."""
    return [[file[shard] for file in files if shard in file] for shard in range(4)]


def paths(levels: Levels) -> tuple[list[str], list[str]]:
    return [placed.ref.path for placed in levels.upper], [placed.ref.path for placed in levels.bottom]


def test_a_file_of_several_shards_is_one_run_of_all_their_hashes() -> None:
    levels = split_levels(lists(shared("new", 2), shared("old", 1)), SHARDS)
    assert paths(levels) == (["new"], ["old"])
    assert levels.upper[0].shown == levels.bottom[0].shown == (HashRange(),)


def test_a_task_of_fewer_shards_sees_only_their_part() -> None:
    middle = split_levels(lists(shared("new", 2), shared("old", 1))[1:3], SHARDS[1:3])
    assert [placed.shown for placed in (*middle.upper, *middle.bottom)] == [
        (HashRange(QUARTER, 3 * QUARTER - 1),),
        (HashRange(QUARTER, 3 * QUARTER - 1),),
    ]


def test_nothing_is_shown_where_the_file_has_no_hash() -> None:
    few = {shard: replace(ref, hashes=HashRange(5, 2 * QUARTER + 5)) for shard, ref in shared("few", 2).items()}
    levels = split_levels(lists(few, shared("old", 1)), SHARDS)
    assert levels.upper[0].shown == (HashRange(5, 2 * QUARTER + 5),)


def test_what_was_moved_down_is_not_shown() -> None:
    """Shards that are merged at different places: rows between two ranges are hidden."""
    new = shared("new", 2)
    new[0] = run("new", 2, SHARDS[0], moved=(0, 100))
    new[2] = run("new", 2, SHARDS[2], moved=(3 * QUARTER - 50, 2 * QUARTER + 10))  # went round
    slice_ = {0: run("slice", 2, HashRange(0, 99))}
    levels = split_levels(lists(new, slice_, shared("old", 1)), SHARDS)
    assert levels.upper[0].shown == (
        HashRange(100, 2 * QUARTER - 1),
        HashRange(2 * QUARTER + 10, 3 * QUARTER - 51),
        HashRange(3 * QUARTER, 2**64 - 1),
    )


def test_the_bottom_is_ascending_and_no_two_of_it_show_the_same_hash() -> None:
    slices = [
        {0: run("a", 5, HashRange(0, 9))},
        {0: run("b", 5, HashRange(10, 19))},
        {0: run("c", 4, HashRange(20, 90))},
    ]
    levels = split_levels(lists({0: run("new", 6, SHARDS[0])}, slices[2], slices[0], slices[1]), SHARDS)
    assert paths(levels) == (["new"], ["a", "b", "c"])
    assert [placed.shown for placed in levels.bottom] == [
        (HashRange(0, 9),),
        (HashRange(10, 19),),
        (HashRange(20, 90),),
    ]


def test_a_slice_of_several_shards_is_one_run_of_the_bottom() -> None:
    across = {0: run("slice", 2, HashRange(100, QUARTER - 1)), 1: run("slice", 2, HashRange(QUARTER, QUARTER + 9))}
    assert split_levels(lists(across), SHARDS).bottom[0].shown == (HashRange(100, QUARTER + 9),)


def test_a_run_of_the_bottom_in_two_pieces_is_there_twice() -> None:
    """So each shows one range: the rows between them belong to another run."""
    holed, slice_ = run("holed", 1, SHARDS[0], moved=(10, 20)), run("slice", 2, HashRange(10, 19))
    levels = split_levels(lists({0: holed}, {0: slice_}), SHARDS)
    assert paths(levels) == ([], ["holed", "slice", "holed"])
    assert all(len(placed.shown) == 1 for placed in levels.bottom)


def test_the_tiers_of_the_first_release_have_the_oldest_as_their_bottom() -> None:
    """Whole shards, without a clip, several of one level, and each shard merged when it liked."""
    tiers = [
        [run(f"{shard}-{number}", epoch) for number, epoch in enumerate(epochs)]
        for shard, epochs in enumerate([(9, 8, 4), (9, 7), (6,), ()])
    ]
    levels = split_levels(tiers, SHARDS)
    assert paths(levels) == (["0-0", "1-0", "0-1"], ["0-2", "1-1", "2-0"])
    assert levels.upper[1].shown == (SHARDS[1],), "a clip reaches beyond the shard, the shard does not"


def test_files_of_another_number_of_tasks_are_newest_first_too() -> None:
    before = [
        shared(f"{epoch}-{shards.start}", epoch, shards) for epoch in (4, 3) for shards in (range(2), range(2, 4))
    ]
    levels = split_levels(lists(shared("6", 6), shared("5", 5), *before, shared("1", 1)), SHARDS)
    assert paths(levels) == (["6", "5", "4-0", "4-2", "3-0", "3-2"], ["1"])


def test_no_run_goes_above_one_that_is_newer_in_some_shard() -> None:
    """Files of one epoch, of which a shard has but the second."""
    one, two = shared("one", 7, range(2)), shared("two", 7, range(1, 4))
    levels = split_levels(lists(one, two, shared("old", 1)), SHARDS)
    assert paths(levels) == (["one", "two"], ["old"])


def test_lists_that_contradict_each_other_are_taken_shard_by_shard() -> None:
    """No code writes such lists; still, the order of each shard's list counts."""
    old = shared("old", 1)
    orders = [["a", "b"], ["b", "a"], ["a", "b"], ["b", "a"]]
    odd = [[*(shared(path, 5)[shard] for path in order), old[shard]] for shard, order in enumerate(orders)]
    levels = split_levels(odd, SHARDS)
    for shard, order in enumerate(orders):
        within = SHARDS[shard]
        seen = [
            placed.ref.path for placed in levels.upper if any(each.lo <= within.lo <= each.hi for each in placed.shown)
        ]
        assert seen == order
    assert paths(levels)[1] == ["old"]


def test_references_that_do_not_mean_the_same_rows_stay_apart() -> None:
    """An ancestor's file may have the name of one of our own; and rows may have expired for one shard alone."""
    ours, theirs = run("run", 2, SHARDS[0]), replace(run("run", 2, SHARDS[1]), ancestor=StreamUuid("them"))
    assert len(split_levels(lists({0: ours, 1: theirs}), SHARDS).bottom) == 2
    times = TimeRange(5, 100)
    early = replace(run("run", 2, SHARDS[0]), times=times)
    late = replace(run("run", 2, SHARDS[1]), times=replace(times, least_us=50))
    assert len(split_levels(lists({0: early, 1: late}), SHARDS).bottom) == 2
    assert len(split_levels(lists({0: early, 1: replace(late, times=times)}), SHARDS).bottom) == 1


def test_no_shards_and_no_runs_have_no_levels() -> None:
    assert split_levels([], []) == split_levels([(), ()], SHARDS[:2]) == Levels((), ())
