"""Exact totals of any frame of a column: the difference of two prefix sums, in digits of 32 bits."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Mask, Positions, plain
from dagster_ckpt.operators.shared.arrays import exact_numbers
from dagster_ckpt.operators.shared.arrays.exact_numbers import Doubles, Parts, Whole, balance
from dagster_ckpt.operators.shared.arrays.nulls import fill_null

_BITS = 32
_MASK = (1 << _BITS) - 1
_LIMBS = 8
"""The digits of a decimal of 256 bits."""
_DECIMAL_DIGITS = 76


@dataclass(frozen=True)
class PrefixTotals:
    """The totals of the first i of n values, for i from 0 to n. Nulls are 0."""

    special: Positions
    digits: Positions
    place: int

    @classmethod
    def of(cls, column: pa.Array, at: Positions) -> "PrefixTotals":
        """The totals of the column's values at these positions."""
        parts = _parts(column)
        special, digits = (_prefixes(np.take(each, at, axis=1)) for each in (parts.special, parts.whole.digits))
        return cls(special, digits, parts.whole.place)

    def between(self, starts: Positions, stops: Positions) -> Parts:
        """The totals of the values from each start to each stop."""
        special, digits = (each[:, stops] - each[:, starts] for each in (self.special, self.digits))
        return Parts(special, balance(digits, self.place))


def only(parts: Parts, at: Positions) -> Parts:
    """The totals at these positions."""
    return Parts(parts.special[:, at], Whole(parts.whole.digits[:, at], parts.whole.place))


def as_doubles(parts: Parts, *, of_floats: bool) -> Doubles:
    """Each total, rounded once. NaN and infinities count as in IEEE 754. `of_floats`: in the unit of doubles."""
    mantissas, exponents = parts.whole.to_doubles()
    found = exact_numbers.doubles(mantissas, exponents, factors=1 if of_floats else 0)
    nan, infinite, minus_infinite = parts.special > 0
    found[infinite] = np.inf
    found[minus_infinite] = -np.inf
    found[nan | (infinite & minus_infinite)] = np.nan
    return found + 0.0  # never -0.0


def as_integers(parts: Parts) -> tuple[Positions, Mask]:
    """Each total of integers, and which of them fit."""
    digits = _limbs(parts.whole)
    values: Positions = digits[0] | (digits[1] << _BITS)
    above = np.where(values < 0, _MASK, 0)
    return values, (digits[2:] == above).all(axis=0)


def as_decimals(parts: Parts, scale: int) -> pa.Array:
    """Each total of decimals of this scale, with as many digits as there may be."""
    limbs = np.ascontiguousarray(_limbs(parts.whole).T.astype(np.uint32))
    type_ = pa.decimal256(_DECIMAL_DIGITS, scale)
    return pa.Array.from_buffers(type_, len(limbs), [None, pa.py_buffer(limbs)])


def _limbs(whole: Whole) -> Positions:
    """The numbers in two's complement. Their place is 0."""
    limbs = np.zeros((_LIMBS, whole.digits.shape[1]), dtype=np.int64)
    carry = np.zeros(whole.digits.shape[1], dtype=np.int64)
    for at in range(_LIMBS):
        digit = at - whole.place
        value = carry + (whole.digits[digit] if 0 <= digit < len(whole.digits) else 0)
        limbs[at], carry = value & _MASK, value >> _BITS
    return limbs


def _parts(column: pa.Array) -> Parts:
    column = fill_null(column, 0)
    if pa.types.is_floating(column.type):
        return Parts.of_doubles(column.cast(pa.float64()).to_numpy())
    if pa.types.is_decimal(column.type):
        words = plain(column)
        assert words is not None, "filled"
        limbs = words.view(np.uint32).reshape(len(column), 4).astype(np.int64).T
        digits = limbs.copy()
        digits[3] = limbs[3].astype(np.uint32).view(np.int32)
    else:
        numbers = column.to_numpy().astype(np.int64)
        digits = np.stack([numbers & _MASK, numbers >> _BITS])
    return Parts(np.zeros((3, len(column)), dtype=np.int64), balance(digits, 0))


def _prefixes(matrix: Positions) -> Positions:
    sums = np.zeros((len(matrix), matrix.shape[1] + 1), dtype=np.int64)
    np.cumsum(matrix, axis=1, out=sums[:, 1:])
    return sums
