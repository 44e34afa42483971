"""`Stream`: what a streaming asset's function returns."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.quantities import Duration, milliseconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class EventTime:
    """Which column tells when a row happened, and how much later than the newest one a row may still come."""

    column: str
    delay_ms: int


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """A stream of rows on its way to a table. Each step returns a new one; nothing runs before the asset does.

    Returned as it is, a stream is append-only: each input row once. The DataFrame may use Spark's stateless steps and
    joins with static tables; one that keeps state is refused before the first epoch.
    """

    frame: "DataFrame"
    event_time: EventTime | None = None
    keys: tuple[str, ...] = ()
    aggregations: tuple[tuple[str, Aggregation], ...] = ()

    def with_watermark(self, column: str, delay: Duration) -> "Stream":
        """The column with a row's event time, and how late a row may come. A row without one is never late."""
        self._refuse_after_aggregate("with_watermark")
        if self.event_time is not None:
            raise InvalidPipelineError(
                f"a stream has one event time: call with_watermark once. columns={self.event_time.column}, {column}"
            )
        return replace(self, event_time=EventTime(column, milliseconds(delay, "delay")))

    def key_by(self, *columns: str) -> "Stream":
        """Bring the rows of one key together. Null is a key like any other."""
        self._refuse_after_aggregate("key_by")
        if not columns:
            raise InvalidPipelineError("key_by needs at least one column. columns=()")
        if self.keys:
            raise InvalidPipelineError(f"call key_by once, with all key columns. keys={self.keys}, again={columns}")
        return replace(self, keys=columns)

    def aggregate(self, **aggregations: Aggregation) -> "Stream":
        """One row per key, updated as rows arrive: the key columns, then one column for each aggregate, by its name."""
        self._refuse_after_aggregate("aggregate")
        if not self.keys:
            raise InvalidPipelineError(
                f"an aggregate needs key columns: call key_by(column, ...) before it. aggregates={list(aggregations)}"
            )
        if not aggregations:
            raise InvalidPipelineError("an aggregate needs something to compute, such as rows=agg.count(). got=nothing")
        return replace(self, aggregations=tuple(aggregations.items()))

    def _refuse_after_aggregate(self, step: str) -> None:
        if self.aggregations:
            raise InvalidPipelineError(f"aggregate is the last step of a stream: call {step} before it. step={step}")
