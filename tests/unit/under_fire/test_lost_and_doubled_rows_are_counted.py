import pandas as pd
import pytest

from tests.chaos.chain_lanes import wrong_selection
from tests.chaos.lanes import (
    DELAY_MS,
    GROUPS,
    LANES,
    WINDOW_MS,
    Judge,
    Wrong,
    wrong_aggregate,
    wrong_copy,
    wrong_shares,
    wrong_windows,
)

ROWS = pd.DataFrame({"id": [0, 1, 2, 3], "key": [7, 7, 8, 9], "value": [5, -1, 3, 4]})
TABLE = pd.DataFrame({"key": [7, 8, 9], "rows": [2, 1, 1], "total": [4, 3, 4], "greatest": [5, 3, 4]})


@pytest.mark.parametrize(("judge", "table"), [(wrong_aggregate, TABLE), (wrong_copy, ROWS)])
def test_nothing_is_wrong_with_the_right_table_in_any_order(judge: Judge, table: pd.DataFrame) -> None:
    assert not judge(table.sample(frac=1, random_state=1), ROWS)


def test_windows_are_judged_once_the_watermark_has_closed_them() -> None:
    ids = [0, WINDOW_MS - 1, WINDOW_MS, 2 * WINDOW_MS + DELAY_MS]  # the last one closes the windows of the others
    rows = pd.DataFrame({"id": ids, "key": [7, 7, 7, 7], "value": [5, -1, 3, 4]})
    starts = pd.to_datetime([0, WINDOW_MS], unit="ms", utc=True).as_unit("us")
    table = pd.DataFrame({"key": [7, 7], "window_start": starts, "rows": [2, 1], "total": [4, 3], "greatest": [5, 3]})
    assert not wrong_windows(table, rows)
    assert wrong_windows(table.iloc[:1], rows) == Wrong(lost=1)
    assert wrong_windows(table.assign(rows=[3, 1]), rows) == Wrong(doubled=1)
    assert wrong_windows(pd.concat([table, table]), rows) == Wrong(other=2)
    # A window that should still be open has rows that are not expected yet.
    assert wrong_windows(table, rows.iloc[:3]) == Wrong(doubled=3)


def test_an_aggregate_distinguishes_lost_rows_from_doubled_ones() -> None:
    table = pd.DataFrame({"key": [7, 8, 9], "rows": [1, 3, 1], "total": [5, 9, 4], "greatest": [5, 3, 4]})
    assert wrong_aggregate(table, ROWS) == Wrong(lost=1, doubled=2)


def test_a_missing_key_has_lost_its_rows_and_one_too_many_has_doubled_some() -> None:
    table = pd.DataFrame({"key": [8, 9, 10], "rows": [1, 1, 3], "total": [3, 4, 0], "greatest": [3, 4, 0]})
    assert wrong_aggregate(table, ROWS) == Wrong(lost=2, doubled=3)


@pytest.mark.parametrize("column", ["total", "greatest"])
def test_a_wrong_value_of_the_right_number_of_rows_is_wrong(column: str) -> None:
    table = TABLE.copy()
    table.loc[1, column] += 1
    assert wrong_aggregate(table, ROWS) == Wrong(other=1)


def test_a_key_that_is_there_twice_is_wrong() -> None:
    assert wrong_aggregate(pd.concat([TABLE, TABLE.iloc[:1]]), ROWS) == Wrong(other=1)


def test_a_copy_distinguishes_lost_doubled_changed_and_invented_rows() -> None:
    assert wrong_copy(ROWS.iloc[1:], ROWS) == Wrong(lost=1)
    assert wrong_copy(pd.concat([ROWS, ROWS.iloc[:2], ROWS.iloc[:1]]), ROWS) == Wrong(doubled=3)
    assert wrong_copy(ROWS.assign(value=[5, -1, 3, 5]), ROWS) == Wrong(other=1)
    invented = pd.DataFrame({"id": [9], "key": [0], "value": [0]})
    assert wrong_copy(pd.concat([ROWS, invented]), ROWS) == Wrong(other=1)


def test_every_lane_has_a_judge() -> None:
    assert set(LANES) == {"keyed", "appended", "swept", "stepped"}


def test_a_share_is_judged_by_the_totals_of_its_group() -> None:
    rows = pd.DataFrame({"id": [0, 1, 2], "key": [1, 1 + GROUPS, 2], "value": [5, -9, 3]})
    table = pd.DataFrame(
        {
            "key": [2, 1, 1 + GROUPS],
            "rows": [1, 1, 1],
            "total": [3, 5, -9],
            "greatest": [3, 5, -9],
            "of_rows": [1, 2, 2],
            "of_total": [3, -4, -4],
        }
    )
    assert not wrong_shares(table, rows)
    assert wrong_shares(table.iloc[:2], rows) == Wrong(lost=1)
    assert wrong_shares(table.assign(of_total=[3, -4, 5]), rows) == Wrong(other=1)
    assert wrong_shares(table.assign(of_rows=[1, 1, 1]), rows) == Wrong(other=2)


def test_a_selection_is_judged_by_the_keys_that_belong_to_it() -> None:
    rows = pd.DataFrame({"id": [0, 1, 2], "key": [7, 7, 8], "value": [5, -9, 3]})
    table = pd.DataFrame({"key": [8], "rows": [1], "total": [3], "greatest": [3]})
    stayed = pd.DataFrame({"key": [7], "rows": [2], "total": [-4], "greatest": [5]})
    assert not wrong_selection(table, rows)
    assert wrong_selection(pd.concat([table, stayed]), rows) == Wrong(doubled=2)
    assert wrong_selection(table.iloc[:0], rows) == Wrong(lost=1)
