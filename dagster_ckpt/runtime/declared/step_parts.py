"""What the declaration of a `Stream` is made of."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import reduce
from typing import TYPE_CHECKING

from dagster_ckpt.operators.operator import Operator
from dagster_ckpt.protocol.manifest.manifest import InputSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from dagster_ckpt.runtime.declared.stream import Stream

Work = Callable[["DataFrame"], "DataFrame"]
"""What Spark does with rows one by one."""


class OnEnd(StrEnum):
    """What happens to rows that wait for the watermark when an `available_now` run has processed all its input."""

    KEEP = "keep"
    FLUSH = "flush"


@dataclass(frozen=True, slots=True)
class EventTime:
    """The column with a row's event time, and how much later than the newest one a row may still come.

    An input without a row for `idle_after_ms` no longer holds the watermark back; None: it always does.
    """

    column: str
    delay_ms: int
    idle_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Upstream:
    """The table whose rows a `Stream` has: another stream's, or that of an earlier step, by the name of either.

    `row_key` identifies a row of the table: no column where it has one row, None where nothing does. `where` is the
    text of what Spark does with the rows of an updating table, None for nothing. `changes`: rows are updated and
    deleted although nothing identifies them.
    """

    name: str
    row_key: tuple[str, ...] | None = None
    where: str | None = None
    changes: bool = False

    @property
    def updating(self) -> bool:
        """Whether rows of the table are updated and deleted. The frame then has `_change_type` too."""
        return self.row_key is not None or self.changes


@dataclass(frozen=True, slots=True)
class StepInput:
    """One input of a step as its operator sees it. `upstream` is the stream that it reads, None for a source."""

    spec: InputSpec
    keys: tuple[str, ...]
    event_time: str | None
    upstream: Upstream | None = None


@dataclass(frozen=True, slots=True, eq=False)
class StatefulStep:
    """The stateful step of a stream.

    `name` is the method that made it. `build` makes the operator from its inputs, or raises `InvalidPipelineError`.
    `compared` are the columns of the first input, besides its keys, that are compared as text. `code` is the user's
    function. `never_late`: it takes rows however old they are, so that no watermark need follow from its input.
    """

    name: str
    build: Callable[[Sequence[StepInput]], Operator]
    others: tuple["Stream", ...] = ()
    compared: tuple[str, ...] = ()
    on_end: OnEnd = OnEnd.KEEP
    code: object = None
    never_late: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Earlier:
    """The step whose changes a stream's rows are, and what Spark does with them before the next step.

    `changes` stands for them: it has their columns.
    """

    stream: "Stream"
    changes: "DataFrame"
    work: tuple[Work, ...] = ()

    def then(self, work: Work) -> "Earlier":
        """The same, with more work on the rows."""
        return replace(self, work=(*self.work, work))

    def frame_of(self, changes: "DataFrame") -> "DataFrame":
        """The next step's rows, from the step's changes."""
        return reduce(lambda frame, work: work(frame), self.work, changes)
