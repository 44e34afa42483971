"""Sketches of Apache DataSketches: approximate distinct counts and quantiles.

The library handles one sketch at a time, so only here is there a loop over groups; the values of a group are passed
together. The state has the bytes of the library, in a documented format that all its releases and languages read; the
library validates them on reading.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.errors import IncompatibleStateError
from dagster_ckpt.lsm.columns import Mask, Positions, take_array
from dagster_ckpt.operators.aggregates.kinds.accumulator import Columns, GroupedRows, Keeps, OneColumn
from dagster_ckpt.operators.shared.arrays.nulls import has_value
from dagster_ckpt.operators.shared.subkeys import subkey_hashes

Values = npt.NDArray[Any]

_LG_K_MIN, _LG_K_MAX = 4, 21
_REGISTERS_AT_ERROR_1 = 1.04**2
"""The registers of HyperLogLog for a relative standard error of 1; an error of 0.1 takes 100 times as many."""


def is_installed() -> bool:
    """Whether the library is installed."""
    return find_spec("datasketches") is not None


@dataclass(frozen=True)
class DistinctSketch(OneColumn):
    """A HyperLogLog sketch of a column with 2**lg_k registers; null where there is no value.

    Always the result of a union, so that its estimate depends on the values alone, not on their order.
    """

    column: str
    lg_k: int

    keeps: ClassVar[Keeps] = Keeps("a sketch of the distinct values")

    @classmethod
    def within(cls, column: str, error: float) -> "DistinctSketch":
        """The sketch with this relative standard error."""
        lg_k = int(np.ceil(np.log2(_REGISTERS_AT_ERROR_1 / error**2)))
        return cls(column, min(max(lg_k, _LG_K_MIN), _LG_K_MAX))

    @property
    def field(self) -> pa.Field:
        return pa.field(f"_hll_{self.lg_k}({self.column})", pa.binary())

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        column = rows.columns[self.column]
        valued = np.flatnonzero(has_value(column))
        # 48 bits, equal for equal values of any type: a billion values have a few thousand collisions.
        words = subkey_hashes(np.zeros(len(valued), dtype=np.uint64), [take_array(column, valued)]).view(np.int64)
        groups = rows.group_of_row[valued]
        order = np.lexsort((words, groups))
        is_first = np.ones(len(order), dtype=np.bool_)
        is_first[1:] = (np.diff(groups[order]) != 0) | (np.diff(words[order]) != 0)
        distinct = order[is_first]
        return (_of_each(groups[distinct], words[distinct], len(rows.starts), self._of_words),)

    def merge(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        return (_merge_states(old[self.name], new[self.name], self._union),)

    def result(self, state: Columns) -> pa.Array:
        """The estimates, as int64; 0 where there is no value."""
        estimates = _numbers_of(state[self.name], self._estimate)
        return pa.array(np.rint(np.nan_to_num(estimates)).astype(np.int64))

    def _of_words(self, words: Values) -> bytes:
        sketch = _library().hll_sketch(self.lg_k)
        deque(map(sketch.update, words.tolist()), maxlen=0)  # it takes integers only one by one
        return self._bytes_of(sketch)

    def _union(self, old: bytes, new: bytes) -> bytes:
        return self._bytes_of(*(self._read(data) for data in (old, new)))

    def _bytes_of(self, *sketches: Any) -> bytes:
        library = _library()
        union = library.hll_union(self.lg_k)
        for sketch in sketches:
            union.update(sketch)
        kind = library.tgt_hll_type.HLL_8
        # A sketch that was never merged with another of many values estimates by the order in which those came.
        union.update(union.get_result(kind))
        data: bytes = union.get_result(kind).serialize_compact()
        return data

    def _estimate(self, data: bytes) -> float:
        return float(self._read(data).get_estimate())

    def _read(self, data: bytes) -> Any:
        return _read(_library().hll_sketch, data, self.column)


@dataclass(frozen=True)
class QuantileSketch(OneColumn):
    """A t-digest of a number column's finite values, of compression `k`; null where there is none."""

    column: str
    k: int

    keeps: ClassVar[Keeps] = Keeps("a sketch of the values")

    @property
    def field(self) -> pa.Field:
        return pa.field(f"_tdigest_{self.k}({self.column})", pa.binary())

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        # Unsafe only means that an integer beyond 2**53 is rounded to a double.
        numbers = rows.columns[self.column].cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        usable = np.flatnonzero(np.isfinite(numbers))
        groups, numbers = rows.group_of_row[usable], numbers[usable]
        order = np.lexsort((numbers, groups))  # so that the order of the rows does not show
        return (_of_each(groups[order], numbers[order], len(rows.starts), self._of_numbers),)

    def merge(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        return (_merge_states(old[self.name], new[self.name], self._both),)

    def result(self, state: Columns, q: float) -> pa.Array:
        """The `q`-quantiles, as doubles; null where there is no value."""
        return pa.array(_numbers_of(state[self.name], partial(self._quantile, q=q)), from_pandas=True)

    def _of_numbers(self, numbers: Values) -> bytes:
        digest = _library().tdigest_double(self.k)
        digest.update(numbers)
        data: bytes = digest.serialize()
        return data

    def _both(self, old: bytes, new: bytes) -> bytes:
        digest = self._read(old)
        digest.merge(self._read(new))
        data: bytes = digest.serialize()
        return data

    def _quantile(self, data: bytes, q: float) -> float:
        return float(self._read(data).get_quantile(q))

    def _read(self, data: bytes) -> Any:
        return _read(_library().tdigest_double, data, self.column)


def _of_each(groups: Positions, values: Values, count: int, sketch: Callable[[Values], bytes]) -> pa.Array:
    """The sketch of each group's values, null where a group has none; `groups` ascends."""
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    parts = np.split(values, starts[1:]) if len(starts) else []
    made = pa.array([sketch(part) for part in parts], pa.binary())
    row = np.zeros(count, dtype=np.int64)
    row[groups[starts]] = np.arange(len(starts))
    has_values = np.zeros(count, dtype=np.bool_)
    has_values[groups[starts]] = True
    return made.take(pa.array(row, mask=~has_values))


def _merge_states(old: pa.Array, new: pa.Array, merge: Callable[[bytes, bytes], bytes]) -> pa.Array:
    both: Mask = has_value(old) & has_value(new)
    at = pa.array(np.flatnonzero(both))
    merged = [merge(*pair) for pair in zip(old.take(at).to_pylist(), new.take(at).to_pylist(), strict=True)]
    return pc.replace_with_mask(pc.coalesce(old, new), pa.array(both), pa.array(merged, pa.binary()))


def _numbers_of(sketches: pa.Array, number: Callable[[bytes], float]) -> npt.NDArray[np.float64]:
    """The number from each sketch; NaN where there is none."""
    numbers = np.full(len(sketches), np.nan)
    numbers[has_value(sketches)] = [number(data) for data in sketches.drop_null().to_pylist()]
    return numbers


def _read(kind: Any, data: bytes, column: str) -> Any:
    try:
        return kind.deserialize(data)
    except (IndexError, MemoryError, RuntimeError, ValueError) as error:
        raise IncompatibleStateError(
            "the installed datasketches cannot read a sketch of this state: install the release that wrote it. "
            f"column={column}, bytes={len(data)}, reason={error}"
        ) from error


def _library() -> Any:
    import datasketches

    return datasketches
