"""The job that is simulated, twice: as plain Python over all input at once, and as what runs and change logs hold.

Input is a row of batches, the first is number 1. Each row is a key and an amount. A keyed stream's table is the sum of
the amounts of each key; an append-only stream's table is its input. A key's hash is its bits in reverse, so that a
shard is a range of hashes, as it is for streams, and shards are as even as they can be.
"""

import json
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b

from dagster_ckpt.hash_range import HashRange
from dagster_ckpt.protocol.manifest.manifest import FileSeen, IndexedList, Manifest, RunRef, SourcePosition
from tests.worlds.manifests import PIPELINE, SOURCE

TABLE = "total"
KEYED = PIPELINE
APPEND = replace(PIPELINE, operator="append", parameters={}, keys=(), tables=(), appends=True)
KEYS, CLASSES = 7, 4
_SORTED = json.JSONEncoder(sort_keys=True)

Row = tuple[int, int]
Sums = dict[str, int]
"""By key; text, as JSON wants it."""


@lru_cache(maxsize=1024)
def batch(number: int) -> tuple[Row, ...]:
    """The rows of a batch: one to four, of keys that come again and again."""
    return tuple(((number * 3 + at * 5) % KEYS, number * 10 + at) for at in range(1 + number % 4))


def hash_of(key: int) -> int:
    """64 bits, of which the key's lowest is the highest."""
    return int(f"{key:064b}"[::-1], 2)


def cell_of(key: int, class_: int) -> str:
    """The name of the total of a key's rows of one class, which streams of several steps keep."""
    return f"{key}.{class_}"


CELLS = {cell_of(key, class_): hash_of(class_) for key in range(KEYS) for class_ in range(CLASSES)}
HASHES = {str(key): hash_of(key) for key in range(KEYS)} | CELLS


def shard_of(key: int | str, shards: int) -> int:
    return HASHES[str(key)] * shards >> 64


def hashes_of(sums: Sums) -> HashRange:
    """The least and the greatest hash of these keys, of which there is one."""
    hashes = [HASHES[key] for key in sums]
    return HashRange(min(hashes), max(hashes))


def shown(ref: RunRef, content: Sums) -> Sums:
    """What a reference to a run of that content shows of it."""
    ranges = ref.visible
    return {key: total for key, total in content.items() if any(each.lo <= HASHES[key] <= each.hi for each in ranges)}


def rows_of(number: int, shard: int, shards: int) -> list[Row]:
    return [(key, amount) for key, amount in batch(number) if shard_of(key, shards) == shard]


@lru_cache(maxsize=1024)
def sums_after(batches: int) -> Sums:
    """The keyed table after that many batches. Not to be changed."""
    if batches == 0:
        return {}
    return added(sums_after(batches - 1), batch(batches))


@lru_cache(maxsize=1024)
def rows_after(shards: tuple[int, ...]) -> list[Row]:
    """The append-only table after as many batches, each worked on with that number of shards: shard by shard.

    Not to be changed.
    """
    return [row for number, of in enumerate(shards, 1) for shard in range(of) for row in rows_of(number, shard, of)]


def added(sums: Sums, rows: list[Row] | tuple[Row, ...]) -> Sums:
    after = dict(sums)
    for key, amount in rows:
        after[str(key)] = after.get(str(key), 0) + amount
    return after


def encode(content: Sums | list[Row]) -> bytes:
    return _SORTED.encode(content).encode()


@lru_cache(maxsize=8192)
def decode_sums(data: bytes) -> Sums:
    """The content of a run. Not to be changed."""
    sums: Sums = json.loads(data)
    return sums


@lru_cache(maxsize=8192)
def decode_rows(data: bytes) -> tuple[Row, ...]:
    """The content of an append-only stream's change-log file."""
    return tuple((key, amount) for key, amount in json.loads(data))


def checksum(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()


def consumed(manifest: Manifest) -> int:
    """How many batches the shown epoch has read."""
    position = manifest.sources[0].current if manifest.sources else None
    return 0 if position is None else _log_offset(position)


@lru_cache(maxsize=1024)
def _log_offset(position: str) -> int:
    return int(json.loads(position)["logOffset"])


def time_us(number: int) -> int:
    """The event time of a batch's rows, in worlds that have one."""
    return number * 1_000_000


def position_after(parent: Manifest, number: int) -> SourcePosition:
    """Where the source stands after that batch. Each batch is one file."""
    before = parent.sources[0] if parent.sources else SourcePosition(SOURCE)
    file = FileSeen(f"file:///data/departures/{number}", number)
    files = IndexedList(before.files.index, (*before.files.tail, file))
    return replace(before, current=f'{{"logOffset":{number}}}', previous=before.current, files=files)
