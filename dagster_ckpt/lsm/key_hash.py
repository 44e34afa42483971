"""The hash of keys as Spark computes it, `xxhash64(columns)`, to look up keys without Spark."""

from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flat, to_mask
from dagster_ckpt.lsm.table import Hashes

SEED = 42
_1 = np.uint64(0x9E3779B185EBCA87)
_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_3 = np.uint64(0x165667B19E3779F9)
_4 = np.uint64(0x85EBCA77C2B2AE63)
_5 = np.uint64(0x27D4EB2F165667C5)
_STRIPE_BYTES = 32
_LONG_DECIMAL_DIGITS_MAX = 18
"""Spark keeps a decimal of up to this many digits in 64 bits."""


def key_hashes(keys: pa.Table) -> Hashes:
    """The hash of each row; the columns have types that a key may have. A null leaves the hash unchanged."""
    return reduce(_mix_in, map(flat, keys.columns), np.full(keys.num_rows, SEED, dtype=np.uint64))


def _mix_in(hashes: Hashes, column: pa.Array) -> Hashes:
    if column.null_count == 0:
        return _of_values(column, hashes)
    there = np.flatnonzero(to_mask(column.is_valid()))
    hashes = hashes.copy()
    hashes[there] = _of_values(column.drop_null(), hashes[there])
    return hashes


def _of_values(column: pa.Array, seeds: Hashes) -> Hashes:
    kinds, type_ = pa.types, column.type
    if kinds.is_boolean(type_):
        return _of_int(column.cast(pa.int32()).to_numpy(), seeds)
    if kinds.is_integer(type_) and type_.bit_width < 64:
        return _of_int(column.cast(pa.int32()).to_numpy(), seeds)
    if kinds.is_date32(type_):
        return _of_int(column.view(pa.int32()).to_numpy(), seeds)
    if kinds.is_integer(type_) or kinds.is_timestamp(type_):
        return _of_long(column.view(pa.int64()).to_numpy().view(np.uint64), seeds)
    if kinds.is_decimal128(type_):
        return _of_decimal(column, seeds)
    return _of_bytes(column.cast(pa.large_binary()), seeds)


def _of_int(values: npt.NDArray[np.int32], seeds: Hashes) -> Hashes:
    return _spread(_with_int(seeds + _5 + np.uint64(4), values.view(np.uint32).astype(np.uint64)))


def _of_long(values: Hashes, seeds: Hashes) -> Hashes:
    return _spread(_with_long(seeds + _5 + np.uint64(8), values))


def _of_decimal(column: pa.Array, seeds: Hashes) -> Hashes:
    [_, data] = column.buffers()
    if data is None:
        return seeds
    words = np.frombuffer(data, dtype=np.uint64)[2 * column.offset : 2 * (column.offset + len(column))].reshape(-1, 2)
    if column.type.precision <= _LONG_DECIMAL_DIGITS_MAX:
        return _of_long(np.ascontiguousarray(words[:, 0]), seeds)
    # The fewest bytes that hold the number and its sign, big-endian, as in Java's BigInteger.
    letters = np.ascontiguousarray(words[:, ::-1]).byteswap().view(np.uint8).reshape(-1, 16)
    fill = np.where(letters[:, :1] >= 128, np.uint8(255), np.uint8(0))
    differs = (letters[:, :15] != fill) | ((letters[:, 1:] ^ fill) >= 128)
    skipped = np.where(differs.any(axis=1), differs.argmax(axis=1), 15)
    first = np.arange(len(letters)) * 16 + skipped
    return _of_stretches(letters.ravel(), first, 16 - skipped, seeds)


def _of_bytes(column: pa.Array, seeds: Hashes) -> Hashes:
    [_, offsets_buffer, data] = column.buffers()
    if len(column) == 0:
        return seeds
    offsets = np.frombuffer(offsets_buffer, dtype=np.int64)[column.offset : column.offset + len(column) + 1]
    letters = np.zeros(0, dtype=np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8)
    return _of_stretches(letters, offsets[:-1], np.diff(offsets), seeds)


def _of_stretches(letters: npt.NDArray[np.uint8], first: Positions, sizes: Positions, seeds: Hashes) -> Hashes:
    """The hashes of ranges of bytes: each step is done at once for all ranges that are long enough."""
    at, ends = first.copy(), first + sizes
    hashes = seeds + _5
    long_ones = np.flatnonzero(sizes >= _STRIPE_BYTES)
    if len(long_ones):
        mine = at[long_ones]
        hashes[long_ones] = _of_stripes(letters, mine, ends[long_ones], seeds[long_ones])
        at[long_ones] = mine
    hashes += sizes.astype(np.uint64)
    for bytes_, step in ((8, _with_long), (4, _with_int), (1, _with_byte)):
        while len(left := np.flatnonzero(ends - at >= bytes_)):
            hashes[left] = step(hashes[left], _words(letters, at[left], bytes_))
            at[left] += bytes_
    return _spread(hashes)


def _of_stripes(letters: npt.NDArray[np.uint8], at: Positions, ends: Positions, seeds: Hashes) -> Hashes:
    """The hash state after the whole stripes of such ranges; advances `at` past them."""
    sums = np.stack([seeds + _1 + _2, seeds + _2, seeds, seeds - _1])
    while len(left := np.flatnonzero(ends - at >= _STRIPE_BYTES)):
        for number in range(4):
            words = _words(letters, at[left] + 8 * number, 8)
            sums[number, left] = _rotate(sums[number, left] + words * _2, 31) * _1
        at[left] += _STRIPE_BYTES
    hashes = sum((_rotate(each, by) for each, by in zip(sums, (1, 7, 12, 18), strict=True)), np.zeros_like(seeds))
    for each in sums:
        hashes = (hashes ^ (_rotate(each * _2, 31) * _1)) * _1 + _4
    return hashes


def _words(letters: npt.NDArray[np.uint8], at: Positions, bytes_: int) -> Hashes:
    """The little-endian numbers of `bytes_` bytes at these places."""
    words = np.zeros((len(at), 8), dtype=np.uint8)
    words[:, :bytes_] = letters[at[:, np.newaxis] + np.arange(bytes_)]
    return words.view(np.uint64).ravel()


def _with_long(hashes: Hashes, words: Hashes) -> Hashes:
    return _rotate(hashes ^ (_rotate(words * _2, 31) * _1), 27) * _1 + _4


def _with_int(hashes: Hashes, words: Hashes) -> Hashes:
    return _rotate(hashes ^ (words * _1), 23) * _2 + _3


def _with_byte(hashes: Hashes, words: Hashes) -> Hashes:
    return _rotate(hashes ^ (words * _5), 11) * _1


def _rotate(words: Hashes, bits: int) -> Hashes:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def _spread(hashes: Hashes) -> Hashes:
    """Every bit of the result depends on every bit."""
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _3
    return hashes ^ (hashes >> np.uint64(32))
