"""A keyed state table of one shard within one epoch: the runs of the epoch before, and this epoch's own words above."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import equal, flat, flatten, take
from dagster_ckpt.lsm.compaction import CompactionLimits, RunSize, choose
from dagster_ckpt.lsm.lookup import found_of, look_up, part_of
from dagster_ckpt.lsm.run import Run, merged, run_of, tombstones_of
from dagster_ckpt.lsm.table import Found, Hashes, Touched
from dagster_ckpt.lsm.view import View
from dagster_ckpt.protocol.manifest import StateTableSpec


@dataclass(frozen=True)
class _Image:
    """What n keys had before the epoch."""

    hashes: Hashes
    keys: pa.Table
    found: Found


class EpochTable:
    """Implements `lsm.table.StateTable`.

    Each put or delete is a small run in memory, newest first in `_words`; so this epoch's words and those of the epochs
    before are searched and merged by the same code. What was looked up below is kept (`_images`): it is what the change
    log needs.
    """

    def __init__(self, spec: StateTableSpec, open_base: Callable[[], list[View]], limits: CompactionLimits) -> None:
        """`open_base` opens the runs of the epoch before, newest first; called at most once, when first needed."""
        self._spec = spec
        self._open_base = open_base
        self._limits = limits
        self._words: list[Run] = []
        self._images: list[_Image] = []
        self._touched: Touched | None = None

    @cached_property
    def base(self) -> list[View]:
        """The runs of the epoch before, newest first."""
        return self._open_base()

    def get(self, hashes: Hashes, keys: pa.Table) -> Found:
        keys = flatten(keys)
        if not self._words:
            return self._before(hashes, keys)
        return self._found([View(word) for word in self._words], hashes, keys)

    def put(self, hashes: Hashes, rows: pa.Table) -> None:
        self._say(run_of(hashes, rows))

    def delete(self, hashes: Hashes, keys: pa.Table) -> None:
        self._say(tombstones_of(hashes, keys, self._spec.schema))

    def touched(self) -> Touched:
        if self._touched is None:
            words = self.words()
            self._touched = Touched(words.hashes, self._image_of(words), _live_of(words))
        return self._touched

    def words(self) -> Run:
        """The newest word of each key that was put or deleted, tombstones too."""
        if not self._words:
            return run_of(np.zeros(0, dtype=np.uint64), flatten(self._spec.schema.empty_table()))
        self._words = [merged(self._words, self._spec.keys)]
        return self._words[0]

    def _say(self, word: Run) -> None:
        if len(word):
            self._words.insert(0, word)
            self._touched = None
            sizes = [RunSize(len(each), each.table.nbytes, level=0) for each in self._words]
            if merge := choose(sizes, self._limits):
                self._words[: merge.runs] = [merged(self._words[: merge.runs], self._spec.keys)]

    def _before(self, hashes: Hashes, keys: pa.Table) -> Found:
        """What the keys had before the epoch, from the runs; remembered."""
        answer = look_up(self.base, (), hashes, keys, self._spec.schema)
        found = found_of(answer.parts, keys, self._spec.schema)
        self._images.append(_Image(hashes, keys, found))
        return found

    def _image_of(self, words: Run) -> Found:
        """What the keys of these words had before the epoch: what was already looked up is not looked up again."""
        hashes, keys = words.hashes, words.columns(self._spec.keys)
        for image in self._images:
            if _same_keys(hashes, keys, image):
                return image.found
        images = (
            [View(merged([self._run_of(image) for image in self._images], self._spec.keys))] if self._images else []
        )
        return self._found(images, hashes, keys)

    def _found(self, views: list[View], hashes: Hashes, keys: pa.Table) -> Found:
        """What the views say of the keys, and where they say nothing, what was there before the epoch."""
        answer = look_up(views, (), hashes, keys, self._spec.schema)
        parts = answer.parts
        if len(answer.unknown):
            before = self._before(hashes[answer.unknown], take(keys, answer.unknown))
            parts = [*parts, part_of(before, answer.unknown, self._spec.keys)]
        return found_of(parts, keys, self._spec.schema)

    def _run_of(self, image: _Image) -> Run:
        """An image as a run, so that it can be searched: a key without a row is a tombstone."""
        absent = np.flatnonzero(~image.found.present)
        present = np.flatnonzero(image.found.present)
        rows = run_of(image.hashes[present], image.found.rows)
        nothing = tombstones_of(image.hashes[absent], take(image.keys, absent), self._spec.schema)
        return merged([rows, nothing], self._spec.keys)


def _live_of(words: Run) -> Found:
    if words.tombstones is None:
        return Found(np.ones(len(words), dtype=np.bool_), words.columns())
    present = ~words.tombstones
    return Found(present, take(words.columns(), np.flatnonzero(present)))


def _same_keys(hashes: Hashes, keys: pa.Table, image: _Image) -> bool:
    if not np.array_equal(hashes, image.hashes):
        return False
    return all(
        equal(flat(mine), flat(image.keys.column(name))).all()
        for name, mine in zip(keys.column_names, keys.columns, strict=True)
    )
