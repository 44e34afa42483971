"""The eight tables of TPC-H at any scale, from a seed, with its columns, types and ways in which rows refer to others.

Values are drawn much as the specification says, with two differences. Of a column that queries compare with constants,
three of ten values are among those constants, so that each query has rows at a scale as small as that of a test. Texts
have few words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.tpch import words

Numbers = npt.NDArray[np.int64]
Texts = npt.NDArray[np.object_]

MONEY = pa.decimal128(15, 2)
KEYS: Mapping[str, tuple[str, ...]] = {
    "region": ("r_regionkey",),
    "nation": ("n_nationkey",),
    "supplier": ("s_suppkey",),
    "customer": ("c_custkey",),
    "part": ("p_partkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}
"""Each table's primary key."""

_FIRST_DAY = np.datetime64("1992-01-01", "D").astype(np.int64)
_LAST_ORDER = np.datetime64("1998-08-02", "D").astype(np.int64)
_TODAY = np.datetime64("1995-06-17", "D").astype(np.int64)
"""The day on which the business of the specification is looked at."""
_ASKED = 0.3
_SUPPLIERS_OF_PART = 4
_LARGE = 50
"""One of so many orders is large: query 18 asks for these."""


def tables(scale: float, seed: int) -> dict[str, pa.Table]:
    """All tables, of six million line items times `scale`. Another seed gives rows with the same keys other values."""
    return _Business.of(scale, seed).tables()


@dataclass(frozen=True)
class _Business:
    """How many there are of each, and the chance that draws their values; `lines` of each order do not depend on it."""

    suppliers: int
    customers: int
    parts: int
    lines: Numbers
    chance: np.random.Generator

    @classmethod
    def of(cls, scale: float, seed: int) -> "_Business":
        orders = max(int(1_500_000 * scale), 8)
        lines = np.random.default_rng(orders).integers(1, 8, orders)
        lines[::_LARGE] = 7
        return cls(
            max(int(10_000 * scale), 2 * _SUPPLIERS_OF_PART),
            max(int(150_000 * scale), 6),
            max(int(200_000 * scale), 8),
            lines,
            np.random.default_rng(seed),
        )

    def tables(self) -> dict[str, pa.Table]:
        part, prices = self._part()
        orders, lineitem = self._orders(prices)
        return {
            "region": self._region(),
            "nation": self._nation(),
            "supplier": self._supplier(),
            "customer": self._customer(),
            "part": part,
            "partsupp": self._partsupp(),
            "orders": orders,
            "lineitem": lineitem,
        }

    def _region(self) -> pa.Table:
        count = len(words.REGIONS)
        return pa.table(
            {"r_regionkey": np.arange(count), "r_name": list(words.REGIONS), "r_comment": self._comment(count)}
        )

    def _nation(self) -> pa.Table:
        count = len(words.NATIONS)
        return pa.table(
            {
                "n_nationkey": np.arange(count),
                "n_name": list(words.NATIONS),
                "n_regionkey": np.arange(count) // 5,
                "n_comment": self._comment(count),
            }
        )

    def _supplier(self) -> pa.Table:
        keys = np.arange(1, self.suppliers + 1)
        nations = self._nations(len(keys))
        return pa.table(
            {
                "s_suppkey": keys,
                "s_name": _named("Supplier#", keys),
                "s_address": self._comment(len(keys)),
                "s_nationkey": nations,
                "s_phone": self._phone(nations),
                "s_acctbal": self._balance(len(keys)),
                "s_comment": self._comment(len(keys), words.COMPLAINTS, 0.1),
            }
        )

    def _customer(self) -> pa.Table:
        keys = np.arange(1, self.customers + 1)
        nations = self._nations(len(keys))
        return pa.table(
            {
                "c_custkey": keys,
                "c_name": _named("Customer#", keys),
                "c_address": self._comment(len(keys)),
                "c_nationkey": nations,
                "c_phone": self._phone(nations),
                "c_acctbal": self._balance(len(keys)),
                "c_mktsegment": self._one_of(words.SEGMENTS, len(keys)),
                "c_comment": self._comment(len(keys)),
            }
        )

    def _part(self) -> tuple[pa.Table, Numbers]:
        """The parts, and their prices in cents."""
        keys = np.arange(1, self.parts + 1)
        colours = [self._one_of(words.COLOURS, len(keys), words.ASKED_COLOURS) for _ in range(3)]
        brands = self._one_of(words.BRANDS, len(keys), words.ASKED_BRANDS)
        sizes = self.chance.integers(1, 51, len(keys))
        asked = self.chance.random(len(keys)) < _ASKED
        prices = 90_000 + keys // 10 % 20_001 + 100 * (keys % 1_000)
        table = pa.table(
            {
                "p_partkey": keys,
                "p_name": colours[0] + " " + colours[1] + " " + colours[2],
                "p_mfgr": np.array([f"Manufacturer#{brand[6]}" for brand in words.BRANDS], object)[_place(brands)],
                "p_brand": brands,
                "p_type": self._one_of(words.TYPES, len(keys), words.ASKED_TYPES),
                "p_size": pa.array(np.where(asked, self._one_of(words.ASKED_SIZES, len(keys)), sizes), pa.int32()),
                "p_container": self._one_of(words.CONTAINERS, len(keys), words.ASKED_CONTAINERS),
                "p_retailprice": _money(prices),
                "p_comment": self._comment(len(keys)),
            }
        )
        return table, prices

    def _partsupp(self) -> pa.Table:
        parts = np.repeat(np.arange(1, self.parts + 1), _SUPPLIERS_OF_PART)
        suppliers = self._supplier_of(parts, np.tile(np.arange(_SUPPLIERS_OF_PART), self.parts))
        return pa.table(
            {
                "ps_partkey": parts,
                "ps_suppkey": suppliers,
                "ps_availqty": pa.array(self.chance.integers(1, 10_000, len(parts)), pa.int32()),
                "ps_supplycost": _money(self.chance.integers(100, 100_001, len(parts))),
                "ps_comment": self._comment(len(parts)),
            }
        )

    def _orders(self, prices: Numbers) -> tuple[pa.Table, pa.Table]:
        """The orders, and their line items. Every third customer has no order."""
        count, chance = len(self.lines), self.chance
        keys, large = np.arange(count) // 8 * 32 + np.arange(count) % 8 + 1, np.arange(count) % _LARGE == 0
        customers = chance.integers(1, self.customers + 1, count)
        customers -= customers % 3 == 0
        dates = chance.integers(_FIRST_DAY, _LAST_ORDER + 1, count)

        order = np.repeat(np.arange(count), self.lines)
        rows = len(order)
        parts = chance.integers(1, self.parts + 1, rows)
        quantities = np.where(large[order], chance.integers(45, 51, rows), chance.integers(1, 51, rows))
        extended = quantities * prices[parts - 1]
        discounts, taxes = chance.integers(0, 11, rows), chance.integers(0, 9, rows)
        shipped = dates[order] + chance.integers(1, 122, rows)
        received = shipped + chance.integers(1, 31, rows)
        returned = np.where(chance.random(rows) < 0.5, "R", "A")
        is_open = shipped > _TODAY
        lineitem = pa.table(
            {
                "l_orderkey": keys[order],
                "l_partkey": parts,
                "l_suppkey": self._supplier_of(parts, chance.integers(0, _SUPPLIERS_OF_PART, rows)),
                "l_linenumber": pa.array(np.arange(rows) - (np.cumsum(self.lines) - self.lines)[order] + 1, pa.int32()),
                "l_quantity": _money(quantities * 100),
                "l_extendedprice": _money(extended),
                "l_discount": _money(discounts),
                "l_tax": _money(taxes),
                "l_returnflag": np.where(received <= _TODAY, returned, "N"),
                "l_linestatus": np.where(is_open, "O", "F"),
                "l_shipdate": _date(shipped),
                "l_commitdate": _date(dates[order] + chance.integers(30, 91, rows)),
                "l_receiptdate": _date(received),
                "l_shipinstruct": self._one_of(words.INSTRUCTIONS, rows, words.INSTRUCTIONS[1:2]),
                "l_shipmode": self._one_of(words.MODES, rows, words.MODES[:1]),
                "l_comment": self._comment(rows),
            }
        )
        still_open = np.bincount(order, is_open, count)
        status = np.where(still_open == 0, "F", np.where(still_open == self.lines, "O", "P"))
        totals = np.bincount(order, extended * (100 + taxes) * (100 - discounts) / 10_000, count)
        orders = pa.table(
            {
                "o_orderkey": keys,
                "o_custkey": customers,
                "o_orderstatus": status,
                "o_totalprice": _money(totals.astype(np.int64)),
                "o_orderdate": _date(dates),
                "o_orderpriority": self._one_of(words.PRIORITIES, count),
                "o_clerk": _named("Clerk#", chance.integers(1, max(count // 1_500, 1) + 1, count)),
                "o_shippriority": pa.array(np.zeros(count), pa.int32()),
                "o_comment": self._comment(count, words.SPECIAL_REQUESTS, 0.1),
            }
        )
        return orders, lineitem

    def _supplier_of(self, parts: Numbers, number: Numbers) -> Numbers:
        """One of the four suppliers of each part, by its number."""
        return (parts * 7 + number * (self.suppliers // _SUPPLIERS_OF_PART)) % self.suppliers + 1

    def _one_of(self, values: Sequence[Any], count: int, asked: Sequence[Any] = ()) -> Texts:
        """Any of the values, or often of those that queries ask for."""
        found = np.array(values, object)[self.chance.integers(0, len(values), count)]
        if not asked:
            return found
        others = np.array(asked, object)[self.chance.integers(0, len(asked), count)]
        return np.where(self.chance.random(count) < _ASKED, others, found)

    def _nations(self, count: int) -> Numbers:
        names = self._one_of(words.NATIONS, count, words.ASKED_NATIONS)
        return np.array([words.NATIONS.index(name) for name in names], np.int64)

    def _phone(self, nations: Numbers) -> list[str]:
        numbers = self.chance.integers(100, 1_000, (len(nations), 2))
        return [f"{nation + 10}-{one}-{two}" for nation, (one, two) in zip(nations, numbers, strict=True)]

    def _balance(self, count: int) -> pa.Array:
        return _money(self.chance.integers(-99_999, 1_000_000, count))

    def _comment(self, count: int, special: str = "", share: float = 0) -> Texts:
        """Two words, and in a share of the rows a special text too."""
        text = self._one_of(words.WORDS, count) + " " + self._one_of(words.WORDS, count)
        found: Texts = np.where(self.chance.random(count) < share, text + " " + special, text)
        return found


def _named(prefix: str, keys: Numbers) -> list[str]:
    return [f"{prefix}{key:09d}" for key in keys]


def _place(brands: Texts) -> Numbers:
    return np.array([words.BRANDS.index(brand) for brand in brands], np.int64)


def _money(cents: Numbers) -> pa.Array:
    """Decimals of these cents: Arrow's are little-endian numbers of 16 bytes."""
    whole = np.stack([cents, np.where(cents < 0, -1, 0)], axis=1).astype("<i8")
    return pa.Array.from_buffers(MONEY, len(cents), [None, pa.py_buffer(np.ascontiguousarray(whole))])


def _date(days: Numbers) -> pa.Array:
    return pa.array(days.astype(np.int32)).cast(pa.date32())
