"""What a store over fsspec asks of a server: one request for each verb, sent once, and an unambiguous outcome.

Each protocol implements `StoreCalls` in a module of its own. There is what it creates with, the one thing that the
whole project rests on: a condition that the server checks, or a rename that refuses to overwrite.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

CONNECT_S = 5.0
SILENCE_S = 15.0
"""For each part of a response; `deadline_s` is for all of it."""
CONNECTIONS_MAX = 32
_PATIENCE_S = 30
_BYTES_PER_S_MIN = 1024**2
"""The minimum throughput of a connection: a slower one is too slow for a stream."""


def deadline_s(size: int) -> float:
    """How long a request may take that carries `size` bytes."""
    return _PATIENCE_S + size / _BYTES_PER_S_MIN


class Outcome(Enum):
    """What a refusal means to the protocol above."""

    EXISTS = auto()
    """The condition of a create failed: the object is there."""
    MISSING = auto()
    """There is no such object."""
    PAST_END = auto()
    """The range begins where the object has ended."""
    NEVER = auto()
    """It will never work as it is set up."""
    UNKNOWN = auto()
    """Not done, or no reply came and nobody knows: try again."""


class Refusal(Exception):  # noqa: N818  (a response to the caller, who decides which error the user sees)
    """The server did not do it. `reason` is its code, `text` is for people, `advice` what to do if known.

    None of them contains a secret.
    """

    def __init__(self, outcome: Outcome, reason: str, text: str = "", advice: str = "") -> None:
        super().__init__(outcome, reason, text, advice)
        self.outcome = outcome
        self.reason = reason
        self.text = text
        self.advice = advice


@dataclass(frozen=True, slots=True)
class Head:
    """An object's size in bytes, and when it was written: milliseconds since the Unix epoch by the server's clock."""

    size: int
    modified_ms: int


class StoreCalls(Protocol):
    """Requests for the objects of one bucket, container or cluster, by their path in it.

    Every method raises `Refusal`, and each of its requests ends within `deadline_s`. Nothing is cached, and no write is
    sent twice. A missing bucket is `Outcome.NEVER` to all that write or list.

    `Outcome.MISSING`, `Outcome.EXISTS` and success need the server's own word: what stands before it may send the same
    status by itself.
    """

    @property
    def server(self) -> str:
        """What people call it, to begin a sentence."""
        ...

    def create(self, path: str, data: bytes | memoryview) -> None:
        """Create the object, whole and durable, or raise `Outcome.EXISTS` and leave the one there untouched.

        Exactly one of any number of callers at once succeeds.
        """
        ...

    def replace(self, path: str, data: bytes | memoryview) -> None:
        """Create or overwrite the object: a reader sees all of the old one or all of the new one."""
        ...

    def read(self, path: str, start: int | None = None, until: int | None = None) -> bytes:
        """The bytes of an object: all, or `[start, until)`. Raises `Outcome.MISSING` and `Outcome.PAST_END`."""
        ...

    def head(self, path: str) -> Head:
        """Raises `Outcome.MISSING`, for a folder too."""
        ...

    def delete(self, path: str) -> None:
        """Remove the object. `Outcome.MISSING` may be raised or not. A folder with objects is left alone."""
        ...

    def names(self, folder: str, after: str) -> Iterator[str]:
        """The paths of all objects below a folder (empty: all there are).

        Those that do not sort after `after` may be left out. Raises unless it is all of them.
        """
        ...

    def folders(self, folder: str) -> Iterator[str]:
        """The paths of the folders right below a folder."""
        ...

    def discard_leftovers(self, folder: str, before_ms: int) -> int:
        """Remove what interrupted creates left below a folder before a time by the server's clock; how many it were."""
        ...
