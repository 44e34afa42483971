"""The total of an integer column in one column of state, or in two: `high * 2**32 + low` with `0 <= low < 2**32`.

One column holds totals that fit into 64 bits, two hold any. So the halves can be made of the total, never the reverse.
"""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

HALF_BITS = 32
HALF = (1 << HALF_BITS) - 1
_TOTAL, _HIGH, _LOW = "_sum(", "_sum_high(", "_sum_low("


def total_name(column: str) -> str:
    """The state column with the total of a column."""
    return f"{_TOTAL}{column})"


def half_names(column: str) -> tuple[str, str]:
    """The state columns with its halves: high and low."""
    return f"{_HIGH}{column})", f"{_LOW}{column})"


def full_total_for(name: str, there: Mapping[str, pa.Field | pa.Array]) -> pa.Field | pa.Array | None:
    """The column among `there` that holds the total of which the state column `name` is a half; None if none does."""
    for half in (_HIGH, _LOW):
        if name.startswith(half):
            total = there.get(_TOTAL + name.removeprefix(half))  # with the same ` since 41`, if the half has one
            return total if total is not None and pa.types.is_signed_integer(total.type) else None
    return None


def half_of(name: str, totals: pa.Array) -> pa.Array:
    """The state column `name` of these totals, signed integers: int64, null where a total is null."""
    totals = totals.cast(pa.int64())
    return pc.shift_right(totals, HALF_BITS) if name.startswith(_HIGH) else pc.bit_wise_and(totals, HALF)
