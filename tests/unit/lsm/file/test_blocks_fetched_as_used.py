"""A run of a remote store that is only rubbish at first: code that does not fetch bytes before use reads that."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dagster_ckpt.hash_range import HashRange
from dagster_ckpt.lsm.file import run_file
from dagster_ckpt.lsm.file.blocks import Damaged, Range
from dagster_ckpt.lsm.file.run_file import decode, encode
from dagster_ckpt.lsm.lookup import find_rows, look_up
from dagster_ckpt.lsm.runs.deltas import read_before_images, with_before_images
from dagster_ckpt.lsm.runs.run import Run, build_run
from dagster_ckpt.lsm.runs.view import View
from dagster_ckpt.lsm.table import Found

ROWS = 3000
RUBBISH = 0xA5
SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("s", pa.string()),
        ("v", pa.float64()),
        ("t", pa.bool_()),
        ("b", pa.large_binary()),
        ("d", pa.decimal128(38, 2)),
        ("at", pa.timestamp("us")),
        ("l", pa.list_(pa.string())),
        ("n", pa.struct([("x", pa.int8()), ("y", pa.string())])),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("f", pa.list_(pa.int16(), 3)),
    ]
)
KEYS = ["i", "s"]


class Rubbish:
    """Implements `blocks.Far`: brings exactly what it is asked for."""

    origin = "nowhere"

    def __init__(self, file: pa.Buffer) -> None:
        self.data = pa.allocate_buffer(file.size)
        self.brought = 0
        self._here = np.frombuffer(self.data, dtype=np.uint8)
        self._here[:] = RUBBISH
        self._file = np.frombuffer(file, dtype=np.uint8)

    def fetch(self, ranges: Sequence[Range], damaged: Damaged | None = None) -> None:
        for start, until in ranges:
            assert not np.array_equal(self._here[start:until], self._file[start:until]), "it is there already"
            self._here[start:until] = self._file[start:until]
            self.brought += until - start

    def renew(self, ranges: Sequence[Range], damaged: Damaged | None = None) -> None:
        raise AssertionError(f"what was brought is whole. {ranges=}")


def maybe(chance: np.random.Generator, value: object) -> object:
    return None if chance.random() < 0.2 else value


def a_row(chance: np.random.Generator, number: int) -> dict[str, Any]:
    text = "x" * int(chance.integers(0, 20))
    each = {
        "s": text,
        "v": float(number),
        "t": number % 3 == 0,
        "b": text.encode() * 3,
        "d": Decimal(number) / 4,
        "at": number * 10**9,
        "l": [text, None, str(number)][: number % 4],
        "n": {"x": maybe(chance, number % 100), "y": text},
        "m": [(text, number)] * (number % 3),
        "f": [number % 7, None, 3],
    }
    return {"i": number} | {name: maybe(chance, value) for name, value in each.items()}


def a_run(seed: int) -> Run:
    chance = np.random.default_rng(seed)
    rows = pa.Table.from_pylist([a_row(chance, number) for number in range(ROWS)], schema=SCHEMA)
    hashes = chance.integers(0, 2**64, ROWS, dtype=np.uint64)
    hashes[:50] = hashes[50]  # hashes that collide, too
    return build_run(hashes, rows, chance.random(ROWS) < 0.1)


def far(run: Run) -> tuple[Run, Rubbish]:
    file = encode(run)
    rubbish = Rubbish(file.data)
    return decode("some.arrow", rubbish.data, file.checksum, SCHEMA, rubbish), rubbish


def found(view: View, whole: Run, rows: Sequence[int]) -> Found:
    """Look up the keys of these rows of the whole run, and one that is not there."""
    at = np.array(sorted(rows))
    keys = pa.concat_tables(
        [
            whole.columns(KEYS).take(pa.array(at)),
            pa.table([[-1], ["no"]], schema=pa.schema([SCHEMA.field(name) for name in KEYS])),
        ]
    )
    hashes = np.append(whole.hashes[at], whole.hashes[at[-1]])
    answer = look_up([view], [], hashes, keys, SCHEMA)
    return find_rows(answer.parts, keys, SCHEMA)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_file, "BLOCK_BYTES", 64)


@pytest.mark.parametrize("seed", range(5))
def test_a_look_up_is_right_and_fetches_little(seed: int) -> None:
    whole = a_run(seed)
    chance = np.random.default_rng(seed)
    run, rubbish = far(whole)
    tail = rubbish.brought
    for step in range(20):
        rows = chance.choice(ROWS, size=10, replace=False).tolist()
        mine, theirs = found(View(run), whole, rows), found(View(whole), whole, rows)
        assert mine.present.tolist() == theirs.present.tolist()
        assert mine.rows.equals(theirs.rows)
        if step == 0:
            assert rubbish.brought - tail < 0.15 * rubbish.data.size


@pytest.mark.parametrize("seed", range(5))
def test_a_range_is_right_and_fetches_little(seed: int) -> None:
    whole = a_run(seed)
    chance = np.random.default_rng(seed)
    run, rubbish = far(whole)
    tail = rubbish.brought
    for step in range(20):
        start = int(chance.integers(0, ROWS - 100))
        lo, hi = int(whole.hashes[start]), int(whole.hashes[start + int(chance.integers(0, 100))])
        mine, theirs = View(run, (HashRange(lo, hi),)).between(), View(whole, (HashRange(lo, hi),)).between()
        assert mine.columns().equals(theirs.columns())
        assert mine.hashes.tolist() == theirs.hashes.tolist()
        assert dead(mine) == dead(theirs)
        if step == 0:
            assert rubbish.brought - tail < 0.15 * rubbish.data.size


def dead(run: Run) -> list[bool]:
    return [False] * len(run) if run.tombstones is None else run.tombstones.tolist()


@pytest.mark.parametrize("name", [None, *SCHEMA.names])
def test_a_column_is_right_by_itself_and_after_a_look_at_some_of_it(name: str | None) -> None:
    whole = a_run(7)
    names = None if name is None else [name]
    run, _ = far(whole)
    assert run.columns(names).equals(whole.columns(names))
    again, _ = far(whole)
    found(View(again), whole, [5, 900])
    assert again.columns(names).equals(whole.columns(names))
    assert again.hashes.tolist() == whole.hashes.tolist()


def test_a_run_is_loaded_whole() -> None:
    whole = a_run(8)
    run, rubbish = far(whole)
    loaded = run.load()
    file = encode(whole)
    assert loaded.nbytes == decode("some.arrow", file.data, file.checksum, SCHEMA).load().nbytes
    brought = rubbish.brought
    assert loaded.columns().equals(whole.columns())
    assert encode(loaded).data.size == file.data.size
    assert rubbish.brought == brought


@pytest.mark.parametrize("seed", range(3))
def test_what_some_keys_had_before_is_right_though_the_rest_was_not_brought(seed: int) -> None:
    chance = np.random.default_rng(seed)
    rows = a_run(seed).columns()
    was = chance.random(ROWS) < 0.8
    whole = with_before_images(a_run(seed + 10), Found(was, rows.filter(pa.array(was))), KEYS)
    run, _ = far(whole)
    for start in (0, 1000, ROWS - 100):
        mine, theirs = (read_before_images(each.slice(start, start + 100), KEYS, SCHEMA) for each in (run, whole))
        assert mine.present.tolist() == theirs.present.tolist()
        assert mine.rows.equals(theirs.rows)


def test_what_stands_in_for_a_missing_column_is_fetched_when_it_is_used() -> None:
    totals = [(-1) ** number * number**4 for number in range(ROWS)]
    old = pa.table({"k": range(ROWS), "_sum(x)": totals, "_n(x)": [1] * ROWS})
    now = pa.schema([(name, pa.int64()) for name in ("k", "_n(x)", "_sum_high(x)", "_sum_low(x)")])
    file = encode(
        with_before_images(build_run(np.arange(ROWS, dtype=np.uint64), old), Found(np.ones(ROWS, bool), old), ["k"])
    )

    def opened() -> tuple[Run, Rubbish]:
        rubbish = Rubbish(file.data)
        return decode("some.arrow", rubbish.data, file.checksum, now, rubbish), rubbish

    run, rubbish = opened()
    tail = rubbish.brought
    some = np.array([7, 2000])
    high, low = (column.take(some).to_pylist() for column in run.columns_at(["_sum_high(x)", "_sum_low(x)"], some))
    assert [(one << 32) + rest for one, rest in zip(high, low, strict=True)] == [totals[7], totals[2000]]
    assert rubbish.brought - tail < 0.01 * file.data.size
    piece = opened()[0].slice(100, 200)
    for rows, expected in (
        (run.columns(), totals),
        (piece.columns(), totals[100:200]),
        (opened()[0].load().columns(), totals),
    ):
        halves = zip(*(rows.column(name).to_pylist() for name in now.names[2:]), strict=True)
        assert [(one << 32) + rest for one, rest in halves] == expected
        assert rows.schema == now
    assert read_before_images(opened()[0].slice(100, 200), ["k"], now).rows.equals(piece.columns())
