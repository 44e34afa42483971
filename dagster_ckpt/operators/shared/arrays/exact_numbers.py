"""Exact totals of doubles, as columns of state: any order of additions and retractions gives the same total.

A finite double is a whole number times 2**-1126. So a total is a whole number too, of up to a few thousand bits: kept
as digits of 32 bits, each from -2**31 to 2**31 - 1. In that form every number has one representation, and 0 has no
digits. A total of values of similar size has two to four digits that are not 0; only these are kept. NaN and
infinities are counted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, concat
from dagster_ckpt.operators.shared.arrays.lists import groups_of, lists_of, values_of

EXACT = pa.list_(pa.int64())
"""The type of a column of totals. Each element is `digit * 2**16 + place`: see `_NAN` to `_DIGITS` for the places."""

Doubles = npt.NDArray[np.float64]

_UNIT_BITS = 1126
"""The least double is 2**-1074. `frexp` gives 53 bits of it too, the last of which is 2**-1126."""
_DIGIT_BITS, _PLACE_BITS = 32, 16
_DIGIT, _PLACE = (1 << _DIGIT_BITS) - 1, (1 << _PLACE_BITS) - 1
_HALF = 1 << (_DIGIT_BITS - 1)
_NAN, _INFINITE, _MINUS_INFINITE = 0, 1, 2
_DIGITS = 3
"""The place of the least digit. The three places before it have counts of values that are not finite."""
_MANTISSA_BITS, _SPLIT_BITS = 53, 27
_CELLS_MAX = 1 << 20
"""Groups times digits that are added up at once: 8 MB."""


@dataclass(frozen=True)
class Whole:
    """n whole numbers: number i is the sum of `digits[j, i] * 2**(32 * (j + place))`.

    Digits are within 2**31 either way, and numbers have as many digits as the longest of them.
    """

    digits: Positions
    place: int

    @classmethod
    def of(cls, numbers: Positions) -> "Whole":
        """Numbers of 64 bits."""
        return balance(np.stack([numbers & _DIGIT, numbers >> _DIGIT_BITS]), 0)

    def times(self, other: "Whole") -> "Whole":
        """The products."""
        mine, theirs = len(self.digits), len(other.digits)
        sums = np.zeros((mine + theirs, self.digits.shape[1]), dtype=np.int64)
        for at, digits in enumerate(self.digits):
            products = digits * other.digits  # at most 62 bits
            sums[at : at + theirs] += products & _DIGIT
            sums[at + 1 : at + theirs + 1] += products >> _DIGIT_BITS
        return balance(sums, self.place + other.place)

    def minus(self, other: "Whole") -> "Whole":
        """The differences."""
        place = min(self.place, other.place)
        end = max(each.place + len(each.digits) for each in (self, other))
        sums = np.zeros((end - place, self.digits.shape[1]), dtype=np.int64)
        sums[self.place - place : self.place - place + len(self.digits)] += self.digits
        sums[other.place - place : other.place - place + len(other.digits)] -= other.digits
        return balance(sums, place)

    def to_doubles(self) -> tuple[Doubles, Positions]:
        """Doubles m and exponents e: each number, rounded once, half to even, is `m * 2**e`."""
        count = self.digits.shape[1]
        # Three zeros below, so that every number has two digits below its greatest.
        digits = np.concatenate([np.zeros((3, count), dtype=np.int64), self.digits])
        places = np.arange(len(digits))[:, np.newaxis]
        top = np.maximum(np.where(digits != 0, places, 0).max(axis=0), 2)
        sign = np.where(np.take_along_axis(digits, top[np.newaxis], axis=0)[0] < 0, -1, 1)
        below = np.zeros(count, dtype=np.int64)
        for place, row in enumerate(digits):
            below = np.where((place < top - 2) & (row != 0), np.sign(row), below)
        high, middle, low = (
            np.take_along_axis(digits, (top - down)[np.newaxis], axis=0)[0] * sign for down in range(3)
        )
        # Borrow, so that no digit below the greatest is negative.
        low = low - (below * sign < 0)
        middle, low = middle + (low >> _DIGIT_BITS), low & _DIGIT
        high, middle = high + (middle >> _DIGIT_BITS), middle & _DIGIT
        # The first 64 of the 96 bits; the last of them also stands for everything that is cut off.
        bits = np.frexp(high.astype(np.float64))[1].astype(np.int64)
        shift = bits.astype(np.uint64)
        words = high.astype(np.uint64) << (np.uint64(64) - np.maximum(shift, np.uint64(1)))
        words = np.where(bits > 0, words, np.uint64(0))
        words |= (middle.astype(np.uint64) << np.uint64(_DIGIT_BITS) | low.astype(np.uint64)) >> shift
        cut = (low & ((1 << bits) - 1)) | below
        words |= (cut != 0).astype(np.uint64)
        exponents = bits + _DIGIT_BITS * (self.place + top - 3 - 2)
        return words.astype(np.float64) * sign, exponents


@dataclass(frozen=True)
class Parts:
    """n totals: how many NaN, infinities and negative infinities each has (3 by n), and the finite part."""

    special: Positions
    whole: Whole

    @classmethod
    def of_doubles(cls, values: Doubles) -> "Parts":
        """Each value as a total."""
        rows, finite = np.arange(len(values)), np.isfinite(values)
        terms = [_not_finite(rows[~finite], [values[~finite]]), *_terms(rows[finite], [values[finite]])]
        return cls(*_matrices(terms, len(values)))

    @classmethod
    def of_totals(cls, totals: pa.Array) -> "Parts":
        """A column of totals; null counts as 0."""
        return cls(*_matrices([_terms_of(totals)], len(totals)))

    def plus(self, other: "Parts") -> "Parts":
        """The sums."""
        whole = self.whole.minus(Whole(-other.whole.digits, other.whole.place))
        return Parts(self.special + other.special, whole)

    def totals(self) -> pa.Array:
        """As a column of state."""
        return _encode(self.special, self.whole)


def total(groups: Positions, factors: Sequence[Doubles], count: int) -> pa.Array:
    """The total of each group: of a column, or of the products of two. `groups` ascends; there are `count`."""
    finite = np.logical_and.reduce([np.isfinite(factor) for factor in factors])
    terms = list[_Terms]()
    if not finite.all():
        terms.append(_not_finite(groups[~finite], [factor[~finite] for factor in factors]))
        groups, factors = groups[finite], [factor[finite] for factor in factors]
    terms.extend(_terms(groups, factors))
    return _add_up(terms, count)


def add(old: pa.Array, new: pa.Array) -> pa.Array:
    """The totals of both sides; null counts as 0."""
    return _add_up([_terms_of(side) for side in (old, new)], len(new))


def negate(totals: pa.Array) -> pa.Array:
    """The totals of the same values, retracted."""
    codes = totals.values.to_numpy()
    turned = pa.array((-(codes >> _PLACE_BITS) << _PLACE_BITS) | (codes & _PLACE))
    return pa.ListArray.from_arrays(totals.offsets, turned)


def not_finite(totals: pa.Array) -> tuple[Positions, Positions, Positions]:
    """How many NaN, infinities and negative infinities are in each total."""
    terms = _terms_of(totals)
    counts = np.zeros((_DIGITS, len(totals)), dtype=np.int64)
    special = terms.places < _DIGITS
    counts[terms.places[special], terms.groups[special]] = terms.digits[special]
    return counts[_NAN], counts[_INFINITE], counts[_MINUS_INFINITE]


def blocks(totals: Sequence[pa.Array]) -> Iterator[tuple[slice, tuple[Whole, ...]]]:
    """The finite parts of columns of equal length, a range of rows at a time. See `doubles` for their unit."""
    sides = [_terms_of(column) for column in totals]
    for first, last in _ranges(len(totals[0]), sides):
        yield slice(first, last), tuple(_matrices([side.within(first, last)], last - first)[1] for side in sides)


def doubles(mantissas: Doubles, exponents: Positions, factors: int) -> Doubles:
    """`m * 2**e` in the unit of totals of products of so many columns; infinite if it is too large."""
    with np.errstate(over="ignore"):
        found: Doubles = np.ldexp(mantissas, exponents - factors * _UNIT_BITS)
    return found


@dataclass(frozen=True)
class _Terms:
    """Digits of numbers, in any order of their places; `groups` ascends."""

    groups: Positions
    places: Positions
    digits: Positions

    @property
    def width(self) -> int:
        """About the digits of the longest number."""
        return int(np.ptp(self.places)) + 1 if len(self.places) else 1

    def within(self, first: int, last: int) -> "_Terms":
        """Those of a range of groups, which are numbered from 0 again."""
        at = slice(*np.searchsorted(self.groups, [first, last]))
        return _Terms(self.groups[at] - first, self.places[at], self.digits[at])


def _terms_of(totals: pa.Array) -> _Terms:
    codes = values_of([totals]).to_numpy()
    return _Terms(groups_of([totals]), codes & _PLACE, codes >> _PLACE_BITS)


def _not_finite(groups: Positions, factors: Sequence[Doubles]) -> _Terms:
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.multiply.reduce(factors)
    places = np.where(np.isnan(values), _NAN, np.where(values > 0, _INFINITE, _MINUS_INFINITE))
    return _Terms(groups, places, np.ones(len(groups), dtype=np.int64))


def _terms(groups: Positions, factors: Sequence[Doubles]) -> Iterator[_Terms]:
    """The digits of finite doubles, or of products of two."""
    split = [_split(factor) for factor in factors]
    if not len(groups):
        return
    mantissas, bits = split[0]
    if len(split) == 1:
        yield from _shift(groups, mantissas, bits)
        return
    [(_, others)] = split[1:]
    (a_high, a_low), (b_high, b_low) = (
        (mantissa >> _SPLIT_BITS, mantissa & ((1 << _SPLIT_BITS) - 1)) for mantissa, _ in split
    )
    bits = bits + others
    yield from _shift(groups, a_low * b_low, bits)
    yield from _shift(groups, a_high * b_low + a_low * b_high, bits + _SPLIT_BITS)
    yield from _shift(groups, a_high * b_high, bits + 2 * _SPLIT_BITS)


def _split(values: Doubles) -> tuple[Positions, Positions]:
    """Whole numbers m of 53 bits and b >= 0: each value is `m * 2**(b - 1126)`."""
    fractions, exponents = np.frexp(values)
    mantissas = np.ldexp(fractions, _MANTISSA_BITS).astype(np.int64)
    bits = exponents.astype(np.int64) + (_UNIT_BITS - _MANTISSA_BITS)
    is_zero = mantissas == 0
    if is_zero.any():  # a zero must not widen the matrix
        bits[is_zero] = 0 if is_zero.all() else bits[~is_zero].min()
    return mantissas, bits


def _shift(groups: Positions, numbers: Positions, bits: Positions) -> Iterator[_Terms]:
    """The digits of `numbers * 2**bits`; the numbers have up to 62 bits."""
    places, shift = _DIGITS + (bits >> 5), bits & (_DIGIT_BITS - 1)
    low, high = (numbers & _DIGIT) << shift, (numbers >> _DIGIT_BITS) << shift
    yield _Terms(groups, places, low & _DIGIT)
    yield _Terms(groups, places + 1, (low >> _DIGIT_BITS) + (high & _DIGIT))
    yield _Terms(groups, places + 2, high >> _DIGIT_BITS)


def _add_up(terms: Sequence[_Terms], count: int) -> pa.Array:
    """The total of each of `count` groups, in its one representation."""
    columns = list[pa.Array]()
    for first, last in _ranges(count, terms):
        columns.append(_encode(*_matrices([each.within(first, last) for each in terms], last - first)))
    return concat(columns)


def _encode(special: Positions, whole: Whole) -> pa.Array:
    matrix = np.concatenate([special, whole.digits])
    groups, rows = np.nonzero(matrix.T)
    places = np.where(rows < _DIGITS, rows, rows + whole.place)
    codes = (matrix[rows, groups] << _PLACE_BITS) | places
    return lists_of(groups, pa.array(codes), matrix.shape[1])


def _matrices(terms: Sequence[_Terms], count: int) -> tuple[Positions, Whole]:
    """The sums of what is not finite and of the digits, for each of `count` numbers."""
    found = [each.places[each.places >= _DIGITS] for each in terms]
    least = min((int(places.min()) for places in found if len(places)), default=_DIGITS)
    most = max((int(places.max()) for places in found if len(places)), default=_DIGITS)
    matrix = np.zeros((_DIGITS + most - least + 1, count), dtype=np.int64)
    for each in terms:
        rows = np.where(each.places < _DIGITS, each.places, each.places - least + _DIGITS)
        np.add.at(matrix.reshape(-1), rows * count + each.groups, each.digits)
    return matrix[:_DIGITS], balance(matrix[_DIGITS:], least - _DIGITS)


def balance(sums: Positions, place: int) -> Whole:
    """The numbers with these digits, which may be as large as 2**62."""
    digits = np.concatenate([sums, np.zeros((2, sums.shape[1]), dtype=np.int64)])
    for at in range(len(digits) - 1):
        carry = (digits[at] + _HALF) >> _DIGIT_BITS
        digits[at] -= carry << _DIGIT_BITS
        digits[at + 1] += carry
    return Whole(digits, place)


def _ranges(count: int, terms: Sequence[_Terms]) -> Iterator[tuple[int, int]]:
    """Ranges of groups whose digits fit into memory together."""
    size = max(1, _CELLS_MAX // max((each.width for each in terms), default=1))
    for first in range(0, max(count, 1), size):
        yield first, min(first + size, count)
