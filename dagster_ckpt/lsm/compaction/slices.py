"""Where the next slice begins and ends, by the number of rows in each range.

The distribution of a file's rows is not known here: we assume that they are spread evenly from its least hash to its
greatest. That holds for hashes of keys; if the hash is a time, a slice may hold more rows or fewer.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil

from dagster_ckpt.hash_range import HashRange
from dagster_ckpt.lsm.compaction.levels import visible_hashes
from dagster_ckpt.protocol.manifest.manifest import RunRef

_GAP_SHARE = 1 / 8
"""Rows beneath no upper run stay where they are if they are at least this share of a slice."""

_EVEN_MAX = 3.5
"""The last few slices, at most this many, are made equal, so that none is tiny."""

_OVER_MAX = 1 / 4
"""How much larger than a slice the last one may be before it is split in two."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Hashes `lo` to `hi` of a shard whose hash range is `within`, and all of the shard's runs."""

    lo: int
    hi: int
    within: HashRange
    upper: Sequence[RunRef]
    bottom: Sequence[RunRef]


@dataclass(frozen=True, slots=True)
class Slice:
    """Hashes to merge, and about how many rows and bytes they have."""

    range: HashRange
    rows: float
    bytes: float


@dataclass(frozen=True, slots=True)
class _HashStretch:
    """Hashes `lo` to `hi` between which no run begins or ends, so that rows are spread evenly."""

    lo: int
    hi: int
    upper: bool
    bottom: RunRef | None
    rows: float
    bytes: float


def next_slice(stretches: Iterable[Stretch], rows: float) -> Slice | None:
    """The first slice of about `rows` rows in these adjacent stretches; None: nothing to merge.

    Many rows beneath no upper run stay where they are.
    """
    steps = _until(chain.from_iterable(map(_steps, stretches)), rows * _EVEN_MAX)
    steps = _up_to_gap(_from_first_upper(steps, rows * _GAP_SHARE), rows * _GAP_SHARE)
    if not steps:
        return None
    left = sum(step.rows for step in steps)
    if left < rows * _EVEN_MAX:
        rows = left / max(1, ceil(left / rows - _OVER_MAX))
    taken = bytes_ = 0.0
    end = steps[0].lo
    for step in steps:
        if taken + step.rows <= rows * (1 + 1e-9):
            taken, bytes_, end = taken + step.rows, bytes_ + step.bytes, step.hi
            continue
        width = step.hi - step.lo + 1
        hashes = int((rows - taken) / step.rows * width)
        # Rows of one time may be more than a slice, and cannot be split.
        if hashes or not taken:
            share = max(1, hashes) / width
            taken, bytes_, end = taken + share * step.rows, bytes_ + share * step.bytes, step.lo + max(1, hashes) - 1
        break
    return Slice(HashRange(steps[0].lo, end), taken, bytes_)


def rows_in(ref: RunRef, lo: int, hi: int) -> float:
    """About how many of the file's rows have a hash from `lo` to `hi`."""
    hashes = ref.hashes
    common = min(hi, hashes.hi) - max(lo, hashes.lo) + 1
    return ref.rows * common / (hashes.hi - hashes.lo + 1) if common > 0 else 0.0


def _steps(stretch: Stretch) -> Iterator[_HashStretch]:
    """A stretch in steps, ascending, without gaps."""
    pieces = [
        (max(lo, stretch.lo), min(hi, stretch.hi), ref, ref.hashes.hi - ref.hashes.lo + 1, is_upper)
        for is_upper, refs in ((True, stretch.upper), (False, stretch.bottom))
        for ref in refs
        for lo, hi in visible_hashes(ref, stretch.within)
        if lo <= stretch.hi and hi >= stretch.lo
    ]
    # At one place, ends come before beginnings.
    changes = [(hi + 1, -1, index) for index, (_, hi, *_) in enumerate(pieces)]
    changes += [(lo, 1, index) for index, (lo, *_) in enumerate(pieces)]
    lo, upper, rows, bytes_ = stretch.lo, 0, 0.0, 0.0
    bottom: RunRef | None = None
    for place, change, index in sorted(changes):
        if place > lo:
            yield _HashStretch(
                lo, place - 1, upper > 0, bottom, max(0.0, rows * (place - lo)), max(0.0, bytes_ * (place - lo))
            )
            lo = place
        _, _, ref, hashes, is_upper = pieces[index]
        rows += change * ref.rows / hashes
        bytes_ += change * ref.bytes / hashes
        if is_upper:
            upper += change
        else:
            bottom = ref if change > 0 else None
    if lo <= stretch.hi:
        yield _HashStretch(lo, stretch.hi, upper=False, bottom=None, rows=0.0, bytes=0.0)


def _until(steps: Iterable[_HashStretch], rows: float) -> list[_HashStretch]:
    """The first steps, until at least `rows` rows follow the first step with an upper run."""
    taken = []
    counted = 0.0
    upper = False
    for step in steps:
        taken.append(step)
        upper = upper or step.upper
        counted += step.rows if upper else 0.0
        if counted >= rows:
            break
    return taken


def _from_first_upper(steps: list[_HashStretch], gap_rows: float) -> list[_HashStretch]:
    """The steps without those before the first upper run, if these have many rows."""
    first = next((index for index, step in enumerate(steps) if step.upper), len(steps))
    # A bottom run is merged from its beginning, or its rest would be in two pieces.
    while 0 < first < len(steps) and steps[first].bottom is not None and steps[first - 1].bottom is steps[first].bottom:
        first -= 1
    skipped = sum(step.rows for step in steps[:first])
    return steps[first:] if skipped >= gap_rows or first == len(steps) else steps


def _up_to_gap(steps: list[_HashStretch], gap_rows: float) -> list[_HashStretch]:
    """The steps up to the first gap: `gap_rows` rows beneath no upper run."""
    begins, counted = 0, 0.0
    for index, step in enumerate(steps):
        if step.upper:
            begins, counted = index + 1, 0.0
            continue
        counted += step.rows
        if counted >= gap_rows and begins > 0:
            return steps[:begins]
    return steps
