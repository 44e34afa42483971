"""What Spark's tests have of TPC-DS: the queries, and the columns of its tables."""

import re
import struct
import zipfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

_SCHEMA = "org/apache/spark/sql/TPCDSSchema.class"
_TABLE = re.compile(r"\s*\|?`(\w+?)_")
_COLUMN = re.compile(r"`(\w+)`\s+(\w+(?:\(\d+,\s*\d+\))?)")
_TEXT = re.compile(r"(VAR)?CHAR")
_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
"""Bytes of what is in the constants of a class, by its tag; those of two places are 5 and 6, and 1 is a text."""
_BY_LETTERS = {
    "ss": "store_sales", "sr": "store_returns", "cs": "catalog_sales", "cr": "catalog_returns", "ws": "web_sales",
    "wr": "web_returns", "inv": "inventory", "s": "store", "cc": "call_center", "cp": "catalog_page", "web": "web_site",
    "wp": "web_page", "w": "warehouse", "c": "customer", "ca": "customer_address", "cd": "customer_demographics",
    "d": "date_dim", "hd": "household_demographics", "i": "item", "ib": "income_band", "p": "promotion", "r": "reason",
    "sm": "ship_mode", "t": "time_dim",
}  # fmt: skip
"""The tables, by the letters that their columns begin with."""


class Suite:
    """The jar of Spark's tests. `folder` is that of the queries: `tpcds`, or `tpcds-v2.7.0` for those that changed."""

    def __init__(self, jar: Path, folder: str = "tpcds") -> None:
        self._jar, self._folder = jar, folder

    @cache  # noqa: B019  (one of each, for as long as the tests run)
    def queries(self) -> Mapping[str, str]:
        """The queries by name, `q1` to `q99`."""
        with zipfile.ZipFile(self._jar) as jar:
            names = [name for name in jar.namelist() if name.startswith(f"{self._folder}/") and name.endswith(".sql")]
            found = {Path(name).stem: jar.read(name).decode().strip().rstrip(";") for name in names}
        return {name: found[name] for name in sorted(found, key=lambda each: (len(each), each))}

    @cache  # noqa: B019  (as above)
    def tables(self) -> Mapping[str, Mapping[str, str]]:
        """The columns of each table with their types, as SQL spells them."""
        with zipfile.ZipFile(self._jar) as jar:
            texts = list(_texts(jar.read(_SCHEMA)))
        found: dict[str, Mapping[str, str]] = {}
        for text in texts:
            letters, columns = _TABLE.match(text), _COLUMN.findall(text)
            if letters is not None and columns:
                found[_BY_LETTERS[letters[1]]] = {name: _TEXT.sub("STRING", type_.upper()) for name, type_ in columns}
        return found

    def tables_of(self, query: str) -> list[str]:
        """The tables that a query reads."""
        return [name for name in self.tables() if re.search(rf"\b{name}\b", query, re.IGNORECASE)]


def _texts(of_class: bytes) -> Iterator[str]:
    """The texts among the constants of a class, as the JVM's specification (4.4) has them."""
    [count] = struct.unpack_from(">H", of_class, 8)
    at, place = 10, 1
    while place < count:
        tag = of_class[at]
        if tag == 1:
            [length] = struct.unpack_from(">H", of_class, at + 1)
            yield of_class[at + 3 : at + 3 + length].decode(errors="replace")
            at += 3 + length
        else:
            at += 1 + _SIZES[tag]
        place += 2 if tag in (5, 6) else 1
