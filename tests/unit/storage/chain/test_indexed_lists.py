import gzip
from collections.abc import Callable
from itertools import count

import pytest

from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.ids import Epoch, Shard, Term
from dagster_ckpt.protocol.manifest import packing
from dagster_ckpt.protocol.manifest.codec import FILES_SEEN
from dagster_ckpt.protocol.manifest.manifest import FileSeen, IndexedList
from dagster_ckpt.protocol.manifest.packing import ENTRIES_MAX
from dagster_ckpt.protocol.object_names import FileId, index_name
from dagster_ckpt.storage.chain.indexed_lists import TAIL_MAX, IndexedLists
from tests.worlds.clock import StillClock
from tests.worlds.faulty_store import Fault, FaultyStore, Scripted
from tests.worlds.streams import a_store


def names() -> Callable[[], str]:
    return names_from(0)


def names_from(first: int) -> Callable[[], str]:
    numbers = count(first)
    return lambda: index_name(FileId(Term(1), Epoch(2), Shard(0), next(numbers)))


def files(first: int, last: int) -> tuple[FileSeen, ...]:
    return tuple(FileSeen(f"file:///data/{number}.parquet", number) for number in range(first, last))


def lists() -> tuple[IndexedLists[FileSeen], FaultyStore]:
    store = FaultyStore(a_store())
    return IndexedLists(store, FILES_SEEN, StillClock()), store


def test_a_short_tail_stays_where_it_is() -> None:
    listed, store = lists()
    tail = IndexedList(tail=files(0, TAIL_MAX))
    assert listed.shorten(tail, names()) is tail
    assert store.calls == []


def test_a_long_tail_moves_to_an_index_object() -> None:
    listed, store = lists()
    short = listed.shorten(IndexedList(tail=files(0, TAIL_MAX + 1)), names())
    assert short.tail == ()
    assert [ref.entries for ref in short.index] == [TAIL_MAX + 1]
    assert short.index[0].bytes == store.size(short.index[0].path)
    assert listed.entries(short) == files(0, TAIL_MAX + 1)


def test_the_newest_entries_stay_in_the_tail_where_that_is_wanted() -> None:
    listed, store = lists()
    tail = IndexedList(tail=files(0, TAIL_MAX + 70))
    assert listed.shorten(tail, names(), kept=70) is tail
    short = listed.shorten(tail, names(), kept=69)
    assert short.tail == files(TAIL_MAX + 1, TAIL_MAX + 70)
    assert listed.entries(short) == tail.tail
    assert len(store.calls) == 2, "one written, one read"


def test_a_very_long_list_needs_few_objects_and_rewrites_each_entry_a_few_times() -> None:
    listed, store = lists()
    fresh, total, step = names(), 78_000, 600
    grown: IndexedList[FileSeen] = IndexedList()
    for first in range(0, total, step):
        grown = listed.shorten(IndexedList(grown.index, (*grown.tail, *files(first, first + step))), fresh)
        assert len(grown.index) <= 3 * 8
    assert listed.entries(grown) == files(0, total)
    assert all(ref.entries <= ENTRIES_MAX for ref in grown.index)
    written = sum(len(listed._read([ref])) for ref in grown.index)
    assert written == total
    assert sum(call.verb == "put_if_absent" for call in store.calls) < 2 * total / step


def test_a_spill_of_very_many_entries_is_bounded_pieces_that_can_be_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """1.6 million files of one epoch were one object of more than could be unpacked: committed, and never read."""
    monkeypatch.setattr(packing, "JSON_BYTES_MAX", 100_000)
    monkeypatch.setattr(packing, "_ENTRIES_BYTES_MAX", 20_000, raising=False)
    listed, store = lists()
    short = listed.shorten(IndexedList(tail=files(0, 5_000)), names())
    assert max(len(gzip.decompress(store.get(ref.path))) for ref in short.index) <= 20_000
    assert sum(ref.entries for ref in short.index) == 5_000
    assert listed.entries(short) == files(0, 5_000)
    grown = listed.shorten(IndexedList(short.index, files(5_000, 6_000)), names_from(100))
    assert listed.entries(grown) == files(0, 6_000)


def test_no_index_object_has_more_entries_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "ENTRIES_MAX", 900, raising=False)
    listed, _ = lists()
    short = listed.shorten(IndexedList(tail=files(0, 2_000)), names())
    assert [ref.entries for ref in short.index] == [900, 900, 200]
    assert listed.entries(short) == files(0, 2_000)


def test_an_object_that_unpacks_to_more_than_any_may_have_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    listed, _ = lists()
    large = listed.shorten(IndexedList(tail=files(0, 5_000)), names())
    monkeypatch.setattr(packing, "JSON_BYTES_MAX", 100_000)
    with pytest.raises(CorruptStateError, match="the bytes end too early, or there are too many"):
        listed.entries(large)


def test_a_crash_between_two_pieces_leaves_objects_that_no_list_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "ENTRIES_MAX", 900, raising=False)
    listed, store = lists()
    fresh = names()
    tail = IndexedList(tail=files(0, 2_000))

    def crashed() -> str:
        if len(list(store.list("index"))) == 2:
            raise InterruptedError
        return fresh()

    with pytest.raises(InterruptedError):
        listed.shorten(tail, crashed)
    short = listed.shorten(tail, fresh)
    assert listed.entries(short) == tail.tail
    assert len(list(store.list("index"))) == 2 + len(short.index)


def test_merged_objects_are_left_where_they_are_for_older_epochs() -> None:
    listed, _ = lists()
    fresh = names()
    older = grown = listed.shorten(IndexedList(tail=files(0, 600)), fresh)
    for first in range(600, 12_000, 600):
        grown = listed.shorten(IndexedList(grown.index, files(first, first + 600)), fresh)
    assert listed.entries(older) == files(0, 600)
    assert listed.entries(grown) == files(0, 12_000)


@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LOST_REPLY])
def test_an_index_object_is_durable_before_it_is_named(fault: Fault) -> None:
    listed, store = lists()
    store.decide = Scripted(("put_if_absent", "index", fault), ("get", "index", fault))
    short = listed.shorten(IndexedList(tail=files(0, 600)), names())
    verbs = [call.verb for call in store.calls]
    assert ("settle" in verbs) == (fault is Fault.LOST_REPLY)
    assert listed.entries(short) == files(0, 600)


def test_a_name_used_twice_is_a_mistake_of_ours() -> None:
    listed, _ = lists()
    listed.shorten(IndexedList(tail=files(0, 600)), lambda: "index/1-2-0-0.json")
    with pytest.raises(AssertionError, match="name is used"):
        listed.shorten(IndexedList(tail=files(1, 601)), lambda: "index/1-2-0-0.json")


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_a_missing_or_damaged_index_object_is_named_with_the_epoch_that_needs_it(damage: str) -> None:
    listed, store = lists()
    short = listed.shorten(IndexedList(tail=files(0, 600)), names())
    path = short.index[0].path
    data = store.get(path)
    store.delete(path)
    if damage == "damaged":
        store.put(path, data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CorruptStateError, match=rf"is {damage}: .* before epoch 2\. object={path}"):
        listed.entries(short)
