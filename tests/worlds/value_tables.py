"""Rows of values that are chosen for each column, such as those at which its type ends."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st


@st.composite
def value_tables(
    draw: st.DrawFn, columns: Mapping[str, tuple[pa.DataType, Sequence[Any]]], least: int, most: int
) -> pa.Table:
    """From `least` to `most` rows, each with one of the values of a column, or null."""
    size = draw(st.integers(least, most))
    return pa.table(
        {
            name: pa.array(draw(st.lists(st.none() | st.sampled_from(values), min_size=size, max_size=size)), type_)
            for name, (type_, values) in columns.items()
        }
    )
