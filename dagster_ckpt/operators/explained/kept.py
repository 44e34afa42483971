"""What a state table has, and what limits how much that is."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from dagster_ckpt.operators.shared.checks.updating_checks import UPDATING
from dagster_ckpt.protocol.manifest.manifest import Pipeline
from dagster_ckpt.quantities import span


class Bound(StrEnum):
    """What limits the rows of a state table, the narrowest first."""

    EPOCH = "epoch"
    """They are those of the epoch in work: between two epochs it is empty."""
    CONSTANT = "constant"
    """Their number never changes."""
    WATERMARK = "watermark"
    """They go as the watermark advances."""
    INPUT = "input"
    """They go with the rows of the input, which changes: there are as many as it has now."""
    KEYS = "keys"
    """They grow with the distinct keys: none goes."""
    ROWS = "rows"
    """They grow with the rows, or with distinct values: none goes."""

    @property
    def grows(self) -> bool:
        """Whether the table grows for as long as there are new keys or rows."""
        return self in (Bound.KEYS, Bound.ROWS)


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound, and in words which one it is: `each until the watermark has reached its end`."""

    bound: Bound
    text: str


@dataclass(frozen=True, slots=True)
class Kept:
    """A state table: what its rows are, and what limits them."""

    table: str
    rows: str
    limit: Limit


ONE_ROW = Limit(Bound.CONSTANT, "one row")
ONE_EPOCH = Limit(Bound.EPOCH, "empty between epochs")
NUMBER_OF_KEYS = Limit(Bound.KEYS, "the number of keys")
OPEN_WINDOWS = Limit(Bound.WATERMARK, "windows whose end the watermark has not reached")


def grows_with(what: str) -> Limit:
    """No row ever goes."""
    return Limit(Bound.ROWS, f"none: grows with {what}")


def of_now(what: str) -> Limit:
    """There is no more than what an input that changes has now."""
    return Limit(Bound.INPUT, f"the {what} now")


def behind(after_us: int, what: str = "its event time") -> Limit:
    """A row goes once the watermark is so far past a moment of it."""
    if after_us == 0:
        return Limit(Bound.WATERMARK, f"each until the watermark has passed {what}")
    side = f"{span(after_us)} past" if after_us > 0 else f"{span(-after_us)} before"
    return Limit(Bound.WATERMARK, f"each until the watermark is {side} {what}")


def expiring(after_us: int) -> Limit:
    """A key goes once the watermark is so far past the newest of its rows."""
    return Limit(Bound.WATERMARK, f"each key until the watermark is {span(after_us)} past its newest row")


def for_each(of: str) -> str:
    """` for each key`, if rows are apart by key; `of` is then `key`."""
    return f" for each {of}" if of else ""


def of_each(of: str) -> str:
    """` of each key`, if rows are apart by key; `of` is then `key`."""
    return f" of each {of}" if of else ""


def updates(pipeline: Pipeline) -> bool:
    """Whether the one input of a step takes rows back."""
    return pipeline.parameters.get(UPDATING) is True


def join_words(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
