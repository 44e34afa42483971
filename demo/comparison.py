"""Two tables, row by row: no more, no less, no other."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
import polars.selectors as cs

RELATIVE = 1e-9
"""How far two floating numbers may lie apart: sums depend on the order of their terms. All else is exact."""

_NTH = "_nth"


@dataclass(frozen=True)
class Difference:
    """What one table has and the other has not. `changed` holds both versions, the right one as `<column>_expected`."""

    missing: pl.DataFrame
    surplus: pl.DataFrame
    changed: pl.DataFrame

    def __bool__(self) -> bool:
        """True where there is any."""
        return any(rows.height for rows in (self.missing, self.surplus, self.changed))


def difference(actual: pl.DataFrame, expected: pl.DataFrame, key: Sequence[str]) -> Difference:
    """The difference of two tables with the same columns, as multisets of rows.

    `key` decides which rows are paired; null is a value of it like any other. Raises ValueError where the columns or
    their types differ.
    """
    if actual.schema != expected.schema:
        raise ValueError(f"the columns differ. actual={dict(actual.schema)}, expected={dict(expected.schema)}")
    ours, theirs = _numbered(actual, key), _numbered(expected, key)
    pair = [*key, _NTH]
    both = ours.join(theirs, on=pair, how="inner", nulls_equal=True, suffix="_expected")
    values = [name for name in actual.columns if name not in key]
    floats = set(cs.expand_selector(actual, cs.float()))
    equal = [_close(name) if name in floats else pl.col(name).eq_missing(pl.col(f"{name}_expected")) for name in values]
    return Difference(
        missing=theirs.join(ours, on=pair, how="anti", nulls_equal=True).drop(_NTH),
        surplus=ours.join(theirs, on=pair, how="anti", nulls_equal=True).drop(_NTH),
        changed=both.filter(~pl.all_horizontal(*equal, pl.lit(True))).drop(_NTH),
    )


def _numbered(table: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """The rows with their number among those of the same key, so that a row that is there twice finds no partner."""
    return table.sort(table.columns, nulls_last=True).with_columns(pl.int_range(pl.len()).over(key).alias(_NTH))


def _close(name: str) -> pl.Expr:
    ours, theirs = pl.col(name), pl.col(f"{name}_expected")
    near = (ours - theirs).abs() <= RELATIVE * pl.max_horizontal(ours.abs(), theirs.abs())
    return ours.eq_missing(theirs) | near.fill_null(value=False)
