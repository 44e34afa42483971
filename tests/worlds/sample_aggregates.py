"""Aggregates of each function of the registry, of the columns of a test's own input."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from dagster_ckpt.operators.aggregates.aggregation import Aggregation, GroupFunction
from dagster_ckpt.operators.aggregates.registry import FUNCTIONS
from dagster_ckpt.operators.aggregates.spec import AggregateSpec, ColumnKind

OPTIONS: Mapping[str, Any] = {"limit": 2, "q": 0.3, "error": 0.1}
"""Values for options that a function cannot do without."""


def one_text(rows: pa.Table) -> pa.Array:
    """A user-defined aggregate: the same text for each group."""
    return pa.array([""] * len(set(rows["_group"].to_pylist())))


def sample(spec: AggregateSpec, column: str, code: GroupFunction = one_text, **options: Any) -> Aggregation:
    """The function of this column; of `options` those that it takes."""
    if not spec.is_of_column:
        return spec.call(code, [column], pa.string())
    known = {**OPTIONS, **options}
    return spec.call(column, **{option: known[option] for option in spec.options if option in known})


def samples(columns: Mapping[ColumnKind, str], **options: Any) -> dict[str, Aggregation]:
    """All functions by name, each of the column of its kind."""
    return {name: sample(spec, columns[spec.takes], **options) for name, spec in FUNCTIONS.items()}
