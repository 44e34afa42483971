"""Rows expire by a bound: no file is touched, only less of it is shown."""

from dataclasses import replace

from dagster_ckpt.hash_range import HASH_MAX, HashRange
from dagster_ckpt.lsm.runs.run import Run
from dagster_ckpt.lsm.runs.view import EVERYTHING, View
from dagster_ckpt.protocol.manifest.manifest import RunRef, SortKind, StateTableSpec, TimeRange

_SORT_VALUE_OF_ZERO = 2**63


def sort_value_of(time_us: int) -> int:
    """What a run that is sorted by time has in place of a hash: times before 1970 come first."""
    return time_us + _SORT_VALUE_OF_ZERO


def expire(ref: RunRef, spec: StateTableSpec, since_us: int) -> RunRef | None:
    """The reference without rows whose time is before `since_us`; None: none is left.

    The time of a key never decreases, and a tombstone has the time of the row that it hides. So where a row or a
    tombstone has expired, all older versions of its key have too.
    """
    assert ref.times is not None, f"a run of a table with times has none. file={ref.name}"
    if ref.times.greatest_us < since_us:
        return None
    if spec.sort is SortKind.TIME:
        lo = max(ref.clip.lo, sort_value_of(since_us))
        return replace(ref, clip=HashRange(lo, ref.clip.hi)) if lo <= ref.clip.hi else None
    return replace(ref, times=TimeRange(max(ref.times.least_us, since_us), ref.times.greatest_us))


def view_since(run: Run, spec: StateTableSpec, since_us: int | None, shown: tuple[HashRange, ...] = EVERYTHING) -> View:
    """The view of a run without rows whose time is before `since_us`."""
    if since_us is None:
        return View(run, shown)
    if spec.sort is SortKind.TIME:
        return View(run, _from(shown, sort_value_of(since_us)))
    return View(run, shown, since_us, spec.time)


def view_of_ref(
    run: Run, spec: StateTableSpec, ref: RunRef, shown: tuple[HashRange, ...], since_us: int | None
) -> View:
    """The view of a run as its reference shows it, where rows before `since_us` have expired since."""
    if ref.times is None or spec.sort is SortKind.TIME:
        return view_since(run, spec, since_us, shown)
    return view_since(run, spec, ref.times.least_us if since_us is None else max(ref.times.least_us, since_us), shown)


def _from(shown: tuple[HashRange, ...], lo: int) -> tuple[HashRange, ...]:
    if lo > HASH_MAX:
        return ()
    return tuple(HashRange(max(each.lo, lo), each.hi) for each in shown if each.hi >= lo)
