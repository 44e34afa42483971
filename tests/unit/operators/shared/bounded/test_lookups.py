from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.table import Found, Hashes
from dagster_ckpt.operators.shared.bounded.lookups import Lookups
from tests.unit.operators.dict_state import DictTable

BYTES_MAX = 1 << 18
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.binary())])


@dataclass
class Rows(DictTable):
    """A table with rows of these sizes, the n-th under the key n; how many keys were asked for at once."""

    schema: pa.Schema = SCHEMA
    keys: tuple[str, ...] = ("k",)
    sizes: Sequence[int] = ()
    counts: list[int] = field(default_factory=list)

    def get(self, hashes: Hashes, keys: pa.Table) -> Found:
        self.counts.append(len(hashes))
        assert hashes.tolist() == keys["k"].to_pylist()
        there = [key for key in keys["k"].to_pylist() if key < len(self.sizes)]
        values = pa.array([b"x" * self.sizes[key] for key in there], pa.binary())
        present = hashes < np.uint64(len(self.sizes))
        return Found(present, pa.table([pa.array(there, pa.int64()), values], schema=SCHEMA))


def looked_up(sizes: Sequence[int], keys: range) -> tuple[list[int], list[tuple[slice, Found]]]:
    table = Rows(sizes=sizes)
    hashes = np.array(keys, dtype=np.uint64)
    parts = list(Lookups(table, BYTES_MAX).find(hashes, pa.table({"k": pa.array(keys, pa.int64())})))
    assert [(part.start, part.stop) for part, _ in parts] == [
        (before, part.stop) for before, (part, _) in zip([0, *(part.stop for part, _ in parts)], parts, strict=False)
    ], "one part begins where another ends"
    found = [key for _, each in parts for key in each.rows["k"].to_pylist()]
    assert found == [key for key in keys if key < len(sizes)], "each is found once, in its order"
    return table.counts, parts


def test_a_batch_grows_until_it_would_fill_half_of_memory() -> None:
    counts, _ = looked_up([84] * 10_000, range(10_000))
    assert counts == [16, 256, 1365, 1365, 1365, 1365, 1365, 1365, 1365, 173]


def test_narrow_rows_are_got_in_few_parts() -> None:
    counts, _ = looked_up([0] * 4096, range(4096))
    assert counts == [16, 256, 3824]


def test_of_wide_rows_little_is_held_and_a_single_one_whatever_its_size() -> None:
    sizes = [1] * 1000
    sizes[500:510] = [2 * BYTES_MAX] * 10
    counts, parts = looked_up(sizes, range(1000))
    assert all(len(found.present) == 1 or found.rows.nbytes <= BYTES_MAX for _, found in parts)
    assert counts.count(1) >= 10
    assert len(counts) < 60


def test_keys_that_are_not_there_are_answered_too() -> None:
    _, parts = looked_up([8] * 5, range(1, 12))
    assert np.concatenate([found.present for _, found in parts]).tolist() == [True] * 4 + [False] * 7


def test_no_keys_are_no_look_up() -> None:
    assert looked_up([], range(0)) == ([], [])
