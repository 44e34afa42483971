"""What the recovery sensor remembers between ticks: since when each stream has been unchanged, on the sensor's clock.

It is stored in the sensor's cursor as JSON. If it is lost, the sensor only waits once more. Dagster writes the whole
cursor with each tick, so it is kept small: at most 220 bytes per stream.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from dagster_ckpt.ids import Term
from dagster_ckpt.protocol.lease import Watch

TICK_MS_MAX = 10_000
"""The most that one tick counts. A laptop that slept for an hour has slept together with the writer it watches."""

_UUID = 6
"""So many letters tell a stream from the one that was in its folder before."""


_HOLDER = 8
"""So many letters tell a term's holder from that of the same number in a stream that was restored from a backup."""


@dataclass(frozen=True, slots=True)
class LeaseSeen:
    """One stream as last seen: its newest lease, its newest Dagster run, and since when each is unchanged.

    `run` is `run_text`. `start` is the counter of that run's heartbeat while it has not opened the stream. `version` is
    the newest manifest whose changes were reported, `pins_ms` the time of the newest pin; 0: unknown. `uuid` begins as
    the stream's does; "": unknown. `holder` begins as the Dagster run id of the lease's holder does, "": there is none.
    """

    term: int
    counter: int
    lease_since_ms: int
    run: str
    run_since_ms: int
    start: str = ""
    start_since_ms: int = 0
    version: int = 0
    pins_ms: int = 0
    uuid: str = ""
    holder: str = ""

    @property
    def lease(self) -> Watch:
        return Watch(Term(self.term), self.counter, self.lease_since_ms)

    def is_held_by(self, run_id: str | None) -> bool:
        """Whether that Dagster run may have held the lease: its term is used again in a stream that was restored."""
        return self.holder in ("", (run_id or "")[:_HOLDER])


@dataclass(frozen=True, slots=True)
class Memory:
    """Every stream as last seen. `watched_ms` is the sensor's clock: it stops while the sensor is off.

    `now_ms` is the wall clock at the last tick.
    """

    now_ms: int
    watched_ms: int
    streams: Mapping[str, LeaseSeen]

    @classmethod
    def read(cls, cursor: str | None, now_ms: int) -> "Memory":
        """The cursor's memory, one tick later; empty where there is no cursor, or one of another release."""
        try:
            written = json.loads(cursor or "")
            streams = {stream: _decode(seen) for stream, seen in written["streams"].items()}
            passed_ms = min(max(now_ms - int(written["now_ms"]), 0), TICK_MS_MAX)
            return cls(now_ms, int(written["watched_ms"]) + passed_ms, streams)
        except (ValueError, TypeError, KeyError, AttributeError):
            return cls(now_ms, 0, {})

    def write(self) -> str:
        """The cursor."""
        streams = {stream: _encode(seen) for stream, seen in self.streams.items()}
        return json.dumps(
            {"now_ms": self.now_ms, "watched_ms": self.watched_ms, "streams": streams}, separators=(",", ":")
        )

    def remember(self, stream: str, seen: LeaseSeen) -> "Memory":
        return replace(self, streams={**self.streams, stream: seen})

    def of(self, stream: str, uuid: str) -> LeaseSeen | None:
        """The stream as last seen. None where it has begun anew since then: its terms and beats begin at 1 again."""
        seen = self.streams.get(stream)
        return None if seen is not None and seen.uuid and seen.uuid != uuid[:_UUID] else seen

    def see(
        self, stream: str, uuid: str, lease: Watch, run: str, start: str = "", holder: str | None = None
    ) -> LeaseSeen:
        """The stream as seen now. `run` spells the state of its newest Dagster run, `start` its heartbeat.

        `holder` is the Dagster run id in the lease, None without one.

        A change of either resets its time.
        """
        before = self.of(stream, uuid)
        since_ms = before.run_since_ms if before is not None and before.run == run else self.watched_ms
        same_run = before is not None and before.run.partition(" ")[0] == run.partition(" ")[0]
        same_start = same_run and before is not None and before.start == start
        start_since_ms = before.start_since_ms if before is not None and same_start else self.watched_ms
        reported = (0, 0) if before is None else (before.version, before.pins_ms)
        beat = (lease.term, lease.counter, lease.since_ms)
        return LeaseSeen(*beat, run, since_ms, start, start_since_ms, *reported, uuid[:_UUID], (holder or "")[:_HOLDER])


def run_text(run_id: str, state: str, view: object) -> str:
    """A Dagster run as last seen, in few letters: another text where anything of `view` has changed."""
    return f"{run_id[:8]} {state} {sha256(f'{run_id} {view}'.encode()).hexdigest()[:8]}"


def _encode(seen: LeaseSeen) -> dict[str, object]:
    """What was seen, each with the time since when; without what is not there."""
    holder = (seen.holder,) if seen.holder else ()
    written = {
        "term": seen.term,
        "beat": (seen.counter, seen.lease_since_ms, *holder),
        "run": (seen.run, seen.run_since_ms),
    }
    start = {"start": (seen.start, seen.start_since_ms)} if seen.start else {}
    reported = {"version": seen.version, "pins_ms": seen.pins_ms}
    uuid = {"uuid": seen.uuid} if seen.uuid else {}
    return {**written, **start, **{name: number for name, number in reported.items() if number}, **uuid}


def _decode(written: Mapping[str, Any]) -> LeaseSeen:
    (counter, lease_since_ms, *holder), (run, run_since_ms) = written["beat"], written["run"]
    start, start_since_ms = written.get("start", ("", 0))
    return LeaseSeen(
        term=int(written["term"]),
        counter=int(counter),
        lease_since_ms=int(lease_since_ms),
        run=str(run),
        run_since_ms=int(run_since_ms),
        start=str(start),
        start_since_ms=int(start_since_ms),
        version=int(written.get("version", 0)),
        pins_ms=int(written.get("pins_ms", 0)),
        uuid=str(written.get("uuid", "")),
        holder=str(holder[0]) if holder else "",
    )
