from dataclasses import replace

import pytest

from dagster_ckpt.ids import Epoch, Shard, StreamUuid, Term
from dagster_ckpt.protocol.manifest.manifest import ChangeRef
from dagster_ckpt.protocol.object_names import FileId, changes_name, merged_name
from dagster_ckpt.protocol.transitions.append_merges import FileMergeLimits, choose

LIMITS = FileMergeLimits(files_min=4, merges_max=3, bytes_max=200)


def files(*sizes: int | tuple[int, int]) -> list[ChangeRef]:
    """Files of these sizes in bytes; the second number of a pair is how often its rows were merged."""
    made = []
    for at, size in enumerate(sizes):
        bytes_, merges = size if isinstance(size, tuple) else (size, 0)
        file = FileId(Term(1), Epoch(at + 2), Shard(0), 0)
        name = merged_name(merges, file) if merges else changes_name(file)
        made.append(ChangeRef(name, bytes_, bytes_, "c", Epoch(at + 2), Shard(0)))
    return made


def chosen(tail: list[ChangeRef], limits: FileMergeLimits = LIMITS) -> tuple[int, int, int] | None:
    """Of the list the first file that is merged, the one behind the last, and how often rows will have been merged."""
    merge = choose(tail, limits)
    if merge is None:
        return None
    first = tail.index(merge.files[0])
    assert list(merge.files) == tail[first : first + len(merge.files)], "neighbours, in their order"
    return first, first + len(merge.files), merge.merges


@pytest.mark.parametrize("sizes", [[], [1], [1, 1, 1], [(9, 1), 1, 1, 1], [(9, 2), (9, 1), (9, 1), (9, 1), 1, 1, 1]])
def test_few_small_files_wait_for_more(sizes: list[int | tuple[int, int]]) -> None:
    assert chosen(files(*sizes)) is None


def test_neighbours_merged_equally_often_become_one_that_was_merged_once_more() -> None:
    assert chosen(files(1, 1, 1, 1)) == (0, 4, 1)
    assert chosen(files((9, 1), 1, 7, 1, 3, 1)) == (1, 6, 1)
    assert chosen(files((9, 1), (9, 1), (9, 1), (9, 1), 1, 1)) == (0, 4, 2)


def test_the_merge_of_most_files_comes_first_and_of_equals_the_oldest() -> None:
    assert chosen(files(*[(9, 1)] * 4, *[1] * 5)) == (4, 9, 1)
    assert chosen(files(*[(9, 1)] * 4, *[1] * 4)) == (0, 4, 2)


def test_what_is_large_together_becomes_one_however_few() -> None:
    assert chosen(files(60, 41)) == (0, 2, 1)
    assert chosen(files(60, 39)) is None
    assert chosen(files((60, 2), (39, 1), 1)) == (0, 3, 3)


def test_a_merge_is_never_larger_than_the_limit() -> None:
    assert chosen(files(90, 90, 20, 1)) == (0, 3, 1)
    assert chosen(files(90, 90, 21, 1)) == (0, 2, 1)


def test_a_large_file_is_left_alone_and_what_it_cuts_off_becomes_one() -> None:
    assert chosen(files(100, 500, 100)) is None
    assert chosen(files(1, 1, 100, 1, 1)) == (0, 2, 1)
    assert chosen(files(100, 1, 100, (1, 1), 2, 100, 1)) == (3, 5, 2)


def test_a_file_that_was_merged_often_enough_is_left_alone_though_it_is_small() -> None:
    assert chosen(files((5, 3), *[1] * 3)) is None
    assert chosen(files(*[(5, 3)] * 6)) is None
    assert chosen(files((99, 3), 99)) is None


def test_a_file_of_another_stream_is_left_alone() -> None:
    tail = files(1, 1, 1, 1, 1)
    tail[1] = replace(tail[1], ancestor=StreamUuid("origin"))
    assert chosen(tail) is None


def test_a_day_of_small_epochs_ends_in_few_files() -> None:
    tail: list[ChangeRef] = []
    written = longest = 0
    for epoch in range(8640):
        if merge := choose(tail, FileMergeLimits()):
            first = tail.index(merge.files[0])
            size = sum(file.bytes for file in merge.files)
            name = merged_name(merge.merges, FileId(Term(1), Epoch(epoch), Shard(0), 0))
            tail[first : first + len(merge.files)] = [ChangeRef(name, 1, size, "c", Epoch(epoch), Shard(0))]
            written += size
        tail.append(files(200_000)[0])
        longest = max(longest, len(tail))
    assert longest <= 100
    assert len(tail) <= 100
    assert written <= 3 * 8640 * 200_000, "each row was rewritten at most three times"
