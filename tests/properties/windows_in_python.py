"""Windows and sessions as loops over lists, and an operator over either state against them."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Any, Protocol

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from dagster_ckpt.ids import Shard
from dagster_ckpt.operators import agg
from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.operators.shared.window_kinds import FixedWindow, Hopping, Session
from tests.unit.operators.keyed_streams import TIME, Row
from tests.unit.operators.windowed_streams import Stream, table_of, windowed
from tests.worlds.event_times import ENDS_OF_INT64, is_out_of_range

KEYS = ("k", "part")
SCHEMA = pa.schema([("k", pa.string()), ("part", pa.int16()), ("v", pa.int64()), ("s", pa.string()), ("at", TIME)])
AGGREGATES: Mapping[str, Aggregation] = {
    "rows": agg.count(),
    "values": agg.count("v"),
    "total": agg.sum("v"),
    "least": agg.min("s"),
    "mean": agg.avg("v"),
    "opening": agg.first("v"),
    "closing": agg.last("s", by="v"),
}
Epochs = list[list[list[Row]]]
"""For each epoch its batches."""

TIMES = st.integers(-8, 12)


def rows_with(
    keys: Sequence[str | None], parts: Sequence[int | None], times: st.SearchStrategy[int] = TIMES
) -> st.SearchStrategy[Row]:
    return st.fixed_dictionaries(
        {
            "k": st.sampled_from(keys),
            "part": st.sampled_from(parts),
            "v": st.integers(-5, 5) | st.none(),
            "s": st.sampled_from(["", "x", "é", None]),
            "at": times | times | times | st.none(),
        }
    )


def epochs_at_the_ends(keys: Sequence[str | None], parts: Sequence[int | None]) -> st.SearchStrategy[Epochs]:
    """Epochs whose rows lie near the ends of 64 bits."""
    rows = rows_with(keys, parts, ENDS_OF_INT64)
    return st.lists(st.lists(st.lists(rows, max_size=6), max_size=2), min_size=1, max_size=5)


def epochs_of(row: st.SearchStrategy[Row]) -> st.SearchStrategy[Epochs]:
    """Epochs whose rows lie around a time that goes on from epoch to epoch, or stands still."""
    cuts = st.lists(st.lists(st.lists(row, max_size=6), max_size=3), min_size=1, max_size=8)
    return st.builds(paced, cuts, st.sampled_from([0, 4, 9]))


def paced(cut: Epochs, pace_us: int) -> Epochs:
    return [
        [[moved(row, number * pace_us) for row in batch] for batch in batches] for number, batches in enumerate(cut)
    ]


def moved(row: Row, by_us: int) -> Row:
    return row if row["at"] is None else {**row, "at": row["at"] + by_us}


DELAYS = st.sampled_from([0, 3, 12, 200])
SHARDS = (Shard(0), Shard(1))
STORES = count()


def expected(rows: list[Row]) -> Row:
    """What `AGGREGATES` say of rows."""
    values = [row["v"] for row in rows if row["v"] is not None]
    texts = [row["s"] for row in rows if row["s"] is not None]
    return {
        "rows": len(rows),
        "values": len(values),
        "total": sum(values) if values else None,
        "least": min(texts, key=str.encode, default=None),
        "mean": pytest.approx(sum(values) / len(values)) if values else None,
        "opening": edge(rows, "v", "at", min),
        "closing": edge(rows, "s", "v", max),
    }


def edge(rows: list[Row], column: str, by: str, choose: Callable[..., Any]) -> Any:
    usable = [row for row in rows if row[column] is not None and row[by] is not None]
    return choose(usable, key=lambda row: (row[by], row[column]))[column] if usable else None


Key = tuple[Any, ...]
Table = dict[Key, Row]
"""Rows by key and window start."""


class Oracle(Protocol):
    """Windows in Python."""

    def epoch(self, rows: Iterable[Row], watermark_us: int | None) -> tuple[list[Row], Table]:
        """Take in the rows of an epoch. Which were late, and which windows closed; `watermark_us` is that before it."""
        ...

    def open(self) -> Table:
        """The windows that are not closed."""
        ...


@dataclass
class FixedWindows:
    """Tumbling and hopping ones."""

    window: FixedWindow
    members: dict[Key, list[Row]] = field(default_factory=lambda: defaultdict(list))

    def epoch(self, rows: Iterable[Row], watermark_us: int | None) -> tuple[list[Row], Table]:
        late = []
        for row in rows:
            starts = [start for start in self.starts(row["at"]) if not self._is_closed(start, watermark_us)]
            for start in starts:
                self.members[row["k"], row["part"], start].append(row)
            if not starts:
                late.append(row)
        closed = {key: self.members.pop(key) for key in list(self.members) if self._is_closed(key[-1], watermark_us)}
        return late, self._table(closed)

    def open(self) -> Table:
        return self._table(self.members)

    def starts(self, time: int | None) -> list[int]:
        """Of the windows that a row of this time is in."""
        if time is None or is_out_of_range(time):
            return []
        step = self.window.slide_us if isinstance(self.window, Hopping) else self.window.size_us
        last = time - (time - self.window.offset_us) % step
        return list(range(last, time - self.window.size_us, -step))

    def _is_closed(self, start: int, watermark_us: int | None) -> bool:
        return watermark_us is not None and start + self.window.size_us <= watermark_us

    def _table(self, members: Mapping[Key, list[Row]]) -> Table:
        return {key: {"window_end": key[-1] + self.window.size_us, **expected(rows)} for key, rows in members.items()}


@dataclass
class Sessions:
    """Sessions: rows in order of time, cut where more than a gap lies between two."""

    window: Session
    sessions: dict[Key, list[list[Row]]] = field(default_factory=lambda: defaultdict(list))

    def epoch(self, rows: Iterable[Row], watermark_us: int | None) -> tuple[list[Row], Table]:
        gap, late, new = self.window.gap_us, [], defaultdict[Key, list[Row]](list)
        for row in rows:
            time = row["at"]
            if time is None or is_out_of_range(time) or (watermark_us is not None and time + gap <= watermark_us):
                late.append(row)
            else:
                new[row["k"], row["part"]].append(row)
        closed: Table = {}
        for key in {*self.sessions, *new}:
            over = [each for each in self.sessions[key] if watermark_us is not None and self._end(each) < watermark_us]
            still = [row for each in self.sessions[key] if each not in over for row in each]
            self.sessions[key] = self._cut([*still, *new[key]])
            closed |= self._table({key: over})
        return late, closed

    def open(self) -> Table:
        return self._table(self.sessions)

    def _cut(self, rows: list[Row]) -> list[list[Row]]:
        sessions: list[list[Row]] = []
        for row in sorted(rows, key=lambda row: row["at"]):
            if sessions and row["at"] - sessions[-1][-1]["at"] <= self.window.gap_us:
                sessions[-1].append(row)
            else:
                sessions.append([row])
        return sessions

    def _end(self, rows: list[Row]) -> int:
        end: int = rows[-1]["at"] + self.window.gap_us
        return end

    def _table(self, sessions: Mapping[Key, list[list[Row]]]) -> Table:
        return {
            (*key, rows[0]["at"]): {"window_end": self._end(rows), **expected(rows)}
            for key, its_sessions in sessions.items()
            for rows in its_sessions
        }


def oracle_of(window: FixedWindow | Session) -> Oracle:
    return Sessions(window) if isinstance(window, Session) else FixedWindows(window)


def by_window(rows: Sequence[Row]) -> Table:
    found = {
        (row["k"], row["part"], row["window_start"]): {
            name: value for name, value in row.items() if name not in ("k", "part", "window_start")
        }
        for row in rows
    }
    assert len(found) == len(rows), "a window comes once"
    return found


def replayed(table: Table, changes: Iterable[Row]) -> Table:
    """The table after the changes, each of which must fit what is there."""
    table = dict(table)
    for change in changes:
        row = dict(change)
        kind = row.pop("_change_type")
        ((key, values),) = by_window([row]).items()
        if kind in {"update_preimage", "delete"}:
            assert table.pop(key) == values, "each pre-image was in the table"
        else:
            assert key not in table
            table[key] = values
    return table


def agree(stream: Stream, oracle: Oracle, cut: Epochs) -> None:
    """Every epoch, and the end of the stream, gives what the oracle says."""
    early = not stream.operator.pipeline.appends
    closed: Table = {}
    table: Table = {}
    for batches in (*cut, None):
        rows = [row for batch in batches or () for row in batch]
        late_before, watermark_us = len(stream.late), stream.watermark_us
        if batches is None:
            changes = stream.flush()
            watermark_us = stream.watermark_us
        else:
            changes = stream.epoch(*(table_of(batch, SCHEMA) for batch in batches))
        late, closing = oracle.epoch(rows, watermark_us)
        assert sorted(stream.late[late_before:], key=by_columns) == sorted(late, key=by_columns)
        assert not closing.keys() & closed.keys(), "a window closes once"
        closed |= closing
        if early:
            table = replayed(table, changes)
            assert table == closed | oracle.open()
            assert by_window(stream.table()) == table, "the change log leads to the table"
        else:
            assert by_window(changes) == closing
    assert not oracle.open()


def by_columns(row: Row) -> str:
    return repr(sorted(row.items()))


def stream_of(window: FixedWindow | Session, early: bool, delay_us: int, distinct: int) -> Stream:
    operator = windowed(window, AGGREGATES, SCHEMA, KEYS, early=early)
    return Stream(operator, delay_us, distinct)


def on_engine(stream: Stream, tasks: Sequence[tuple[Shard, ...]], memory_bytes: int) -> Stream:
    """A stream like this one on the real engine."""
    return Stream.on_engine(stream.operator, stream.delay_us, stream.distinct, tasks, memory_bytes)


def agree_however_cut(window: FixedWindow | Session, early: bool, rows: list[Row], places: Iterable[int]) -> None:
    """Rows in order are never late, and make the same table cut at these places as in one epoch."""
    tables = []
    for cut in (cut_at(in_order(rows), places), cut_at(in_order(rows), ())):
        stream = stream_of(window, early, 0, 1000)
        agree(stream, oracle_of(window), cut)
        assert stream.late == []
        tables.append(by_window(stream.table()))
    assert tables[0] == tables[1]


def in_order(rows: list[Row]) -> list[Row]:
    """Rows that nothing makes late: by event time, and each has one."""
    return sorted((row for row in rows if row["at"] is not None), key=lambda row: row["at"])


def cut_at(rows: list[Row], places: Iterable[int]) -> Epochs:
    """The rows in epochs of one batch each."""
    edges = [0, *sorted({min(place, len(rows)) for place in places}), len(rows)]
    return [[rows[first:last]] for first, last in pairwise(edges)]
