"""What the recovery sensor remembers between ticks: since when each stream has been unchanged, on the sensor's clock.

It is stored in the sensor's cursor as JSON. If it is lost, the sensor only waits once more.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from dagster_ckpt.ids import Term
from dagster_ckpt.protocol.lease import Watch

TICK_MS_MAX = 10_000
"""The most that one tick counts. A laptop that slept for an hour has slept together with the writer it watches."""


@dataclass(frozen=True, slots=True)
class LeaseSeen:
    """One stream as last seen: its newest lease, its newest Dagster run, and since when each is unchanged.

    `start` is the heartbeat of that run while it has not opened the stream: the run and the heartbeat's counter.
    `version` is the newest manifest whose changes were reported, `pins_ms` the time of the newest pin; 0: unknown.
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

    @property
    def lease(self) -> Watch:
        return Watch(Term(self.term), self.counter, self.lease_since_ms)


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
            streams = {stream: LeaseSeen(**seen) for stream, seen in written["streams"].items()}
            passed_ms = min(max(now_ms - int(written["now_ms"]), 0), TICK_MS_MAX)
            return cls(now_ms, int(written["watched_ms"]) + passed_ms, streams)
        except (ValueError, TypeError, KeyError, AttributeError):
            return cls(now_ms, 0, {})

    def write(self) -> str:
        return json.dumps(asdict(self))

    def remember(self, stream: str, seen: LeaseSeen) -> "Memory":
        return replace(self, streams={**self.streams, stream: seen})

    def see(self, stream: str, lease: Watch, run: str, start: str = "") -> LeaseSeen:
        """The stream as seen now. `run` spells the state of its newest Dagster run, `start` that of its heartbeat.

        A change of either resets its time.
        """
        before = self.streams.get(stream)
        since_ms = before.run_since_ms if before is not None and before.run == run else self.watched_ms
        same_start = before is not None and before.start == start
        start_since_ms = before.start_since_ms if before is not None and same_start else self.watched_ms
        reported = (0, 0) if before is None else (before.version, before.pins_ms)
        return LeaseSeen(lease.term, lease.counter, lease.since_ms, run, since_ms, start, start_since_ms, *reported)
