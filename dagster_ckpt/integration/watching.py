"""What the recovery sensor remembers from tick to tick: how long it has seen each stream unchanged, on its own clock.

It lives in the sensor's cursor as JSON. Losing it only makes the sensor wait once more.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

TICK_MS_MAX = 10_000
"""A tick never counts for more. A laptop that slept for an hour has slept together with the writer it watches."""


@dataclass(frozen=True, slots=True)
class Watch:
    """One stream as last seen.

    `silent_ms`: for how long its newest lease (`term`, `counter`) has stood still; `same_ms`: its newest run.
    """

    term: int = 0
    counter: int = 0
    silent_ms: int = 0
    run: str = ""
    same_ms: int = 0


@dataclass(frozen=True, slots=True)
class Memory:
    """Every stream as last seen, and when (milliseconds since the Unix epoch, the sensor's own clock)."""

    now_ms: int
    watches: Mapping[str, Watch]

    @classmethod
    def read(cls, cursor: str | None, now_ms: int) -> "Memory":
        """What a cursor holds; nothing where there is none, or one of another release."""
        try:
            written = json.loads(cursor or "")
            watches = {stream: Watch(**watch) for stream, watch in written["watches"].items()}
            return cls(int(written["now_ms"]), watches)
        except (ValueError, TypeError, KeyError, AttributeError):
            return cls(now_ms, {})

    def write(self) -> str:
        return json.dumps(
            {"now_ms": self.now_ms, "watches": {name: asdict(watch) for name, watch in self.watches.items()}}
        )

    def elapsed_ms(self, now_ms: int) -> int:
        return min(max(now_ms - self.now_ms, 0), TICK_MS_MAX)


def seen_lease(before: Watch, term: int, counter: int, elapsed_ms: int) -> Watch:
    """The watch after the newest lease was seen at this counter."""
    silent_ms = before.silent_ms + elapsed_ms if (before.term, before.counter) == (term, counter) else 0
    return replace(before, term=term, counter=counter, silent_ms=silent_ms)


def seen_run(before: Watch, run: str, elapsed_ms: int) -> Watch:
    """The watch after the newest run was seen; `run` is its id and all that was seen of it."""
    return replace(before, run=run, same_ms=before.same_ms + elapsed_ms if before.run == run else 0)
