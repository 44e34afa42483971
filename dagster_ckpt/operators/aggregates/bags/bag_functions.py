"""What is computed of all values of a group. Results are Spark's."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.lsm.columns import flat, take_array
from dagster_ckpt.operators.aggregates.aggregation import GroupFunction
from dagster_ckpt.operators.aggregates.bags.bags import BagFunction, Bags
from dagster_ckpt.operators.aggregates.kinds.edge_rows import struct_of
from dagster_ckpt.operators.aggregates.kinds.moments import Doubles
from dagster_ckpt.operators.shared.arrays.lists import lists_of
from dagster_ckpt.operators.shared.arrays.nulls import or_null

GROUP_NUMBER = "_group"
"""The column of a user-defined aggregate's rows with the number of their group in the call."""


def percentile(q: float) -> BagFunction:
    """The exact `q`-percentile as a double, between two values in proportion to their distance."""

    def of(bags: Bags) -> pa.Array:
        if len(bags.groups) == 0:
            return pa.nulls(bags.size, pa.float64())
        values = bags.columns[0].cast(pa.float64()).to_numpy()
        starts, until = bags.starts, np.cumsum(bags.counts)
        before = until[starts] - bags.counts[starts]
        sizes = np.append(before[1:], until[-1]) - before
        place = q * (sizes - 1)
        lower, upper = np.floor(place), np.ceil(place)
        low, high = (
            values[np.searchsorted(until, before + at.astype(np.int64), side="right")] for at in (lower, upper)
        )
        with np.errstate(invalid="ignore", over="ignore"):
            between = (upper - place) * low + (place - lower) * high
        return bags.spread(pa.array(np.where((lower == upper) | (low == high), low, between)))

    return of


def percentile_disc(q: float) -> BagFunction:
    """The first value that at least the share `q` of all values is not above."""

    def of(bags: Bags) -> pa.Array:
        starts, until = bags.starts, np.cumsum(bags.counts)
        before = until[starts] - bags.counts[starts]
        sizes = np.append(before[1:], until[-1:]) - before
        place = np.maximum(np.ceil(q * sizes).astype(np.int64), 1) - 1
        return bags.spread(take_array(bags.columns[0], np.searchsorted(until, before + place, side="right")))

    return of


def mode(bags: Bags) -> pa.Array:
    """The most frequent value; of several the least."""
    if len(bags.groups) == 0:
        return pa.nulls(bags.size, bags.columns[0].type)
    starts = bags.starts
    most = np.repeat(np.maximum.reduceat(bags.counts, starts), np.diff(starts, append=len(bags.groups)))
    at = np.flatnonzero(bags.counts == most)
    return bags.spread(take_array(bags.columns[0], at[np.diff(bags.groups[at], prepend=-1) > 0]))


def skewness(bags: Bags) -> pa.Array:
    """The third standardized moment; null where all values are the same."""
    n, second, third = _central_moments(bags, 3)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return bags.spread(or_null(pa.array(np.sqrt(n) * third / np.sqrt(second**3)), second != 0))


def kurtosis(bags: Bags) -> pa.Array:
    """The fourth standardized moment, less 3; null where all values are the same."""
    n, second, fourth = _central_moments(bags, 4)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return bags.spread(or_null(pa.array(n * fourth / (second * second) - 3.0), second != 0))


def _central_moments(bags: Bags, power: int) -> tuple[Doubles, Doubles, Doubles]:
    """How many values each group with rows has, and the sums of their distances from the mean to the powers 2 and this.

    A bag has the same order however its rows came, and so has each sum.
    """
    starts = bags.starts
    if len(starts) == 0:
        return np.zeros(0), np.zeros(0), np.zeros(0)
    spans = np.diff(starts, append=len(bags.groups))
    values = bags.columns[0].cast(pa.float64(), safe=False).to_numpy()
    n = np.add.reduceat(bags.counts, starts).astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = values - np.repeat(values[starts], spans)  # so that the distances of equal values are 0
        apart = apart - np.repeat(np.add.reduceat(apart * bags.counts, starts) / n, spans)
        second, other = (np.add.reduceat(apart**each * bags.counts, starts) for each in (2, power))
    return n, second, other


def values(*, distinct: bool) -> BagFunction:
    """A list of the values in their order, each as often as it is there, or once."""

    def of(bags: Bags) -> pa.Array:
        if distinct:
            return lists_of(bags.groups, bags.columns[0], bags.size)
        at = np.repeat(np.arange(len(bags.groups)), bags.counts)
        return lists_of(bags.groups[at], take_array(bags.columns[0], at), bags.size)

    return of


def bitwise(ufunc: np.ufunc) -> BagFunction:
    """All values of a column of integers together, by `numpy.bitwise_and` or `bitwise_or`."""

    def of(bags: Bags) -> pa.Array:
        [values] = bags.columns
        if len(values) == 0:
            return pa.nulls(bags.size, values.type)
        return bags.spread(pa.array(ufunc.reduceat(values.to_numpy(), bags.starts)).cast(values.type))

    return of


def user_defined(name: str, columns: Sequence[str], returns: pa.DataType, code: GroupFunction | None) -> BagFunction:
    """What the user's function makes of the rows of the groups; `name` is that of the aggregate, for errors."""

    def of(bags: Bags) -> pa.Array:
        assert code is not None, "only a task of the stream computes results, and it has the code"
        starts = bags.starts
        numbers = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(bags.groups)))
        at = np.repeat(np.arange(len(bags.groups)), bags.counts)
        rows = [pa.array(numbers[at]), *(take_array(column, at) for column in bags.columns)]
        found = code(pa.table(rows, names=[GROUP_NUMBER, *columns]))
        if not isinstance(found, pa.Array | pa.ChunkedArray) or len(found) != len(starts):
            raise InvalidPipelineError(
                "a user-defined aggregate must return an Arrow array with one value for each number in _group. "
                f"aggregate={name}, groups={len(starts)}, got={_shape(found)}"
            )
        try:
            return bags.spread(flat(found).cast(returns))
        except pa.ArrowInvalid as error:
            raise InvalidPipelineError(
                "a user-defined aggregate returned values that do not fit its type: cast them, or change returns=. "
                f"aggregate={name}, returns={returns}, got={found.type}"
            ) from error

    return of


def _shape(found: object) -> str:
    return f"{len(found)} values" if isinstance(found, pa.Array | pa.ChunkedArray) else type(found).__name__


def first_values(limit: int, names: Sequence[str] | None) -> BagFunction:
    """A list of the first `limit` rows in the order of the first column, then of the others.

    It has their values of the second column; with `names`, of all but the first as structs.
    """

    def of(bags: Bags) -> pa.Array:
        at = np.repeat(np.arange(len(bags.groups)), np.clip(limit - bags.before, 0, bags.counts))
        columns = [take_array(column, at) for column in bags.columns[1:]]
        values = columns[0] if names is None else struct_of(names, columns)
        return lists_of(bags.groups[at], values, bags.size)

    return of
