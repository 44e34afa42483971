"""Rows for a query of TPC-DS: few, with values that the query asks for, so that some pass its filters and joins."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from functools import cache
from random import Random

import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.protocol.change_columns import CHANGE_TYPE

EPOCHS = 3
_FACTS = ("store_sales", "store_returns", "catalog_sales", "catalog_returns", "web_sales", "web_returns", "inventory")
_FIRST_FACTS, _MORE_FACTS = 150, 60
"""Rows that come in the first epoch, and in each later one."""
_KEYS = 30
"""The most rows of a table that facts are joined with."""
_CHANGED = 6
"""Of its rows, those that go or change in an epoch."""
_GOES, _NULL = 0.15, 0.04
_NEAR = 90
"""Letters behind a column's name in the query, where its values may be."""
_DATE = re.compile(r"'(\d{4})-(\d\d?)-(\d\d?)'")
_TEXT = re.compile(r"'(?!\d{4}-\d)([^']*)'")
_NUMBER = re.compile(r"(?<![\w.'-])(\d{1,5})(?![\w.'-])")
_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")


@dataclass(frozen=True)
class ChangingRows:
    """The changes of a table in each epoch, and its rows behind each."""

    changes: list[pa.Table]
    states: list[pa.Table]


class World:
    """The tables of a query. Rows are drawn: the same ones for the same `seed`."""

    def __init__(self, query: str, tables: Mapping[str, Mapping[str, str]], seed: str) -> None:
        self._query, self._chance = query, Random(seed)
        self.tables = {name: self._table(name, columns) for name, columns in tables.items()}

    def _table(self, name: str, columns: Mapping[str, str]) -> ChangingRows:
        key = None if name in _FACTS else next(iter(columns))
        found = ChangingRows([], [])
        there = self._rows(columns, key, range(0))
        for epoch in range(EPOCHS):
            if key is None:
                goes = [self._chance.random() < _GOES for _ in range(len(there))]
                come = self._rows(columns, None, range(_MORE_FACTS if epoch else _FIRST_FACTS))
            else:
                keys = self._chance.sample(range(1, _KEYS + 1), _CHANGED) if epoch else list(range(1, _KEYS - 3))
                goes = [each in keys for each in there[key].to_pylist()]
                come = self._rows(columns, key, [each for each in keys if self._chance.random() > _GOES])
            gone, stay = (
                there.filter(pa.array(goes, pa.bool_())),
                there.filter(pa.array([not it for it in goes], pa.bool_())),
            )
            there = pa.concat_tables([stay, come])
            kinds = pa.array(["delete"] * len(gone) + ["insert"] * len(come), pa.string())
            found.changes.append(pa.concat_tables([gone, come]).append_column(CHANGE_TYPE, kinds))
            found.states.append(there)
        return found

    def _rows(self, columns: Mapping[str, str], key: str | None, keys: Sequence[int]) -> pa.Table:
        arrays = {}
        for name, type_ in columns.items():
            values = list(keys) if name == key else [self._value(name, type_) for _ in keys]
            arrays[name] = pa.array(values, _arrow(type_))
        rows = pa.table(arrays)
        return rows if "d_date" not in columns else _as_calendar(rows)

    @cache  # noqa: B019  (as long as the test)
    def _near(self, name: str) -> str:
        """What the query has behind a column's name."""
        found = re.finditer(rf"\b{name}\b", self._query, re.IGNORECASE)
        return " ".join(self._query[each.end() : each.end() + _NEAR] for each in found)

    def _numbers(self, name: str) -> list[int]:
        """The numbers that the query compares a column with, perhaps. Not 0, by which it may divide."""
        return [int(each) for each in _NUMBER.findall(self._near(name)) if int(each)]

    def _value(self, name: str, type_: str) -> object:
        chance = self._chance
        if chance.random() < _NULL:
            return None
        if type_ == "STRING":
            asked = _TEXT.findall(self._near(name))
            return chance.choice([*asked, *asked, *(() if asked else _TEXT.findall(self._query)[:4]), "a", "10001"])
        if type_ == "DATE":
            return self._day(name)
        if type_ != "INT":
            return self._decimal(type_, self._numbers(name))
        if name.endswith("_sk") or "number" in name:
            return chance.randint(1, _KEYS)
        return chance.choice([*self._numbers(name) * 3, chance.randint(1, 12)])

    def _day(self, name: str) -> date:
        """A day like those of the query, by a date or by the year and the month."""
        days = _DATE.findall(self._near(name)) or _DATE.findall(self._query)
        if days:
            return date(*map(int, self._chance.choice(days))) + timedelta(days=self._chance.randint(-5, 40))
        years = [each for each in self._numbers("d_year") if 1900 < each < 2100]
        months = [each for each in self._numbers("d_moy") if each <= 12]
        month = self._chance.choice([*months, *months, self._chance.randint(1, 12)])
        return date(self._chance.choice(years or [2000]), month, self._chance.randint(1, 28))

    def _decimal(self, type_: str, numbers: Sequence[int]) -> Decimal:
        found = _DECIMAL.fullmatch(type_)
        assert found is not None, type_
        digits, scale = map(int, found.groups())
        numbers = [each for each in numbers if each < 10 ** (digits - scale)]
        if numbers and self._chance.random() < 1 / 2:
            return Decimal(self._chance.choice(numbers))
        return Decimal(self._chance.randint(1, 20_000)).scaleb(-scale) if scale else Decimal(self._chance.randint(1, 9))


def _as_calendar(days: pa.Table) -> pa.Table:
    """Days with all that follows from their dates, as queries trust that it does."""
    dates = days["d_date"]
    year, month, quarter = pc.year(dates), pc.month(dates), pc.quarter(dates)
    months = pc.subtract(pc.add(pc.multiply(pc.subtract(year, 1900), 12), month), 1)
    weeks = pc.divide(pc.cast(pc.cast(dates, pa.int32()), pa.int64()), 7)
    texts = [pc.cast(year, pa.string()), pc.cast(quarter, pa.string()), "Q"]
    found = {
        "d_year": year, "d_moy": month, "d_qoy": quarter, "d_dom": pc.day(dates), "d_month_seq": months,
        "d_week_seq": pc.add(weeks, 3653), "d_dow": pc.day_of_week(dates, week_start=7),
        "d_day_name": pc.strftime(dates, format="%A"), "d_quarter_name": pc.binary_join_element_wise(*texts),
    }  # fmt: skip
    for name, values in found.items():
        days = days.set_column(days.column_names.index(name), name, values.cast(days.schema.field(name).type))
    return days


def _arrow(type_: str) -> pa.DataType:
    if found := _DECIMAL.fullmatch(type_):
        return pa.decimal128(*map(int, found.groups()))
    return {"INT": pa.int32(), "STRING": pa.string(), "DATE": pa.date32()}[type_]
