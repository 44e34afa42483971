import numpy as np
import pyarrow as pa
import pytest

from benchmarks.tpch.changing import Change, ChangingTable

ROWS = 1_000
Values = dict[tuple[int, int], str]


def values_of(rows: pa.Table) -> Values:
    return {(row["k"], row["l"]): row["v"] for row in rows.to_pylist()}


def follow(table: Values, changes: list[Change]) -> Values:
    """The table behind the changes. Each must fit what is there, and none may meet a key twice."""
    met = [key for rows, _ in changes for key in values_of(rows)]
    assert len(met) == len(set(met)) == sum(len(rows) for rows, _ in changes)
    for rows, op in changes:
        for key, value in values_of(rows).items():
            assert (key in table) == (op in "ud")
            if op == "d":
                assert table.pop(key) == value
            else:
                table[key] = value
    return table


@pytest.fixture
def changing() -> ChangingTable:
    number = np.arange(ROWS)
    rows = pa.table({"v": [f"value {each}" for each in number], "k": number // 4, "l": number % 4})
    return ChangingTable(rows, ["k", "l"])


def test_every_row_comes_once(changing: ChangingTable) -> None:
    table: Values = {}
    for file in range(3):
        table = follow(table, changing.insert(file, 3))
    assert len(table) == ROWS
    assert values_of(changing.now()) == table


def test_changes_fit_the_rows_that_are_there(changing: ChangingTable) -> None:
    table = follow({}, changing.insert(0, 1))
    before, chance = dict(table), np.random.default_rng(1)
    seen = set()
    for _ in range(20):
        changes = changing.change(0.1, chance)
        seen |= {op for rows, op in changes if len(rows)}
        table = follow(table, changes)
        assert values_of(changing.now()) == table
    assert seen == {"c", "u", "d"}
    assert table != before
