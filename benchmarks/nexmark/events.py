"""The events of Nexmark: people who join, auctions that they open, and bids on these, by the numbers of the events.

Of fifty events in a row one is a person, three are auctions and the rest are bids. What a row refers to is there
before it. The same seed and numbers give the same rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]

TABLES = ("person", "auction", "bid")
_TIME = pa.timestamp("us", "UTC")
SCHEMAS: Mapping[str, pa.Schema] = {
    "person": pa.schema(
        [
            ("id", pa.int64()),
            ("name", pa.string()),
            ("email", pa.string()),
            ("credit_card", pa.string()),
            ("city", pa.string()),
            ("state", pa.string()),
            ("date_time", _TIME),
            ("extra", pa.string()),
        ]
    ),
    "auction": pa.schema(
        [
            ("id", pa.int64()),
            ("item_name", pa.string()),
            ("description", pa.string()),
            ("initial_bid", pa.int64()),
            ("reserve", pa.int64()),
            ("date_time", _TIME),
            ("expires", _TIME),
            ("seller", pa.int64()),
            ("category", pa.int64()),
            ("extra", pa.string()),
        ]
    ),
    "bid": pa.schema(
        [
            ("auction", pa.int64()),
            ("bidder", pa.int64()),
            ("price", pa.int64()),
            ("channel", pa.string()),
            ("url", pa.string()),
            ("date_time", _TIME),
            ("extra", pa.string()),
        ]
    ),
}

_EPOCH, _PEOPLE, _AUCTIONS = 50, 1, 3
_START_US = 1_704_095_990_000_000
"""Ten seconds before eight in the morning."""
_FIRST_ID = 980
"""So that among the first few ids is one that q2 asks for, a multiple of 123."""
_CATEGORIES = 5
_HOT = 0.5
"""Half of all bids are on the newest hundredth auctions, or by the newest hundredth people."""
_STATES = ("OR", "ID", "CA", "WA", "AZ", "WY")
_CITIES = ("Portland", "Boise", "Los Angeles", "Seattle", "Phoenix", "Cheyenne")
_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_OTHER_CHANNELS = 20


@dataclass(frozen=True)
class Events:
    """Events `interval_us` after one another; `active` people sell and bid at a time, on as many auctions."""

    interval_us: int = 100_000
    active: int = 100
    open_s: int = 20
    seed: int = 20_260_101

    def rows(self, first: int, count: int) -> dict[str, pa.Table]:
        """The events `first` to `first + count`, by table."""
        chance = np.random.default_rng([self.seed, first])
        number = np.arange(first, first + count)
        place = number % _EPOCH
        person, auction = place < _PEOPLE, (place >= _PEOPLE) & (place < _PEOPLE + _AUCTIONS)
        made = {
            "person": self._people(number[person], chance),
            "auction": self._auctions(number[auction], chance),
            "bid": self._bids(number[~(person | auction)], chance),
        }
        return {name: pa.table(columns, schema=SCHEMAS[name]) for name, columns in made.items()}

    def _people(self, number: Numbers, chance: np.random.Generator) -> list[pa.Array]:
        ids, home = _people_before(number) + _FIRST_ID, chance.integers(0, len(_STATES), len(number))
        names = _texts("person-", ids)
        cards = pc.utf8_lpad(_texts("", chance.integers(0, 10**16, len(number))), 16, "0")
        return [
            pa.array(ids), names, _joined(names, "@example.com"), cards, _picked(_CITIES, home),
            _picked(_STATES, home), self._times(number), _extra(len(number), chance),
        ]  # fmt: skip

    def _auctions(self, number: Numbers, chance: np.random.Generator) -> list[pa.Array]:
        ids = _auctions_before(number) + _FIRST_ID
        initial = _prices(len(number), chance)
        lasts_us = chance.integers(1, 2 * self.open_s * 1_000_000, len(number))
        return [
            pa.array(ids), _texts("item-", ids), _texts("about-", ids), pa.array(initial),
            pa.array(initial + _prices(len(number), chance)), self._times(number), self._times(number, lasts_us),
            pa.array(self._drawn(_people_before(number), chance)),
            pa.array(10 + chance.integers(0, _CATEGORIES, len(number))), _extra(len(number), chance),
        ]  # fmt: skip

    def _bids(self, number: Numbers, chance: np.random.Generator) -> list[pa.Array]:
        count = len(number)
        channel = chance.integers(0, 2 * len(_CHANNELS), count)
        other = chance.integers(0, _OTHER_CHANNELS, count)
        known = pa.array(channel < len(_CHANNELS))
        names = pc.if_else(known, _picked(_CHANNELS, channel % len(_CHANNELS)), _texts("channel-", other))
        ends = pc.if_else(pa.array(other % 2 == 0), _texts("?item=1&channel_id=", other), "")
        urls = _joined(_texts("https://www.example.com/", other), _texts("/", channel), "/item.html", ends)
        return [
            pa.array(self._drawn(_auctions_before(number), chance)),
            pa.array(self._drawn(_people_before(number), chance)),
            pa.array(_prices(count, chance)), names, urls, self._times(number), _extra(count, chance),
        ]  # fmt: skip

    def _drawn(self, before: Numbers, chance: np.random.Generator) -> Numbers:
        """Ids among the newest of those before, half of them the newest hot one."""
        active = np.minimum(self.active, before)
        any_of = before - 1 - (chance.random(len(before)) * active).astype(np.int64)
        hot = np.maximum(before - 1, 0) // 100 * 100
        drawn: Numbers = np.where(chance.random(len(before)) < _HOT, hot, any_of) + _FIRST_ID
        return drawn

    def _times(self, number: Numbers, after_us: Numbers | int = 0) -> pa.Array:
        return pa.array(_START_US + number * self.interval_us + after_us).cast(_TIME)


def side_input(keys: int = 100) -> pa.Table:
    """The table of q13 that does not stream."""
    return pa.table({"key": pa.array(range(keys), pa.int64()), "value": _texts("value-", np.arange(keys))})


def _people_before(number: Numbers) -> Numbers:
    """How many people there are before each event."""
    people: Numbers = number // _EPOCH * _PEOPLE + np.minimum(number % _EPOCH, _PEOPLE)
    return people


def _auctions_before(number: Numbers) -> Numbers:
    auctions: Numbers = number // _EPOCH * _AUCTIONS + np.clip(number % _EPOCH - _PEOPLE, 0, _AUCTIONS)
    return auctions


def _prices(count: int, chance: np.random.Generator) -> Numbers:
    """From a dollar to ten million, in cents, evenly in their number of digits."""
    prices: Numbers = np.rint(10 ** (chance.random(count) * 6) * 100).astype(np.int64)
    return prices


def _picked(values: tuple[str, ...], places: Numbers) -> pa.Array:
    return pa.DictionaryArray.from_arrays(places, list(values)).cast(pa.string())


def _texts(before: str, numbers: Numbers) -> pa.Array:
    return _joined(before, pa.array(numbers).cast(pa.string()))


def _joined(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _extra(count: int, chance: np.random.Generator) -> pa.Array:
    letters = np.frombuffer(b"abcdefgh", dtype="S1")[chance.integers(0, 8, (count, 16))]
    return pa.array(letters.view("S16").reshape(count)).cast(pa.string())
