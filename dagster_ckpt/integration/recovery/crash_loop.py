"""Whether a stream fails over and over with the same error: pure, and counted where nothing can be lost.

The count travels in a tag from each Dagster run to the one that is launched in its place, so it survives the daemon,
the sensor's cursor and everything else but Dagster's own database.

A run that died without an error (killed, out of memory, its host gone) does not show the cause: it neither counts nor
resets the count. `max_attempts` bounds those. What no other code would help does not count either, and nothing bounds
it: see `Cause`.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256

_HOSTS = re.compile(r"hosts?=(\[[^\]]*\]|\S+)")
_TEMPORARY = re.compile(r"\btmp\w{6,}")
_DIGIT = re.compile(r"\d")
_COMPARED_MAX = 2_000


class Cause(StrEnum):
    """Where the cause of an error is, as far as the error shows it."""

    CODE = "code"  # or in the data: the same run would fail again
    NO_ANSWER = "no answer"  # what the stream needs, such as its store or Spark's master, did not answer
    OUTSIDE = "outside"  # outside of the code, where a person mends it: a driver, a right, a constraint, a file


_CAUSES = {
    "StoreUnavailableError": Cause.NO_ANSWER,
    "DestinationUnavailableError": Cause.NO_ANSWER,
    "SourceUnavailableError": Cause.NO_ANSWER,
    "OutsideCodeError": Cause.OUTSIDE,
    "DestinationMismatchError": Cause.OUTSIDE,
    "TopicGoneError": Cause.OUTSIDE,
    "RowsRefusedError": Cause.OUTSIDE,
    "UnsetVariableError": Cause.OUTSIDE,
    "ModuleNotFoundError": Cause.OUTSIDE,
}
"""The causes of errors by their class; of all others the code, unless their text says more."""

_MASTER_IS_UNAVAILABLE = re.compile(
    # The scheduler backend of a standalone cluster. It stops the driver's context from another thread, so what the
    # driver raises depends on how far it had come.
    r"All masters are unresponsive"
    r"|stopped SparkContext.*was stopped at:\s+org\.apache\.spark\.SparkContext\$\$anon"
    r'|"org\.apache\.spark\.SparkEnv\$\.get\(\)" is null'
    # Kubernetes and YARN, from within the constructor of the context.
    r"|calling None\.org\.apache\.spark\.api\.java\.JavaSparkContext\b.*"
    r"(?:ConnectException|UnknownHostException|SocketTimeoutException|NoRouteToHostException|ConnectTimeoutException"
    r"|Connection refused|Connection timed out|Failed to connect)",
    re.DOTALL,
)
"""What Spark raises where its master (or the resource manager in its place) cannot be reached."""


@dataclass(frozen=True, slots=True)
class RunError:
    """What a Dagster run failed with: the error's class and its message, for people, and where its cause is."""

    kind: str
    message: str
    cause: Cause = Cause.CODE

    @classmethod
    def read(cls, kind: str, message: str) -> "RunError":
        """The error of this class with this message."""
        silent = _MASTER_IS_UNAVAILABLE.search(message) is not None
        return cls(kind, message, _CAUSES.get(kind, Cause.NO_ANSWER if silent else Cause.CODE))

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


def count(before: SameError | None, error: RunError | None) -> SameError | None:
    """The count after one more failed run; `error` is None for one that died without an error."""
    if error is None or error.cause is not Cause.CODE:
        return before
    times = before.times if before is not None and before.mark == error.mark else 0
    return SameError(error.mark, times + 1)


def _lasting(message: str) -> str:
    """The message without what differs each time: hosts, and words with a digit (terms, epochs, pids, times, ids)."""
    text = _TEMPORARY.sub("1", _HOSTS.sub("1", message[:_COMPARED_MAX]))
    words = ["#" if _DIGIT.search(word) else word for word in text.split()]
    # A list counts as one entry, whatever its length: which shards fail first is random.
    return " ".join(word for word, before in zip(words, ["", *words], strict=False) if not word == before == "#")
