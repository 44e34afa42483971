"""What the declaration of a `Stream` is made of, and what the operator of a step is built from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from dagster_ckpt.operators.operator import Operator
from dagster_ckpt.operators.sets.set_operation import Kind
from dagster_ckpt.protocol.manifest.manifest import InputSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Work = Callable[["DataFrame"], "DataFrame"]
"""What Spark does with rows one by one."""
WHOLE_ROWS = ("distinct", "union", *Kind)
"""The steps that compare rows by all their columns."""


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


class StepRows(Protocol):
    """Rows that a step reads, as a `Stream` describes them."""

    @property
    def frame(self) -> "DataFrame": ...
    @property
    def keys(self) -> tuple[str, ...]: ...
    @property
    def event_time(self) -> EventTime | None: ...
    @property
    def upstream(self) -> Upstream | None: ...
    @property
    def work(self) -> str: ...


class BuildsOperator(Protocol):
    """A stateful step: its name, how its operator is built, and the columns that it compares as text."""

    @property
    def name(self) -> str: ...
    @property
    def build(self) -> Callable[[Sequence[StepInput]], Operator]: ...
    @property
    def compared_columns(self) -> tuple[str, ...]: ...


class DeclaredStep(Protocol):
    """A step with the rows that it reads, as a `Stream` that ends in it has them."""

    @property
    def keys(self) -> tuple[str, ...]: ...
    @property
    def step(self) -> BuildsOperator | None: ...
    @property
    def inputs(self) -> Sequence[StepRows]: ...
