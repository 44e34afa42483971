"""What an epoch says of keys, before and after it is written: their rows now, and what they had before."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dagster_ckpt.hash_range import HashRange
from dagster_ckpt.lsm.columns import Mask, Positions, stack, take
from dagster_ckpt.lsm.runs.before_images import images_of
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.lsm.runs.run import Run, kept, run_of
from dagster_ckpt.lsm.table import Found, Touched
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec


@dataclass(frozen=True)
class Word:
    """What was said of n distinct keys: a run of their rows, or tombstones, and what they had when it was said.

    `before` answers for the run's rows in their order; None: nobody has looked.
    """

    run: Run
    before: Found | None = None

    def __len__(self) -> int:
        return len(self.run)

    @property
    def nbytes(self) -> int:
        """What it holds in memory."""
        return self.run.nbytes + _bytes_of(self.before)


def one_word(words: Sequence[Word], keys: Sequence[str]) -> Word:
    """All that several words say, newest first, as one: of each key the newest row and the oldest before.

    At least one word. What a key had is known where all of them know it.
    """
    if len(words) == 1:
        return words[0]
    runs = [word.run for word in words]
    hashes = np.concatenate([run.hashes for run in runs])
    rows = stack([run.columns() for run in runs])
    groups = key_order(hashes, rows.select(list(keys)))
    newest = groups.order[groups.starts]
    tombstones: Mask | None = None
    if any(run.tombstones is not None for run in runs):
        each = [np.zeros(len(run), dtype=np.bool_) if run.tombstones is None else run.tombstones for run in runs]
        tombstones = np.concatenate(each)[newest]
    run = run_of(hashes[newest], take(rows, newest), tombstones)
    befores = [word.before for word in words if word.before is not None]
    if len(befores) < len(words):
        return Word(run)
    oldest = groups.order[np.append(groups.starts[1:], len(groups.order)) - 1]
    before = Found(np.concatenate([each.present for each in befores]), stack([each.rows for each in befores]))
    return Word(run, chosen(before, oldest))


def chosen(found: Found, asked: Positions) -> Found:
    """The answer for some of the keys, in this order."""
    present = np.take(found.present, asked)
    rows = np.cumsum(found.present) - 1
    return Found(present, take(found.rows, np.take(rows, asked[present])))


def changing(word: Word) -> Word:
    """The word without keys that had no row before and have none now; what they had must be known."""
    assert word.before is not None, "what the keys had before is not known"
    if word.run.tombstones is None:
        return word
    wanted = word.before.present | ~word.run.tombstones
    # A key that is left out had no row: the rows before are what they were.
    return Word(kept(word.run, wanted), Found(word.before.present[wanted], word.before.rows))


def touched_of(word: Word) -> Touched:
    """The keys of the word before and now; what they had must be known."""
    assert word.before is not None, "what the keys had before is not known"
    return Touched(word.run.hashes, word.before, now_of(word.run))


def now_of(run: Run) -> Found:
    """The rows of the run's keys, in its order: none for a tombstone."""
    if run.tombstones is None:
        return Found(np.ones(len(run), dtype=np.bool_), run.columns())
    present = ~run.tombstones
    return Found(present, take(run.columns(), np.flatnonzero(present)))


def sliced(word: Word, part: HashRange) -> Word:
    """What the word says of the keys with these hashes."""
    start, until = _places(word.run, part)
    before = word.before
    if before is not None:
        first, end = np.count_nonzero(before.present[:start]), np.count_nonzero(before.present[:until])
        before = Found(before.present[start:until], before.rows.slice(first, end - first))
    return Word(word.run.slice(start, until), before)


def said_by(run: Run, part: HashRange, spec: StateTableSpec) -> Word:
    """What a logged run says of the keys with these hashes."""
    piece = run.slice(*_places(run, part))
    return Word(piece, images_of(piece, spec.keys, spec.schema))


def _places(run: Run, part: HashRange) -> tuple[int, int]:
    if run.guard is not None:  # of a file that may lie far away, only the hashes near the two places are read
        return run.first_not_less(part.lo), run.first_not_less(part.hi + 1)
    start = int(np.searchsorted(run.hashes, np.uint64(part.lo), side="left"))
    return start, int(np.searchsorted(run.hashes, np.uint64(part.hi), side="right"))


def _bytes_of(found: Found | None) -> int:
    return 0 if found is None else int(found.rows.nbytes)
