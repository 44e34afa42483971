"""An order of rows: columns, each ascending or descending, with nulls first or last, as in SQL's ORDER BY."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.lsm.columns import Positions, flat, take_array
from dagster_ckpt.operators.shared.arrays.nulls import has_value
from dagster_ckpt.operators.shared.arrays.value_order import is_orderable, order_column
from dagster_ckpt.operators.shared.checks import pipeline_checks
from dagster_ckpt.operators.shared.row_order import total_codes

_TERM = re.compile(
    r"(?P<name>`(?:[^`]|``)+`|\S.*?)\s+(?P<way>asc|desc)(\s+nulls\s+(?P<nulls>first|last))?", re.IGNORECASE
)

Codes = Callable[[pa.Array], Positions]
"""Whole numbers, one per value, ordered and equal as the values are."""


@dataclass(frozen=True)
class OrderColumn:
    """One column of an order. -0.0 equals 0.0; NaN equals NaN and is greater than any number."""

    name: str
    descending: bool = False
    nulls_first: bool = False

    def spelling(self) -> str:
        """The text that `order_columns` reads."""
        way, nulls = "desc" if self.descending else "asc", "first" if self.nulls_first else "last"
        return f"{quote(self.name)} {way} nulls {nulls}"

    def codes(self, column: pa.Array) -> Positions:
        """One number per row, ordered and equal as the values are in this order."""
        codes = order_column(column).codes
        if self.descending:
            codes = ~codes
        if column.null_count == 0:
            return codes
        valid = has_value(column)
        ranks = np.full(len(codes), -1 if self.nulls_first else len(codes), dtype=np.int64)
        ranks[valid] = np.unique(codes[valid], return_inverse=True)[1]
        return ranks


@dataclass(frozen=True)
class RowOrder:
    """Rows by the columns `by`, then by all of `ties` as `row_order` orders them: so any two that differ are ordered.

    `ties` have the columns of `by` once more, because rows may differ in a zero's sign alone.
    """

    by: tuple[OrderColumn, ...]
    ties: tuple[str, ...]

    def sort(self, groups: Positions, rows: pa.Table) -> Positions:
        """The positions of the rows by their group and, within it, in this order. Groups count from 0."""
        ranks = _ranks_of_groups(groups)
        for name, codes_of in self._columns():
            contested = np.flatnonzero(np.bincount(ranks, minlength=len(ranks))[ranks] > 1)
            if len(contested) == 0:
                break
            codes = codes_of(take_array(flat(rows.column(name)), contested))
            order = np.lexsort((codes, ranks[contested]))
            at = contested[order]
            ranks[at] = _refine(ranks[at], codes[order])
        return np.argsort(ranks, kind="stable")

    def _columns(self) -> Iterator[tuple[str, Codes]]:
        for column in self.by:
            yield column.name, column.codes
        for name in self.ties:
            yield name, total_codes


def quote(name: str) -> str:
    """A column's name as a term has it, whatever is in it."""
    name = name.replace("`", "``")
    return f"`{name}`"


def order_columns(step: str, by: str | Sequence[str], schema: pa.Schema) -> tuple[OrderColumn, ...]:
    """The columns that users spell as in SQL: "delay desc" or ["delay desc nulls last", "flight asc"].

    As in Spark's SQL, nulls come first where the column ascends, and last where it descends. A name that would be
    misread is put in backticks. Raises `InvalidPipelineError`.
    """
    terms = [by] if isinstance(by, str) else list(by)
    columns = [_order_column(step, term, schema) for term in terms]
    names = [column.name for column in columns]
    if not columns or len(set(names)) < len(names):
        raise InvalidPipelineError(
            f"{step} orders rows by at least one column, each once: by='delay desc', or a list of these. by={terms!r}"
        )
    return tuple(columns)


def names_in_order(by: str | Sequence[str]) -> tuple[str, ...]:
    """The columns that an order names, checked or not; a term that cannot be read names none."""
    terms = [by] if isinstance(by, str) else list(by)
    return tuple(_name(match) for term in terms if (match := _read(term)) is not None)


def _read(term: object) -> re.Match[str] | None:
    return _TERM.fullmatch(term.strip()) if isinstance(term, str) else None


def _name(match: re.Match[str]) -> str:
    name = match["name"]
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _order_column(step: str, term: object, schema: pa.Schema) -> OrderColumn:
    match = _read(term)
    if match is None:
        raise InvalidPipelineError(
            f"give a direction to each column that {step} orders by: 'delay desc' puts the "
            f"greatest first, 'delay asc' the least; 'nulls first' or 'nulls last' may follow. by={term!r}"
        )
    name = _name(match)
    pipeline_checks.check_column(name, f"{step} by=", schema)
    if not is_orderable(schema.field(name).type):
        raise InvalidPipelineError(
            f"by= needs values that have an order: not nested ones, for example. step={step}, column={name}, "
            f"type={schema.field(name).type}"
        )
    descending = match["way"].lower() == "desc"
    return OrderColumn(
        name, descending, not descending if match["nulls"] is None else match["nulls"].lower() == "first"
    )


def _ranks_of_groups(groups: Positions) -> Positions:
    """The rank of each row by its group: how many rows are in lesser groups."""
    sizes = np.bincount(groups)
    ranks: Positions = (np.cumsum(sizes) - sizes)[groups]
    return ranks


def _refine(ranks: Positions, codes: Positions) -> Positions:
    """The ranks of rows that are sorted by rank and then by code, by both of these."""
    places = np.arange(len(ranks))
    begins_rank = np.diff(ranks, prepend=-1) != 0
    begins = begins_rank.copy()
    begins[1:] |= codes[1:] != codes[:-1]
    first_of_rank, first = (np.maximum.accumulate(np.where(each, places, 0)) for each in (begins_rank, begins))
    return ranks + first - first_of_rank
