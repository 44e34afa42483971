"""Process functions over any epochs, batches and disorder, against loops over lists.

`Silence` is the example of `docs/process.md`, as the page has it: timers, and many rows for a key. `Distinct` keeps
one row and many rows for a key, which expire. `Chains` has timers that set and take back others. Each epoch begins with
an operator built again; on the real engine it is also worked twice, as after a crash.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.operators.process import (
    KeyedState,
    ListState,
    ProcessContext,
    ProcessFunction,
    StateKind,
    ValueState,
)
from dagster_ckpt.testing import ProcessKit
from tests.unit.operators.process_page import code_of_the_page
from tests.unit.operators.process_streams import TIME, ProcessStream, plain
from tests.worlds.examples import examples

AFTER = 10
SILENCE: ProcessFunction = code_of_the_page()["Silence"](timedelta(microseconds=AFTER))
READINGS = pa.schema([("sensor", pa.string()), ("at", TIME)])
EVENTS = pa.schema([("k", pa.string()), ("id", pa.int64()), ("at", TIME)])

Row = tuple[Any, ...]
Epochs = list[list[list[Row]]]

TIMES = st.integers(0, 40) | st.none()
KEYS = st.sampled_from(["a", "b", None])
DELAYS = st.sampled_from([0, 3, 8])
MEMORY = st.sampled_from([1, 1 << 20])


def epochs_of(row: st.SearchStrategy[Row]) -> st.SearchStrategy[Epochs]:
    return st.lists(st.lists(st.lists(row, min_size=1, max_size=6), max_size=3), max_size=6)


def table_of(batch: Iterable[Row], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*batch, strict=True))
    return pa.table([pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def accepted(epochs: Epochs, delay_us: int) -> Iterator[tuple[int | None, list[Row]]]:
    """Of each epoch its watermark and the rows that are not late; the time of a row is its last value."""
    watermark: int | None = None
    for batches in epochs:
        rows = [row for batch in batches for row in batch]
        yield watermark, [row for row in rows if row[-1] is None or watermark is None or row[-1] >= watermark]
        times = [row[-1] - delay_us for row in rows if row[-1] is not None]
        watermark = max([*times, *([] if watermark is None else [watermark])], default=None)


def greatest(epochs: Epochs) -> int | None:
    return max(
        (row[-1] for batches in epochs for batch in batches for row in batch if row[-1] is not None), default=None
    )


def alerts(readings: list[Row]) -> set[Row]:
    """All that there will ever be, by the readings alone."""
    timed = [(sensor, at) for sensor, at in readings if at is not None]
    return {
        (sensor, at + AFTER)
        for sensor, at in timed
        if not any(other == sensor and at < later < at + AFTER for other, later in timed)
    }


def silences(epochs: Epochs, delay_us: int) -> list[set[Row]]:
    """The alerts of each epoch, and of a flush: each comes as soon as the watermark has reached it."""
    seen = list(accepted(epochs, delay_us))
    watermarks = [watermark for watermark, _ in seen]
    newest = greatest(epochs)
    last = None if newest is None else newest + AFTER
    left = alerts([row for _, rows in seen for row in rows])
    found = []
    for watermark in [*watermarks, last]:
        due = {alert for alert in left if watermark is not None and alert[1] <= watermark}
        found.append(due)
        left -= due
    return found


def as_alerts(made: list[dict[str, Any]]) -> set[Row]:
    rows = [(row["sensor"], row["silent_at"]) for row in made]
    assert len(set(rows)) == len(rows), "no alert comes twice"
    return set(rows)


@examples(60, 24)
@given(epochs_of(st.tuples(KEYS, TIMES)), DELAYS, MEMORY)
def test_silent_sensors_are_those_of_a_list(epochs: Epochs, delay_us: int, memory_bytes: int) -> None:
    stream = ProcessStream(SILENCE, delay_us=delay_us, memory_bytes=memory_bytes, keys=("sensor",), schema=READINGS)
    found = [as_alerts(stream.epoch(*(table_of(batch, READINGS) for batch in batches))) for batches in epochs]
    if (newest := greatest(epochs)) is not None:
        stream.watermark_us = newest + AFTER
    found.append(as_alerts(stream.epoch()))
    assert found == silences(epochs, delay_us)
    assert [name for name, table in stream.state.tables.items() if table.rows] == [], "nothing is kept for nothing"


@examples(12, 5)
@given(epochs_of(st.tuples(KEYS, TIMES)), DELAYS, st.sampled_from([1, 2, 8]), st.sampled_from([1 << 12, 1 << 26]))
def test_the_same_on_the_real_engine(epochs: Epochs, delay_us: int, shards: int, memory_limit: int) -> None:
    delay = None if delay_us == 0 else timedelta(milliseconds=delay_us)
    in_ms = [[[(key, at and at * 1_000) for key, at in batch] for batch in batches] for batches in epochs]
    function = type(SILENCE)(timedelta(milliseconds=AFTER))  # type: ignore[call-arg]
    kit = ProcessKit(
        function, READINGS, keys=["sensor"], event_time="at", delay=delay, shards=shards, memory_limit=memory_limit
    )
    made = [plain(kit.epoch(*(table_of(batch, READINGS) for batch in batches))) for batches in in_ms]
    made.append(plain(kit.flush()))
    found = [{(sensor, at // 1_000) for sensor, at in as_alerts(rows)} for rows in made]
    assert found == silences(epochs, delay_us)
    assert (kit.state("readings").num_rows, kit.timers().num_rows) == (0, 0)


@examples(30, 12)
@given(st.lists(st.tuples(KEYS, TIMES), max_size=12), st.lists(st.integers(0, 12), max_size=4))
def test_where_nothing_is_late_it_does_not_matter_how_rows_are_cut_into_epochs(
    readings: list[Row], cuts: list[int]
) -> None:
    cuts = sorted(min(cut, len(readings)) for cut in cuts)
    parts = [readings[start:end] for start, end in zip([0, *cuts], [*cuts, len(readings)], strict=True)]
    epochs = [[part] if part else [] for part in parts]
    stream = ProcessStream(SILENCE, delay_us=50, keys=("sensor",), schema=READINGS)
    found = [as_alerts(stream.epoch(*(table_of(batch, READINGS) for batch in batches))) for batches in epochs]
    if (newest := greatest(epochs)) is not None:
        stream.watermark_us = newest + AFTER
    found.append(as_alerts(stream.epoch()))
    assert set().union(*found) == alerts(readings)


class Distinct(ProcessFunction):
    """Each id of a key when it is first seen, with a running count and sum of the ids of its key in the state."""

    output = pa.schema([("k", pa.string()), ("id", pa.int64())])
    state: ClassVar[dict[str, StateKind]] = {
        "ids": ListState(pa.schema([("id", pa.int64())])),
        "totals": ValueState(pa.schema([("n", pa.int64()), ("total", pa.int64())])),
    }

    def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
        pairs = rows.group_by(["k", "id"]).aggregate([])
        known = state.list("ids").get(pairs)
        again = known["_key"].filter(pc.equal(known["id"], pairs["id"].take(known["_key"])))
        is_known = np.zeros(pairs.num_rows, dtype=np.bool_)
        is_known[again.to_numpy()] = True
        new = pairs.filter(pa.array(~is_known)).select(["k", "id"])
        state.list("ids").append(new)
        more = new.group_by("k").aggregate([("id", "count"), ("id", "sum")])
        before = state.value("totals").get(more)
        n = pc.add(pc.fill_null(before["n"], 0), more["id_count"])
        total = pc.add(pc.fill_null(before["total"], 0), more["id_sum"])
        state.value("totals").put(pa.table({"k": more["k"], "n": n, "total": total}))
        return new


@dataclass
class Remembered:
    """What plain Python keeps of a key."""

    ids: set[int] = field(default_factory=set)
    last: int | None = None


def distinct(epochs: Epochs, delay_us: int, ttl_us: int | None) -> tuple[list[set[Row]], dict[Any, Remembered]]:
    """The new ids of each epoch, and what is remembered at the end."""
    kept: dict[Any, Remembered] = defaultdict(Remembered)
    found = []
    for watermark, rows in accepted(epochs, delay_us):
        for key, one in list(kept.items()):
            if watermark is not None and ttl_us is not None:
                one.last = watermark if one.last is None else one.last
                if one.last + ttl_us <= watermark:
                    del kept[key]
        new = set()
        for key, id_, at in rows:
            one = kept[key]
            if id_ not in one.ids:
                new.add((key, id_))
            one.ids.add(id_)
            times = [time for time in (one.last, at, watermark) if time is not None]
            one.last = max(times, default=None)
        found.append(new)
    return found, kept


EVENT_EPOCHS = epochs_of(st.tuples(KEYS, st.integers(1, 4), TIMES))
TTLS = st.sampled_from([None, 1, 5, 12])


@examples(60, 24)
@given(EVENT_EPOCHS, DELAYS, TTLS, MEMORY)
def test_ids_are_distinct_and_expire_as_in_a_dict(
    epochs: Epochs, delay_us: int, ttl_us: int | None, memory_bytes: int
) -> None:
    stream = ProcessStream(
        Distinct(), delay_us=delay_us, memory_bytes=memory_bytes, expire_after_us=ttl_us, schema=EVENTS
    )
    found = []
    for batches in epochs:
        made = [(row["k"], row["id"]) for row in stream.epoch(*(table_of(batch, EVENTS) for batch in batches))]
        assert len(set(made)) == len(made), "no id comes twice"
        found.append(set(made))
    expected, kept = distinct(epochs, delay_us, ttl_us)
    assert found == expected
    assert {row["k"]: (row["n"], row["total"]) for row in stream.table("state_totals")} == totals(kept)
    assert sorted((row["k"] or "", row["id"]) for row in stream.table("state_ids")) == sorted(
        (key or "", id_) for key, one in kept.items() for id_ in one.ids
    )


@examples(10, 4)
@given(EVENT_EPOCHS, TTLS, st.sampled_from([1, 4]), st.sampled_from([1 << 12, 1 << 26]))
def test_the_same_of_ids_on_the_real_engine(epochs: Epochs, ttl: int | None, shards: int, memory_limit: int) -> None:
    in_ms = [[[(k, i, at and at * 1_000) for k, i, at in batch] for batch in batches] for batches in epochs]
    kit = ProcessKit(
        Distinct(),
        EVENTS,
        keys=["k"],
        event_time="at",
        expire_after=None if ttl is None else timedelta(milliseconds=ttl),
        shards=shards,
        memory_limit=memory_limit,
    )
    found = [kit.epoch(*(table_of(batch, EVENTS) for batch in batches)).to_pylist() for batches in in_ms]
    expected, kept = distinct(epochs, 0, ttl)
    assert [{(row["k"], row["id"]) for row in rows} for rows in found] == expected
    assert {row["k"]: (row["n"], row["total"]) for row in kit.state("totals").to_pylist()} == totals(kept)
    assert kit.state("ids").num_rows == sum(len(one.ids) for one in kept.values())


def totals(kept: dict[Any, Remembered]) -> dict[Any, tuple[int, int]]:
    return {key: (len(one.ids), sum(one.ids)) for key, one in kept.items()}


@dataclass(frozen=True)
class Chains(ProcessFunction):
    """A timer when each row says; a timer says what its key has counted so far, counts itself, sets and takes back.

    What it sets and takes back follows from its time alone. Times are counted in units of `us`.
    """

    us: int = 1

    output = pa.schema([("k", pa.string()), ("at", pa.int64()), ("found", pa.int64())])
    state: ClassVar[dict[str, StateKind]] = {"n": ValueState(pa.schema([("n", pa.int64())]))}
    timers_within = timedelta(milliseconds=40)

    def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> None:
        state.timers.set(rows, pc.add(rows["at"], pc.multiply(rows["id"], 7 * self.us).cast(pa.duration("us"))))
        keys = rows.group_by("k").aggregate([])
        state.value("n").put(pa.table({"k": keys["k"], "n": pa.array([0] * keys.num_rows, pa.int64())}))

    def on_watermark(self, timers: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
        at = timers["_time"].cast(pa.int64()).to_numpy() // self.us
        for wanted, by, verb in chained(at):
            times = pa.array((at + by) * self.us, mask=~wanted).cast(TIME)
            (state.timers.set if verb else state.timers.clear)(timers, times)
        found = state.value("n").get(timers)["n"]
        state.value("n").put(pa.table({"k": timers["k"], "n": pc.add(pc.fill_null(found, 0), 1)}))
        return pa.table([timers["k"], pa.array(at), found], schema=self.output)


def chained(at: Any) -> list[tuple[Any, int, bool]]:
    """For which times of timers one so much later is set (True), or taken back."""
    is_early = at < 80
    return [(is_early & (at % 3 == 0), 4, True), (at % 4 == 1, 7, False), (is_early & (at % 5 == 2), 1, True)]


@dataclass
class OneByOne:
    """The same as a loop: each timer is worked alone, in order of time."""

    ttl_us: float
    timers: set[tuple[Any, int]] = field(default_factory=set)
    counts: dict[Any, int] = field(default_factory=dict)
    ends: dict[Any, float] = field(default_factory=dict)
    told: list[Row] = field(default_factory=list)

    def reach(self, watermark: int) -> None:
        while due := [timer for timer in self.timers if timer[1] <= watermark]:
            self.fire(*min(due, key=lambda timer: (timer[1], str(timer[0]))))
        self.forget(watermark)

    def fire(self, key: Any, at: int) -> None:
        self.timers.remove((key, at))
        self.forget(at)
        self.told.append((key, at, self.counts.get(key)))
        self.counts[key] = self.counts.get(key, 0) + 1
        self.ends.setdefault(key, at + self.ttl_us)
        for wanted, by, verb in chained(np.array([at])):
            if wanted[0]:
                (self.timers.add if verb else self.timers.discard)((key, at + by))

    def forget(self, until: int) -> None:
        for key in [key for key, end in self.ends.items() if end <= until]:
            del self.counts[key], self.ends[key]

    def take_in(self, key: Any, id_: int, at: int) -> None:
        self.timers.add((key, at + 7 * id_))
        self.counts[key] = 0
        self.ends[key] = max(self.ends.get(key, 0), at + self.ttl_us)


def one_by_one(epochs: Epochs, ttl_us: int | None, steps: Iterable[int]) -> list[Row]:
    """What all timers say; after the rows the watermark moves by these steps."""
    loop = OneByOne(float("inf") if ttl_us is None else ttl_us)
    for watermark, rows in accepted(epochs, 0):
        if watermark is not None:
            loop.reach(watermark)
        for row in rows:
            loop.take_in(*row)
    for watermark in steps:
        loop.reach(watermark)
    return loop.told


def of_each_key(told: Iterable[Row]) -> dict[Any, list[Row]]:
    found = defaultdict(list)
    for key, *rest in told:
        found[key].append(tuple(rest))
    return dict(found)


TIMED_EPOCHS = epochs_of(st.tuples(KEYS, st.integers(1, 4), st.integers(0, 40)))


@examples(60, 24)
@given(TIMED_EPOCHS, TTLS, st.sampled_from([1, 400, 1 << 20]), st.lists(st.integers(41, 119), max_size=4))
def test_timers_come_in_order_however_far_the_watermark_moves_at_once(
    epochs: Epochs, ttl_us: int | None, memory_bytes: int, stops: list[int]
) -> None:
    stream = ProcessStream(Chains(), memory_bytes=memory_bytes, expire_after_us=ttl_us, schema=EVENTS)
    steps = [*sorted(stops), 120]
    made = [row for batches in epochs for row in stream.epoch(*(table_of(batch, EVENTS) for batch in batches))]
    made += [row for watermark in steps for row in stream.at(watermark)]
    expected = of_each_key(one_by_one(epochs, ttl_us, range(40, 121)))
    assert of_each_key(tuple(row.values()) for row in made) == expected
    assert stream.table("timers") == []
    if ttl_us is not None:
        stream.at(200)
        assert [name for name, table in stream.state.tables.items() if table.rows] == [], "and all state is freed"


@examples(8, 3)
@given(TIMED_EPOCHS, st.sampled_from([None, 12]), st.sampled_from([1, 4]), st.sampled_from([64, 1 << 12, 1 << 26]))
def test_the_same_of_timers_on_the_real_engine(epochs: Epochs, ttl: int | None, shards: int, memory_limit: int) -> None:
    end = [[("end", 4, 200)]]
    kit = ProcessKit(
        Chains(us=1_000),
        EVENTS,
        keys="k",
        event_time="at",
        expire_after=None if ttl is None else timedelta(milliseconds=ttl),
        shards=shards,
        memory_limit=memory_limit,
    )
    in_ms = [[[(k, i, at * 1_000) for k, i, at in batch] for batch in batches] for batches in [*epochs, end, []]]
    made = [kit.epoch(*(table_of(batch, EVENTS) for batch in batches)) for batches in in_ms]
    told = [tuple(row.values()) for table in made for row in table.to_pylist()]
    assert of_each_key(told) == of_each_key(one_by_one(epochs, ttl, [200]))
