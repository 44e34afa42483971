"""Any orderable column as whole numbers in the same order, so that numpy can compare and reduce it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.lsm.columns import Positions
from dagster_ckpt.operators.shared.arrays.nulls import fill_null

LEAST = np.iinfo(np.int64).min
GREATEST = np.iinfo(np.int64).max


class End(StrEnum):
    """One end of an order."""

    LEAST = "least"
    GREATEST = "greatest"


class Ordered(Protocol):
    """A column and the ranks of its values. Strings and binary compare by their bytes, False before True."""

    @property
    def codes(self) -> Positions:
        """One int64 per row, ordered and equal as the values are; arbitrary for null."""
        ...

    def values(self, codes: Positions) -> pa.Array:
        """The values that have these codes; every code must occur in the column."""
        ...


def is_orderable(type_: pa.DataType) -> bool:
    """Whether `order_column` takes columns of this type: all of Spark's except intervals and nested types."""
    kinds = pa.types
    return (
        has_fixed_width(type_)
        or kinds.is_string(type_)
        or kinds.is_large_string(type_)
        or kinds.is_binary(type_)
        or kinds.is_large_binary(type_)
    )


def is_comparable(type_: pa.DataType) -> bool:
    """Whether values of this type can be told apart: those that have an order, and structs of such."""
    if pa.types.is_struct(type_):
        return all(is_comparable(type_.field(index).type) for index in range(type_.num_fields))
    return is_orderable(type_)


def has_fixed_width(type_: pa.DataType) -> bool:
    """Whether the type is orderable, and all its values take as many bytes: a greater one can be put in its place."""
    kinds = pa.types
    return is_whole(type_) or bool(kinds.is_floating(type_) or kinds.is_boolean(type_) or kinds.is_decimal128(type_))


def order_column(column: pa.Array) -> Ordered:
    """The order of an orderable column."""
    if pa.types.is_floating(column.type):
        return _Floats.of(column)
    if pa.types.is_boolean(column.type):
        return _Wholes(column.type, _int64(column.cast(pa.int8())))
    if is_whole(column.type):
        return _Wholes(column.type, _int64(column.view(_storage(column.type))))
    return _Ranks.of(column)


def precedes(left: pa.Array, right: pa.Array) -> pa.Array:
    """Row by row whether left comes before right; null where one of them is."""
    if pa.types.is_floating(left.type):
        truth = pa.array(order_column(left).codes < order_column(right).codes)
        return pc.if_else(pc.and_(pc.is_valid(left), pc.is_valid(right)), truth, pa.scalar(None, pa.bool_()))
    return pc.less(left, right)


def one_zero(column: pa.Array) -> pa.Array:
    """The column with 0.0 for -0.0: they are equal in the order, so their order of arrival must not show."""
    return pc.add(column, pa.scalar(0, column.type)) if pa.types.is_floating(column.type) else column


@dataclass(frozen=True)
class _Wholes:
    """The order of whole numbers, and of booleans, dates and times, which are stored as such."""

    type: pa.DataType
    codes: Positions

    def values(self, codes: Positions) -> pa.Array:
        if pa.types.is_boolean(self.type):
            return pa.array(codes != 0)
        return pa.array(codes).cast(_storage(self.type)).view(self.type)


@dataclass(frozen=True)
class _Floats:
    """Doubles, and floats cast to doubles: all NaN are equal and after every other number; -0.0 equals 0.0."""

    type: pa.DataType
    codes: Positions

    @classmethod
    def of(cls, column: pa.Array) -> "_Floats":
        numbers = fill_null(column, 0.0).to_numpy().astype(np.float64, copy=False) + 0.0  # -0.0 to 0.0, and a copy
        numbers[np.isnan(numbers)] = np.nan  # one NaN, whatever its payload and sign
        return cls(column.type, _turn(numbers.view(np.int64)))

    def values(self, codes: Positions) -> pa.Array:
        return pa.array(_turn(codes).view(np.float64)).cast(self.type)


@dataclass(frozen=True)
class _Ranks:
    """Anything else: its rank among the values of the column."""

    column: pa.Array
    codes: Positions

    @classmethod
    def of(cls, column: pa.Array) -> "_Ranks":
        if pa.types.is_decimal(column.type):
            return cls(column, _int64(pc.rank(column, tiebreaker="dense")))
        encoded = column.dictionary_encode()  # sorting each distinct string once is faster
        return cls(column, _int64(pc.rank(encoded.dictionary, tiebreaker="dense").take(encoded.indices)))

    def values(self, codes: Positions) -> pa.Array:
        row_of_rank = np.zeros(int(self.codes.max()) + 1, dtype=np.int64)
        row_of_rank[self.codes] = np.arange(len(self.codes))
        return self.column.take(pa.array(row_of_rank[codes]))


def is_whole(type_: pa.DataType) -> bool:
    """Whether values of this type are stored as whole numbers: integers, dates, timestamps."""
    kinds = pa.types
    return bool(kinds.is_signed_integer(type_) or kinds.is_date32(type_) or kinds.is_timestamp(type_))


def _storage(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_date32(type_):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(type_) else type_


def _int64(numbers: pa.Array) -> Positions:
    codes: Positions = fill_null(numbers, 0).to_numpy().astype(np.int64, copy=False)
    return codes


def _turn(bits: Positions) -> Positions:
    """A double's bits as an int64 in the order of the doubles, and back."""
    # Of two negative doubles, the one with the greater bits is the lesser number.
    return np.where(bits < 0, bits ^ GREATEST, bits)
