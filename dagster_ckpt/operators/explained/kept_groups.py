"""The state of aggregates, with and without windows, and of process functions."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from dagster_ckpt.operators.aggregates.aggregate import GROUPS, RunningAggregate
from dagster_ckpt.operators.aggregates.bag_table import BagTable
from dagster_ckpt.operators.aggregates.best_values import BestValues
from dagster_ckpt.operators.aggregates.distinct_table import DistinctTable
from dagster_ckpt.operators.aggregates.grouped_state import GroupedState
from dagster_ckpt.operators.aggregates.kinds.counts import LastTime
from dagster_ckpt.operators.aggregates.side_tables import SideTable
from dagster_ckpt.operators.explained.kept import (
    NUMBER_OF_KEYS,
    ONE_EPOCH,
    ONE_ROW,
    OPEN_WINDOWS,
    Bound,
    Kept,
    Limit,
    behind,
    expiring,
    for_each,
    grows_with,
    join_words,
    of_each,
    of_now,
)
from dagster_ckpt.operators.process.process_tables import EXPIRY, OUT, SEEN, TIMERS, size_table, state_table
from dagster_ckpt.operators.shared.time_to_live import EXPIRIES
from dagster_ckpt.operators.windows.session_aggregate import SessionAggregate
from dagster_ckpt.operators.windows.session_state import OPEN
from dagster_ckpt.operators.windows.window_aggregate import WindowAggregate
from dagster_ckpt.operators.windows.window_of_table import STARTS, WindowOfTable
from dagster_ckpt.operators.windows.windowed_state import ENDS, WINDOWS
from dagster_ckpt.protocol.manifest.manifest import Pipeline

_OF_PROCESS: Mapping[str, tuple[str, Limit]] = {
    TIMERS: ("the timers of each key", behind(0, "it")),
    OUT: ("the output of the function", ONE_EPOCH),
}
"""Tables of a process function. Its code is in no manifest, so all follows from the names of its tables."""


def of_aggregate(operator: RunningAggregate, of: str) -> Iterator[Kept]:
    """The tables of a running aggregate. `of` is what it has a row for, `key`; empty where all rows are one group."""
    ttl, updating = operator.ttl, operator.updating
    if ttl is not None:
        expiry = expiring(ttl.expire_after_us)
        limit = replace(expiry, text=f"{expiry.text}; a key without an event time stays")
    elif not of:
        limit = ONE_ROW
    else:
        limit = of_now("keys that have rows") if updating else NUMBER_OF_KEYS
    yield _group(GROUPS, operator.grouped, of, limit)
    if ttl is not None:
        yield Kept(EXPIRIES, f"the time to look{for_each(of)} whether it has expired", expiring(ttl.expire_after_us))
    for side in operator.sides:
        yield from _beside(side, of, updating=updating)


def of_windows(operator: WindowAggregate, of: str) -> Iterator[Kept]:
    """The tables of tumbling and hopping windows over rows that are only added."""
    grouped = operator.windowed.grouped
    if operator.options.early:
        yield _group(WINDOWS, grouped, _and(of, "window"), _without_end("windows", of))
    else:
        yield _group(WINDOWS, grouped, _and(of, "open window"), OPEN_WINDOWS)
        yield Kept(ENDS, "the ends of these windows", OPEN_WINDOWS)


def of_sessions(operator: SessionAggregate, of: str) -> Iterator[Kept]:
    """The tables of sessions."""
    grouped = operator.windowed.grouped
    open_ = Limit(Bound.WATERMARK, "sessions whose end the watermark has not passed")
    if operator.options.early:
        yield _group(WINDOWS, grouped, _and(of, "session"), _without_end("sessions", of))
        yield Kept(OPEN, "the bounds of open sessions", open_)
    else:
        yield _group(WINDOWS, grouped, _and(of, "open session"), open_)
        yield Kept(ENDS, "the ends of these sessions", open_)


def of_windows_of_table(operator: WindowOfTable, of: str) -> Iterator[Kept]:
    """The tables of windows over rows that come and go: those of an aggregate by key and window."""
    groups, early = operator.groups, operator.options.early
    for kept in of_aggregate(groups, _and(of, "window" if early else "open window")):
        if kept.limit.bound is Bound.EPOCH or (early and kept.table != GROUPS):
            yield kept
        elif not early:
            yield replace(kept, limit=OPEN_WINDOWS)
        else:
            now = of_now("windows that have rows") if groups.updating else _without_end("windows", of)
            yield replace(kept, limit=now)
    if not early:
        yield Kept(STARTS, "the starts of these windows", OPEN_WINDOWS)


def _group(table: str, grouped: GroupedState, of: str, limit: Limit) -> Kept:
    """The table with a row for each group."""
    kept = [one.keeps for one in grouped.accumulators if one != LastTime(None)]  # which is null
    if any(one.grows for one in kept):
        limit = replace(limit, text=f"{limit.text}; a row grows with its values")
    return Kept(table, f"one row{for_each(of)}: {join_words(list(dict.fromkeys(one.words for one in kept)))}", limit)


def _beside(side: SideTable, of: str, *, updating: bool) -> Iterable[Kept]:
    """The tables beside the row of a group."""
    limit = of_now("values that the input has") if updating else grows_with("the distinct values")
    match side:
        case DistinctTable():
            counts = ", with their counts" if side.values.weights else ""
            what = f"the distinct values of {side.count.column}{of_each(of)}{counts}"
            return [Kept(side.values.spec.name, what, limit)]
        case BestValues():
            columns, arrived, spec = side.best.columns, side.arrived.spec, side.values.spec
            more = " and order: when the first is taken back, the next one is known"
        case BagTable():
            columns, arrived, spec, more = side.results[0].columns, side.arrived.spec, side.spec, ""
        case _:
            raise AssertionError(f"no words for a {type(side).__name__}")
    values = f"the distinct values of {', '.join(dict.fromkeys(columns))}{of_each(of)}, with their counts{more}"
    return [Kept(arrived.name, "the values that came and went", ONE_EPOCH), Kept(spec.name, values, limit)]


def _and(of: str, window: str) -> str:
    return f"{of} and {window}" if of else window


def _without_end(what: str, of: str) -> Limit:
    return grows_with(f"the keys and their {what}" if of else f"the {what}")


def of_process(pipeline: Pipeline) -> Iterator[Kept]:
    """The tables of the states that the function declares, and of its timers."""
    after_us = pipeline.parameters["expire_after_us"]
    names = {spec.name for spec in pipeline.tables}
    for spec in pipeline.tables:
        if spec.name in _OF_PROCESS:
            yield Kept(spec.name, *_OF_PROCESS[spec.name])
        elif spec.name in (SEEN, EXPIRY):
            assert isinstance(after_us, int), "they are there for keys that expire"
            what = (
                "the newest event time of each key"
                if spec.name == SEEN
                else "the time to look for each key whether it has expired"
            )
            yield Kept(spec.name, what, expiring(after_us))
        elif spec.name.startswith(state_table("")):
            state = spec.name.removeprefix(state_table(""))
            is_list = size_table(state) in names
            what = f"state {state!r}: {'a list' if is_list else 'one value'} for each key"
            yield Kept(spec.name, what, _limit_of_process(after_us, Bound.ROWS if is_list else Bound.KEYS))
        elif spec.name.startswith(size_table("")):
            state = spec.name.removeprefix(size_table(""))
            yield Kept(
                spec.name, f"how long the list {state!r} of each key is", _limit_of_process(after_us, Bound.KEYS)
            )


def _limit_of_process(after_us: object, bound: Bound) -> Limit:
    if isinstance(after_us, int):
        return expiring(after_us)
    return Limit(bound, f"none, but for what the function deletes: grows with the {bound}")
