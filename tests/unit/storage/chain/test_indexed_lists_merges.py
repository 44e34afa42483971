"""However many tasks an epoch has: an append-only stream's small files become few before the list's tail is spilled."""

import itertools

import pytest

from dagster_ckpt.ids import Epoch, Shard, Term
from dagster_ckpt.protocol.ack import FilesMerged
from dagster_ckpt.protocol.manifest.codec import CHANGES
from dagster_ckpt.protocol.manifest.manifest import ChangeRef, IndexedList
from dagster_ckpt.protocol.object_names import FileId, changes_name, index_name, merged_name
from dagster_ckpt.protocol.transitions.append_merges import FileMergeLimits, choose, with_merged
from dagster_ckpt.storage.chain.indexed_lists import TAIL_MAX, IndexedLists, open_end
from tests.worlds.clock import StillClock
from tests.worlds.streams import a_store

LARGE = FileMergeLimits().bytes_max // 2


def a_file(epoch: int, number: int, size: int, merges: int = 0) -> ChangeRef:
    file = FileId(Term(1), Epoch(epoch), Shard(0), 0, number)
    name = merged_name(merges, file) if merges else changes_name(file)
    return ChangeRef(name, 1, size, "c", Epoch(epoch), Shard(0))


@pytest.mark.parametrize("tasks", [1, 700])
def test_what_is_spilled_is_large(tasks: int) -> None:
    lists = IndexedLists(a_store(), CHANGES, StillClock())
    names = (index_name(FileId(Term(1), Epoch(1), Shard(0), 0, number)) for number in itertools.count())
    size = 4 * LARGE // (3 * tasks)  # epochs bring large files at once where there is one task
    listed: IndexedList[ChangeRef] = IndexedList()
    for epoch in range(2, 640):
        tail = listed.tail
        merge = choose(tail, FileMergeLimits())
        if merge is not None:
            merged = a_file(epoch, 0, sum(file.bytes for file in merge.files), merge.merges)
            merged = ChangeRef(merged.path, len(merge.files), merged.bytes, "c", Epoch(epoch), Shard(0))
            tail = with_merged(tail, [FilesMerged(tuple(file.path for file in merge.files), merged)])
        own = tuple(a_file(epoch, number, size) for number in range(tasks))
        listed = lists.shorten(IndexedList(listed.index, (*tail, *own)), lambda: next(names), open_end(tasks))
        assert len(listed.tail) <= TAIL_MAX + TAIL_MAX // 4 + tasks
    spilled = lists.entries(IndexedList(listed.index))
    assert spilled
    assert sum(file.bytes < LARGE for file in spilled) <= len(spilled) // 4
