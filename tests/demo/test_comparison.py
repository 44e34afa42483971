"""The proof at the end of the demo would notice whatever could go wrong."""

import math
from collections.abc import Callable

import polars as pl
import pytest

from demo.comparison import difference

TABLE = pl.DataFrame(
    {
        "tailnum": ["N1", "N2", None],
        "planned": [3, 2, 7],
        "mean_delay": [0.1, -5.0, None],
    }
)
KEY = ["tailnum"]


def test_a_table_equals_itself_in_any_order() -> None:
    assert not difference(TABLE.reverse(), TABLE, KEY)


@pytest.mark.parametrize("row", range(3))
def test_a_missing_row_is_found(row: int) -> None:
    found = difference(TABLE.filter(pl.int_range(pl.len()) != row), TABLE, KEY)
    assert found
    assert found.missing.equals(TABLE[row])
    assert found.surplus.is_empty()
    assert found.changed.is_empty()


@pytest.mark.parametrize("row", range(3))
def test_a_doubled_row_is_found(row: int) -> None:
    found = difference(pl.concat([TABLE, TABLE[row]]), TABLE, KEY)
    assert found
    assert found.surplus.equals(TABLE[row])
    assert found.missing.is_empty()
    assert found.changed.is_empty()


def test_a_doubled_row_is_found_where_another_is_missing() -> None:
    found = difference(pl.concat([TABLE[0], TABLE[0], TABLE[2]]), TABLE, KEY)
    assert found.surplus.equals(TABLE[0])
    assert found.missing.equals(TABLE[1])


@pytest.mark.parametrize(
    "change",
    [
        pl.col("planned") + 1,
        pl.col("mean_delay") * (1 + 1e-8),
        pl.col("mean_delay").fill_null(0.0),
        pl.col("mean_delay").fill_null(math.nan),
        pl.when(pl.col("tailnum") == "N2").then(None).otherwise(pl.col("mean_delay")).alias("mean_delay"),
    ],
)
def test_a_changed_value_is_found(change: pl.Expr) -> None:
    assert difference(TABLE.with_columns(change), TABLE, KEY).changed.height > 0


def test_the_last_digits_of_a_floating_number_do_not_count() -> None:
    assert not difference(TABLE.with_columns(pl.col("mean_delay") * (1 + 1e-12)), TABLE, KEY)


def test_a_changed_key_is_a_row_too_few_and_a_row_too_many() -> None:
    found = difference(TABLE.with_columns(pl.col("tailnum").fill_null("N3")), TABLE, KEY)
    assert found.missing.equals(TABLE[2])
    assert found.surplus["tailnum"].to_list() == ["N3"]


@pytest.mark.parametrize(
    "other",
    [
        lambda table: table.drop("planned"),
        lambda table: table.with_columns(extra=1),
        lambda table: table.with_columns(pl.col("planned").cast(pl.Int32)),
    ],
)
def test_other_columns_or_types_are_refused(other: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    with pytest.raises(ValueError, match="the columns differ"):
        difference(other(TABLE), TABLE, KEY)


def test_tables_of_nothing_but_keys_are_compared_too() -> None:
    keys = TABLE.select(KEY)
    assert not difference(keys, keys, KEY)
    assert difference(keys[:2], keys, KEY)
