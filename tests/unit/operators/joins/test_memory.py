"""However much waits in one window, or under the keys that rows look up: little of it is held at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dagster_ckpt.lsm.table import FoundAll, Hashes
from dagster_ckpt.operators.joins import JoinType
from dagster_ckpt.operators.joins import window_join as windowed
from dagster_ckpt.operators.joins.bucket_lookups import BucketLookups, BucketProbes
from dagster_ckpt.operators.shared.bounded.due_rows import due_together, hash_ranges, row_weights
from dagster_ckpt.operators.shared.state_columns import hashes_in
from dagster_ckpt.operators.shared.window_kinds import Tumbling
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec
from tests.unit.operators.dict_state import DictTable
from tests.unit.operators.joined_streams import Batch, in_dicts, interval_join, left, right, window_join

TYPES = list(JoinType)
KEYS = [chr(ord("A") + number) for number in range(40)]
MEMORY = 1 << 13
ROW_BYTES = 49
"""Of a row that waits for its window: five numbers, a letter, and the letter's offset."""


@dataclass
class OneWindow:
    """A timeline with these rows, all of one window; how often it was scanned."""

    pieces: Sequence[pa.Table]
    scans: int = 0

    def scan(self, from_us: int | None, until_us: int | None) -> Iterator[pa.Table]:
        self.scans += 1
        if (from_us is None or from_us <= 0) and (until_us is None or until_us > 0):
            yield from self.pieces

    def put(self, hashes: Hashes, rows: pa.Table) -> None:
        raise AssertionError("nothing is put")

    def delete(self, hashes: Hashes, keys: pa.Table) -> None:
        raise AssertionError("nothing is deleted")

    def expire(self, until_us: int) -> None:
        raise AssertionError("nothing expires")


def spec_of(number: int = 0) -> StateTableSpec:
    return window_join(Tumbling(10)).states[number].spec


def rows_with(hashes: Sequence[int], number: int = 0) -> pa.Table:
    """Rows of one window whose keys have these hashes."""
    schema, count = spec_of(number).schema, len(hashes)
    values = {
        "k": pa.array(["a"] * count),
        "_hash": pa.array(np.array(hashes, dtype=np.uint64).view(np.int64)),
        "_row": pa.array(range(count), pa.int64()),
    }
    nothing = pa.array([0] * count, pa.int64())
    return pa.table([values.get(f.name, nothing).cast(f.type) for f in schema], schema=schema)


def held(parts: Sequence[pa.Table]) -> int:
    return sum(rows.num_rows for rows in parts)


@pytest.mark.parametrize("spread", [1, 0x9E3779B97F4A7C15], ids=["near each other", "far apart"])
def test_a_window_that_does_not_fit_comes_by_ranges_of_hashes(spread: int) -> None:
    hashes = [number * spread % 2**64 for number in range(100)]
    lefts = OneWindow([rows_with(hashes[at:] + hashes[:at]) for at in range(0, 100, 7)])
    rights = OneWindow([rows_with(hashes[::3], number=1) for _ in range(4)])
    bytes_max = 20 * 20 * ROW_BYTES
    parts = list(due_together([lefts, rights], [spec_of(0), spec_of(1)], 5, bytes_max))
    assert max(map(held, parts)) <= 400, "as much as it may be"
    assert len([part for part in parts if held(part)]) <= 8, "and nearly so much each time: there are 1636 rows"
    assert lefts.scans < 16, "it is counted once or twice"
    for side, rows in enumerate((1500, 34 * 4)):
        found = [set(hashes_in(part[side]).tolist()) for part in parts]
        assert sum(map(len, found)) == len(set().union(*found)), "rows of one key come together"
        assert sum(part[side].num_rows for part in parts) == rows, "each row comes once"
    of_left, of_right = ([hashes_in(part[side]) for part in parts] for side in (0, 1))
    assert all(np.isin(theirs, mine).all() for mine, theirs in zip(of_left, of_right, strict=True)), "with its partners"


def test_only_a_hot_key_is_held_however_many_rows_it_has() -> None:
    cold = [number * 0x9E3779B97F4A7C15 % 2**64 for number in range(100)]
    hot = cold[50]
    beside = [hot - 1, hot + 1]  # in one cell with it
    lefts = OneWindow([rows_with([*cold, *beside, *[hot] * 50]) for _ in range(10)])
    parts = [part for [part] in due_together([lefts], [spec_of()], 5, 100 * ROW_BYTES) if part.num_rows]
    heavy = [hashes_in(part) for part in parts if part.num_rows > 100]
    assert [np.unique(hashes).tolist() for hashes in heavy] == [[hot]]
    assert sum(part.num_rows for part in parts) == 1520


def test_what_is_wide_is_cut_finer() -> None:
    wide = rows_with(range(0, 400, 2))
    values = pa.array(["x" * (1000 if number < 10 else 1) for number in range(200)])
    wide = wide.set_column(0, "k", values)
    weights = row_weights(wide)
    assert weights[0] - weights[-1] == 999
    assert abs(weights.sum() - wide.nbytes) < 0.1 * wide.nbytes
    ranges = sorted((part.lo, part.hi) for part in hash_ranges(lambda: iter([wide]), 3000))
    counts = [sum(lo <= hash_ <= hi for hash_ in range(0, 400, 2)) for lo, hi in ranges]
    assert counts[:4] == [2, 2, 2, 2]
    assert max(counts) > 40
    assert sum(counts) == 200


def every(*batches: Batch) -> list[Batch]:
    """The batches once for each key."""
    return [(number, [(key, *row[1:]) for row in rows]) for key in KEYS for number, rows in batches]


@pytest.mark.parametrize("how", TYPES)
def test_a_window_join_holds_some_keys_of_a_window_at_once(how: JoinType, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def measured(*arguments: Any) -> Iterator[list[pa.Table]]:
        for rows in due_together(*arguments):
            sizes.append(sum(each.nbytes for each in rows))
            yield rows

    monkeypatch.setattr(windowed, "due_together", measured)
    batches = [*every(left(*[1] * 9), right(*[2] * 6)), left(3, 4, k=None), right(3, k=None), left(5, k="-")]
    out = []
    for memory_bytes in (1 << 30, MEMORY):
        sizes.clear()
        stream, world = in_dicts(window_join(Tumbling(10), how), memory_bytes=memory_bytes)
        stream.epoch(*batches)
        out.append(stream.epoch(watermark_us=10))
        assert set(world.held().values()) == {0}
    assert out[0] == out[1]
    assert sum(sizes) > 8 * MEMORY // 4
    assert max(sizes) <= MEMORY // 4 + 40 * ROW_BYTES


@pytest.mark.parametrize("how", TYPES)
@pytest.mark.parametrize("turned", [False, True])
def test_an_interval_join_holds_some_buckets_at_once(
    how: JoinType, turned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, used = answers_of(monkeypatch), used_batches_of(monkeypatch)
    waiting, coming = every(left(*range(0, 76, 2))), every(right(1, 11, 29))
    if turned:
        waiting, coming = every(right(*range(-38, 38, 2))), every(left(1, 11, 29))
    out = []
    for memory_bytes in (1 << 30, MEMORY):
        stream, world = in_dicts(interval_join(-9, 9, how), memory_bytes=memory_bytes)
        stream.epoch(*waiting)
        answers.clear()
        used.clear()
        out.append([stream.epoch(*coming), stream.epoch(*coming, watermark_us=1), stream.epoch(watermark_us=99)])
        assert set(world.held().values()) == {0}
    assert out[0] == out[1]
    assert sum(used) > 4 * MEMORY
    assert max(used) <= MEMORY // 4
    assert max(answers) <= MEMORY, "what is put aside is not much more"


def test_the_first_batch_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = answers_of(monkeypatch)
    stream, _ = in_dicts(interval_join(0, 0), memory_bytes=1 << 24)
    stream.epoch(*every(left(5)))
    answers.clear()
    assert len(stream.epoch(*every(right(5)))) == len(KEYS)
    assert len(answers) == 1


def answers_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes the answers of `get_all` have, one after another."""
    sizes: list[int] = []
    get_all = DictTable.get_all

    def measured(self: DictTable, hashes: Hashes, keys: pa.Table) -> FoundAll:
        found = get_all(self, hashes, keys)
        sizes.append(found.rows.nbytes)
        return found

    monkeypatch.setattr(DictTable, "get_all", measured)
    return sizes


def used_batches_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each batch that is not discarded."""
    sizes: list[int] = []
    bucket_lookups = BucketLookups.find

    def measured(self: BucketLookups, *arguments: Any) -> Iterator[tuple[BucketProbes, FoundAll]]:
        for part, found in bucket_lookups(self, *arguments):
            sizes.append(found.rows.nbytes)
            yield part, found

    monkeypatch.setattr(BucketLookups, "find", measured)
    return sizes


@dataclass
class FakeGet:
    """Returns as many bytes for each bucket as `sizes`; records the number of buckets in each batch."""

    sizes: Sequence[int]
    counts: list[int]

    def __call__(self, probes: BucketProbes) -> FoundAll:
        self.counts.append(len(probes))
        rows = np.repeat(np.arange(len(probes)), [self.sizes[row] for row in probes.rows.tolist()])
        return FoundAll(rows, pa.table({"x": pa.array(np.zeros(len(rows), dtype=np.int8))}))


def probes_of(asked: Sequence[int]) -> BucketProbes:
    """Rows that reach into these buckets."""
    numbers = np.arange(max(asked) + 1)
    return BucketProbes(numbers, numbers, numbers.astype(np.uint64), np.arange(len(asked)), np.array(asked))


def test_a_batch_grows_until_it_would_fill_half() -> None:
    get = FakeGet([100] * 10_000, [])
    lookups = BucketLookups(1 << 20)
    parts = list(lookups.find(probes_of(range(10_000)), get))
    assert get.counts == [16, 128, 1024, 5242, 3590]
    assert [part.rows[0] for part, _ in parts] == [0, 16, 144, 1168, 6410]
    get.counts.clear()
    list(lookups.find(probes_of(range(5000)), get))
    assert get.counts == [5000], "what was learnt stays"


def test_a_batch_that_is_too_large_is_retried_in_parts_down_to_one_bucket() -> None:
    sizes = [1] * 500
    sizes[100:110] = [1 << 20] * 10
    get = FakeGet(sizes, [])
    used = [
        (part.rows.tolist(), found.rows.nbytes)
        for part, found in BucketLookups(1 << 18).find(probes_of(range(500)), get)
    ]
    assert [row for rows, _ in used for row in rows] == list(range(500))
    assert all(bytes_ <= 1 << 18 or len(rows) == 1 for rows, bytes_ in used)
    assert len(get.counts) < 70


def test_each_row_is_with_its_bucket() -> None:
    asked = [2, 0, 1, 2, 2, 0, 3]
    for bytes_max, size in ((0, 5), (1 << 18, 1 << 18)):  # one by one, and all at once, which is too much
        get = FakeGet([size] * 4, [])
        parts = [part for part, _ in BucketLookups(bytes_max).find(probes_of(asked), get)]
        assert get.counts == ([1] * 4 if bytes_max == 0 else [4, *[1] * 4])
        assert [part.at.tolist() for part in parts] == [[1, 5], [2], [0, 3, 4], [6]]
        assert all(set(part.asked.tolist()) == {0} for part in parts)
