"""Expiry of the state of keys without new rows."""

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flat, take
from dagster_ckpt.lsm.runs.deltas import select
from dagster_ckpt.lsm.table import Found, State
from dagster_ckpt.operators.process.due_timers import DueTimeline
from dagster_ckpt.operators.process.process_tables import EXPIRY, LAST, SEEN, entries
from dagster_ckpt.operators.process.user_state.call_keys import CallKeys
from dagster_ckpt.operators.shared.state_columns import hashes_in, micros
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec

_UNKNOWN = np.iinfo(np.int64).min
_NEVER = np.iinfo(np.int64).max
_AT_ONCE_US = -62_135_596_800_000_000
"""The year 1. While the time of a key is unknown, its entry is due as soon as there is a watermark."""


class Expiry:
    """A key expires `after_us` after its last row. A row without an event time counts as one at the watermark.

    `SEEN` has the time of the last row of each key; `EXPIRY` has an entry for each key, which is checked when it is due
    and put again if there were rows since. So a row costs one look-up and no entry, and expiry costs one scan.
    """

    def __init__(
        self, after_us: int, state: State, seen: StateTableSpec, expiry: StateTableSpec, bytes_max: int
    ) -> None:
        self._after_us = after_us
        self._seen = state.table(SEEN)
        self._schema = seen.schema
        self._keys = list(seen.keys)
        self._timeline = DueTimeline(state.timeline(EXPIRY), expiry, bytes_max)

    def record_rows(self, keys: CallKeys, times: pa.Array, watermark_us: int | None) -> None:
        """Record rows of these keys, with these event times."""
        floor = _UNKNOWN if watermark_us is None else watermark_us
        last_us = np.full(len(keys), floor)
        known = times.is_valid().to_numpy(zero_copy_only=False)
        np.maximum.at(last_us, keys.which[known], micros(times.drop_null()))
        found = self._seen.get(keys.hashes, keys.keys)
        before_us = np.full(len(keys), _UNKNOWN)
        before_us[found.present] = _micros_or_unknown(flat(found.rows.column(LAST)))
        is_new = ~found.present
        later = np.flatnonzero(is_new | (last_us > before_us))
        self._put_seen(keys, later, last_us[later], select(found, later))
        new = np.flatnonzero(is_new)
        self._check_at(keys, new, self._ends(last_us[new]))
        self._timeline.write()

    def record_timers(self, keys: CallKeys, times_us: Positions) -> None:
        """Record fired timers, one for each key: state that they put starts its time to live at the timer.

        Only for keys without an entry in `SEEN`: otherwise the key expires by its last row.
        """
        written = np.flatnonzero(keys.written)
        found = self._seen.get(keys.hashes[written], take(keys.keys, written))
        absent = np.flatnonzero(~found.present)
        new = written[absent]
        self._put_seen(keys, new, times_us[new], select(found, absent))
        self._check_at(keys, new, self._ends(times_us[new]))
        self._timeline.write()

    def expire_by(self, times_us: Positions, keys: CallKeys, forget: Callable[[CallKeys], None]) -> int:
        """Delete those of n keys that have expired by the time given for each; returns their number.

        Their entries in `EXPIRY` stay until they are due, and then have no effect.
        """
        found = self._seen.get(keys.hashes, keys.keys)
        known = np.flatnonzero(found.present)
        last_us = _micros_or_unknown(flat(found.rows.column(LAST)))
        has_ended = (last_us != _UNKNOWN) & (self._ends(last_us) <= times_us[known])
        self._release(keys, known[has_ended], found, forget)
        return int(has_ended.sum())

    def expire(self, watermark_us: int, forget: Callable[[CallKeys], None]) -> Iterator[int]:
        """Delete all keys that have expired at the watermark, in batches; yields the number in each."""
        for piece in self._timeline.due(watermark_us + 1):
            keys = CallKeys.of(hashes_in(piece), piece.select(self._keys))
            found = self._seen.get(keys.hashes, keys.keys)
            known = np.flatnonzero(found.present)
            last_us = _micros_or_unknown(flat(found.rows.column(LAST)))
            begins = np.flatnonzero(last_us == _UNKNOWN)
            last_us[begins] = watermark_us
            self._put_seen(keys, known[begins], last_us[begins], select(found, known[begins]))
            ends_us = self._ends(last_us)
            stays = ends_us > watermark_us
            self._check_at(keys, known[stays], ends_us[stays])
            self._release(keys, known[~stays], found, forget)
            yield int((~stays).sum())

    def _release(self, keys: CallKeys, which: Positions, found: Found, forget: Callable[[CallKeys], None]) -> None:
        if len(which):
            gone = take(keys.keys, which)
            forget(CallKeys.of(keys.hashes[which], gone))
            self._seen.delete(keys.hashes[which], gone, before=select(found, which))

    def _ends(self, last_us: Positions) -> Positions:
        """When these keys expire."""
        ends = np.where(last_us > _NEVER - self._after_us, _NEVER, last_us + self._after_us)
        return np.where(last_us == _UNKNOWN, _AT_ONCE_US, ends)

    def _put_seen(self, keys: CallKeys, which: Positions, last_us: Positions, before: Found) -> None:
        times = pa.array(last_us, mask=last_us == _UNKNOWN).view(self._schema.field(LAST).type)
        columns = [*take(keys.keys, which).columns, times]
        self._seen.put(keys.hashes[which], pa.Table.from_arrays(columns, schema=self._schema), before)

    def _check_at(self, keys: CallKeys, which: Positions, times_us: Positions) -> None:
        """Put entries to check these keys at these times."""
        its_keys, hashes = take(keys.keys, which), keys.hashes[which]
        self._timeline.put(hashes, entries(self._timeline.spec, times_us, hashes, its_keys))


def _micros_or_unknown(times: pa.Array) -> Positions:
    numbers: Positions = times.view(pa.int64()).fill_null(_UNKNOWN).to_numpy().copy()
    return numbers
