"""Whether a stream fails over and over with the same error: pure, and counted where nothing can be lost.

The count travels in a tag from each Dagster run to the one that is launched in its place, so it survives the daemon,
the sensor's cursor and everything else but Dagster's own database.

A run that died without an error (killed, out of memory, its host gone) does not show the cause: it neither counts nor
resets the count. `max_attempts` bounds those. A store or a Spark master that did not answer does not count either, and
nothing bounds those: no other code would help.
"""

import re
from dataclasses import dataclass
from hashlib import sha256

_HOSTS = re.compile(r"hosts?=(\[[^\]]*\]|\S+)")
_TEMPORARY = re.compile(r"\btmp\w{6,}")
_DIGIT = re.compile(r"\d")
_COMPARED_MAX = 2_000


@dataclass(frozen=True, slots=True)
class RunError:
    """What a Dagster run failed with: the error's class and its message, for people.

    `unavailable`: what the stream needs, such as its store or Spark's master, did not answer.
    """

    kind: str
    message: str
    unavailable: bool = False

    @property
    def mark(self) -> str:
        """Equal for errors that differ only in where and when they occurred. No blanks, short enough for a tag."""
        return f"{self.kind}:{sha256(_lasting(self.message).encode()).hexdigest()[:12]}"

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


@dataclass(frozen=True, slots=True)
class SameError:
    """How many Dagster runs in a row have failed with this error, without an epoch in between."""

    mark: str
    times: int

    @classmethod
    def read(cls, tag: str) -> "SameError | None":
        """The count in a tag. People can write tags too: None for a malformed one."""
        times, _, mark = tag.partition(" ")
        return cls(mark, int(times)) if mark and times.isdecimal() else None

    def write(self) -> str:
        return f"{self.times} {self.mark}"


def counted(before: SameError | None, error: RunError | None) -> SameError | None:
    """The count after one more failed run; `error` is None for one that died without an error."""
    if error is None or error.unavailable:
        return before
    times = before.times if before is not None and before.mark == error.mark else 0
    return SameError(error.mark, times + 1)


def _lasting(message: str) -> str:
    """The message without what differs each time: hosts, and words with a digit (terms, epochs, pids, times, ids)."""
    text = _TEMPORARY.sub("1", _HOSTS.sub("1", message[:_COMPARED_MAX]))
    words = ["#" if _DIGIT.search(word) else word for word in text.split()]
    # A list counts as one entry, whatever its length: which shards fail first is random.
    return " ".join(word for word, before in zip(words, ["", *words], strict=False) if not word == before == "#")
