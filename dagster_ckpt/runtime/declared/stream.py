"""`Stream`: what a streaming asset's function returns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from dagster_ckpt.errors import InvalidPipelineError, naming
from dagster_ckpt.operators.agg import Aggregation, Function
from dagster_ckpt.operators.aggregates.aggregate import RunningAggregate
from dagster_ckpt.operators.joins.interval.interval_join import IntervalJoin
from dagster_ckpt.operators.joins.window.window_join import WindowedJoin
from dagster_ckpt.operators.one_group import OneGroup
from dagster_ckpt.operators.operator import Operator
from dagster_ckpt.operators.process import ProcessFunction, ProcessOperator
from dagster_ckpt.operators.rows.changes_from import NAME as CHANGES_FROM
from dagster_ckpt.operators.rows.deduplicate import Deduplicate
from dagster_ckpt.operators.rows.mirror import Mirror
from dagster_ckpt.operators.shared.checks.updating_checks import check_step
from dagster_ckpt.operators.shared.window_kinds import FixedWindow, Session, Window
from dagster_ckpt.operators.windows.session_aggregate import SessionAggregate
from dagster_ckpt.operators.windows.window_aggregate import WindowAggregate
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from dagster_ckpt.quantities import Duration, microseconds, milliseconds
from dagster_ckpt.runtime.declared.row_conditions import check_judges_by_values, fingerprint_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


_EXPIRING = ("aggregate", "process")
"""The steps that `key_by(..., expire_after=...)` applies to. The others have other options for it."""


_KEYS_OPTIONAL = ("aggregate", "window")
"""The steps that, without keys, have one group of all rows."""


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
    """The upstream of a `Stream` that reads another stream's table.

    `row_key` identifies a row of the table: no column where it has one row, None for a table that only grows
    (`updating` is False). `where` is the text of the condition that rows must match, None for all.
    """

    name: str
    row_key: tuple[str, ...] | None = None
    where: str | None = None

    @property
    def updating(self) -> bool:
        """Whether rows of the table are updated and deleted. The frame then has `_change_type` too."""
        return self.row_key is not None


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
    function.
    """

    name: str
    build: Callable[[Sequence[StepInput]], Operator]
    others: tuple["Stream", ...] = ()
    compared: tuple[str, ...] = ()
    on_end: OnEnd = OnEnd.KEEP
    code: object = None


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """A stream of rows on its way to a table. Each step returns a new one; nothing runs before the asset does.

        Stream(departures(spark)).where("dep_delay > 0").key_by("carrier").aggregate(flights=agg.count())

    `frame` is a streaming DataFrame of the session that the function is given. Filters and columns of Spark's come
    before it, or in `where`; then `with_watermark` and `key_by`, then one step that keeps state, the last.

    Returned as it is, a stream is append-only: each input row once. The DataFrame may use Spark's stateless steps and
    joins with static tables; one that keeps state is refused before the first epoch.

    As a parameter of a streaming function it is the table of the stream with the parameter's name: if that updates and
    deletes rows, `.where(...)` and `.key_by(...).aggregate(...)` follow.
    """

    frame: "DataFrame"
    event_time: EventTime | None = None
    keys: tuple[str, ...] = ()
    expire_after_us: int | None = None
    step: StatefulStep | None = None
    upstream: Upstream | None = None

    @property
    def inputs(self) -> tuple["Stream", ...]:
        """The streams that the stateful step reads; this one is the first."""
        return (self, *(self.step.others if self.step else ()))

    @property
    def flushes(self) -> bool:
        return self.step is not None and self.step.on_end is OnEnd.FLUSH

    @property
    def code(self) -> object:
        return None if self.step is None else self.step.code

    @property
    def updating(self) -> bool:
        """Whether rows are the changes of an upstream's table, which updates and deletes them."""
        return self.upstream is not None and self.upstream.updating

    def mirrored(self) -> "Stream":
        """The stream as it runs: one that reads an updating table without a stateful step mirrors that table."""
        if self.step is not None or self.upstream is None or self.upstream.row_key is None or self.keys:
            return self

        def build(inputs: Sequence[StepInput]) -> Operator:
            [rows] = inputs
            return _of_groups(rows, lambda keys, spec: Mirror.build(keys, spec, _where(rows)))

        return replace(self, keys=self.upstream.row_key, step=StatefulStep("where", build))

    def where(self, condition: "str | Column") -> "Stream":
        """The rows that match a condition, in Spark's SQL or as a Column. Null is no match.

        If the upstream's table updates rows, a row that no longer matches is deleted here too. The condition must then
        depend on the row's values alone, so that its result is the same each time.

        Raises `InvalidPipelineError` for a condition on an updating table that depends on anything else, such as the
        time, and after a step that keeps state.
        """
        self._refuse_after_step("where")
        frame = self.frame.where(condition)
        if self.upstream is None or not self.updating:
            return replace(self, frame=frame)
        check_judges_by_values(frame, condition)
        text = fingerprint_of(frame, condition)
        both = text if self.upstream.where is None else f"({self.upstream.where}) AND ({text})"
        return replace(self, frame=frame, upstream=replace(self.upstream, where=both))

    def with_watermark(self, column: str, delay: Duration, idle_after: Duration | None = None) -> "Stream":
        """Declare the column with a row's event time, a timestamp, and how late a row may come.

            Stream(departures(spark)).with_watermark("scheduled", "10 minutes", idle_after="1 minute")

        Of several inputs the slowest holds the watermark back; one without a row for `idle_after` is left out until its
        next row. Each step documents what it does with a row without an event time.
        """
        self._refuse_after_step("with_watermark")
        _refuse_updating(self, "with_watermark")
        if self.event_time is not None:
            raise InvalidPipelineError(
                f"a stream has one event time: call with_watermark once. columns={self.event_time.column}, {column}"
            )
        idle_after_ms = None if idle_after is None else milliseconds(idle_after, "idle_after")
        return replace(self, event_time=EventTime(column, milliseconds(delay, "delay", least=0), idle_after_ms))

    def key_by(self, *columns: str, expire_after: Duration | None = None) -> "Stream":
        """Bring the rows of one key together. Null is a key like any other.

            Stream(departures(spark)).key_by("origin", "dest")

        A key's state is dropped when that much event time has passed since its last row; None: never. Windows and joins
        know by themselves when they are done with a row.
        """
        self._refuse_after_step("key_by")
        if not columns:
            raise InvalidPipelineError(
                "key_by needs at least one column; for one row over everything leave key_by out. columns=()"
            )
        if self.keys:
            raise InvalidPipelineError(f"call key_by once, with all key columns. keys={self.keys}, again={columns}")
        expire_after_us = None if expire_after is None else microseconds(expire_after, "expire_after")
        return replace(self, keys=columns, expire_after_us=expire_after_us)

    def aggregate(self, **aggregations: Aggregation) -> "Stream":
        """One row per key, updated as rows arrive: the key columns, then one column for each aggregate, by its name.

            delays.key_by("carrier").aggregate(flights=agg.count(), mean_delay=agg.avg("dep_delay"))

        Without `key_by` it is the global aggregate: one row over everything, once there is any. One task does all of
        its work.

        With `key_by(..., expire_after=...)` a key leaves the table when that much event time has passed without a row.
        """
        _check_some(aggregations)
        expire_after_us = self.expire_after_us

        def build(inputs: Sequence[StepInput]) -> Operator:
            [rows] = inputs
            updating = rows.upstream is not None and rows.upstream.updating
            options = (rows.event_time, expire_after_us)
            return _of_groups(
                rows,
                lambda keys, spec: RunningAggregate.build(
                    keys, aggregations, spec, *options, updating=updating, where=_where(rows)
                ),
            )

        return self._with_step(StatefulStep("aggregate", build, compared=_compared_by(aggregations)))

    def window(
        self,
        window: Window,
        *,
        early: bool = False,
        late: Literal["drop", "keep"] = "drop",
        on_end: Literal["keep", "flush"] = "keep",
    ) -> "WindowedStream":
        """Group each key's rows by windows of event time: `tumbling(size)`, `hopping(size, slide)` or `session(gap)`.

            delays.key_by("carrier").window(tumbling("1 hour"), early=True).aggregate(flights=agg.count())

        Call `aggregate` on what this returns. A window's row is emitted, final, when the watermark passes its end;
        with `early` it is there from its first row on and changes until then. Rows that come after all their windows
        were closed are counted; `late="keep"` also keeps them for inspection. `on_end="flush"` closes all windows when
        an available_now run has processed all its input; `"keep"` leaves those open that the watermark has not passed.
        """
        return WindowedStream(self, window, early, late, OnEnd(on_end))

    def interval_join(
        self,
        other: "Stream",
        lower: Duration,
        upper: Duration,
        how: str = "inner",
        *,
        late: Literal["drop", "keep"] = "drop",
        on_end: Literal["keep", "flush"] = "keep",
    ) -> "Stream":
        """Rows of both with equal keys where `self.time + lower <= other.time <= self.time + upper`.

            delays.key_by("origin").interval_join(weather.key_by("origin"), "-1 hour", "0s", how="left")

        finds the weather of the hour before. `lower` and `upper` may be negative. A row has the columns of both sides,
        a key of one name once; of a semi or an anti join only those of this side. `how`: inner, left, right, full, semi
        or anti; a row without a match is emitted, with nulls, once the watermark shows that none can come any more.
        Keys are compared in the order of the two `key_by`; null equals nothing.
        """
        lower_us, upper_us = microseconds(lower, "lower"), microseconds(upper, "upper")
        return self._joined("interval_join", other, on_end, IntervalJoin.build, lower_us, upper_us, how, late)

    def join(
        self,
        other: "Stream",
        expire_after: Duration,
        how: str = "inner",
        *,
        late: Literal["drop", "keep"] = "drop",
        on_end: Literal["keep", "flush"] = "keep",
    ) -> "Stream":
        """Rows of both with equal keys whose event times differ by at most `expire_after`: so long each row is kept.

            delays.key_by("flight").join(gates.key_by("flight"), expire_after="2 hours")

        Which rows match does not depend on when they come, as long as they are not late. Otherwise as `interval_join`.
        """
        reach_us = microseconds(expire_after, "expire_after")

        return self._joined("join", other, on_end, IntervalJoin.expiring, reach_us, how, late)

    def instant_join(
        self,
        other: "Stream",
        how: str = "inner",
        *,
        late: Literal["drop", "keep"] = "drop",
        on_end: Literal["keep", "flush"] = "keep",
    ) -> "Stream":
        """Rows of both with equal keys and equal event times, when the watermark has passed those.

            temperatures.key_by("station").instant_join(pressures.key_by("station"))

        `how`, `late` and `on_end` as in `interval_join`.
        """
        return self._joined("instant_join", other, on_end, WindowedJoin.build, None, how, late)

    def window_join(
        self,
        other: "Stream",
        window: FixedWindow,
        how: str = "inner",
        *,
        late: Literal["drop", "keep"] = "drop",
        on_end: Literal["keep", "flush"] = "keep",
    ) -> "Stream":
        """Rows of both with equal keys in the same `tumbling` or `hopping` window, when that is over.

            clicks.key_by("user").window_join(orders.key_by("user"), tumbling("10 minutes"))

        `how`, `late` and `on_end` as in `interval_join`.
        """
        return self._joined("window_join", other, on_end, WindowedJoin.build, window, how, late)

    def _joined(
        self, name: str, other: "Stream", on_end: str, build: Callable[..., Operator], *options: Any
    ) -> "Stream":
        """The join that `build` makes of the inputs, their keys, their event times and these options."""
        step = StatefulStep(name, lambda inputs: build(*_sides(inputs), *options), (other,), on_end=OnEnd(on_end))
        return self._with_step(step)

    def deduplicate(
        self,
        keep: str = "first",
        expire_after: Duration | None = None,
        *,
        by: str | Sequence[str] | None = None,
        late: Literal["drop", "keep"] = "drop",
        on_end: Literal["keep", "flush"] = "keep",
    ) -> "Stream":
        """One row of each key: the first one, or the newest by event time (`keep="last"`).

            customers.key_by("id").deduplicate(keep="last", by="version")

        `by` names columns that say which row is earlier in place of the event time, such as the version of a record:
        the first of them decides, then the next. Ties go by the event time, then by the other columns in their order.

        With `expire_after` a key is forgotten that much event time after its row. With `"first"` the table then grows
        by a row for each life of a key; with `"last"` the row leaves the table.
        """
        expire_after_us = None if expire_after is None else microseconds(expire_after, "expire_after")
        order = () if by is None else (by,) if isinstance(by, str) else tuple(by)

        def build(inputs: Sequence[StepInput]) -> Operator:
            [rows] = inputs
            return Deduplicate.build(rows.keys, rows.spec, keep, rows.event_time, expire_after_us, late, order)

        return self._with_step(StatefulStep("deduplicate", build, compared=order, on_end=OnEnd(on_end)))

    def process(
        self,
        function: ProcessFunction,
        *,
        late: Literal["drop", "keep"] = "drop",
        on_end: Literal["keep", "flush"] = "keep",
    ) -> "Stream":
        """Run your own operator: Arrow tables in and out, with typed state for each key and event-time timers.

        With `key_by(..., expire_after=...)` a key's state is forgotten when that much event time has passed without a
        row of it.
        """
        expire_after_us = self.expire_after_us

        def build(inputs: Sequence[StepInput]) -> Operator:
            [rows] = inputs
            return ProcessOperator.build(function, rows.keys, rows.spec, rows.event_time, late, expire_after_us)

        return self._with_step(StatefulStep("process", build, on_end=OnEnd(on_end), code=function))

    def _with_step(self, step: StatefulStep) -> "Stream":
        """This stream with a stateful step. Raises `InvalidPipelineError` where the step is not possible."""
        self._refuse_after_step(step.name)
        for number, stream in enumerate((self, *step.others)):
            _refuse_updating(stream, step.name)
            if not stream.keys and step.name not in _KEYS_OPTIONAL:
                which = "" if number == 0 else " of the other stream"
                raise InvalidPipelineError(
                    f"{step.name} needs key columns: call key_by(column, ...){which} before it. step={step.name}"
                )
            if stream.step is not None:
                raise InvalidPipelineError(
                    f"a stream has one step that keeps state: save what comes before {step.name} as an asset of its "
                    f"own. steps={stream.step.name}, {step.name}"
                )
            if stream.expire_after_us is not None and step.name not in _EXPIRING:
                raise InvalidPipelineError(
                    f"{step.name} knows by itself when it is done with a row: leave expire_after out of key_by. "
                    f"step={step.name}"
                )
        return replace(self, step=step)

    def _refuse_after_step(self, step: str) -> None:
        if self.step is not None and self.step.name == CHANGES_FROM:
            raise InvalidPipelineError(
                f"changes_from makes a table, and {step} works on it in an asset of its own: return what changes_from "
                f"gives, and call {step} in a stream that reads this asset. step={step}"
            )
        if self.step is not None:
            raise InvalidPipelineError(
                f"{self.step.name} is the last step of a stream: call {step} before it. step={step}"
            )


@dataclass(frozen=True, slots=True, eq=False)
class WindowedStream:
    """A stream whose rows are grouped by windows of event time. Call `aggregate` on it."""

    stream: Stream
    window: Window
    early: bool
    late: str
    on_end: OnEnd

    def aggregate(self, **aggregations: Aggregation) -> Stream:
        """One row per key and window: the key columns, `window_start`, `window_end`, then one for each aggregate.

        Without `key_by` a window has one row over everything.
        """
        _check_some(aggregations)

        def build(inputs: Sequence[StepInput]) -> Operator:
            [rows] = inputs
            kind = SessionAggregate if isinstance(self.window, Session) else WindowAggregate
            options = (rows.event_time, self.window, self.early, self.late)
            return _of_groups(rows, lambda keys, spec: kind.build(keys, aggregations, spec, *options))

        step = StatefulStep("window", build, compared=_compared_by(aggregations), on_end=self.on_end)
        return self.stream._with_step(step)  # noqa: SLF001  (one class in two steps)


def _of_groups(rows: StepInput, build: Callable[[tuple[str, ...], InputSpec], Operator]) -> Operator:
    """The operator that `build` makes of the keys, or of one group where there are none."""
    return build(rows.keys, rows.spec) if rows.keys else OneGroup.build(rows.spec, build)


def _refuse_updating(stream: Stream, step: str) -> None:
    """Raise `InvalidPipelineError` where the step cannot follow the changes of an updating upstream."""
    if stream.upstream is not None and stream.updating:
        with naming(upstream=stream.upstream.name):
            check_step(step, stream.keys, stream.upstream.row_key or ())


def _where(rows: StepInput) -> str | None:
    return None if rows.upstream is None or not rows.upstream.updating else rows.upstream.where


def _sides(
    inputs: Sequence[StepInput],
) -> tuple[list[InputSpec], list[tuple[str, ...]], list[str | None]]:
    """The specs, keys and event times of a join's inputs."""
    return [each.spec for each in inputs], [each.keys for each in inputs], [each.event_time for each in inputs]


def _check_some(aggregations: Mapping[str, Aggregation]) -> None:
    """Raise `InvalidPipelineError` where there is nothing to compute."""
    if not aggregations:
        raise InvalidPipelineError("an aggregate needs something to compute, such as rows=agg.count(). got=nothing")


def _compared_by(aggregations: Mapping[str, object]) -> tuple[str, ...]:
    """The columns whose values are compared. A count compares none."""
    named = [one for one in aggregations.values() if isinstance(one, Aggregation)]  # the others are refused later
    valued = [one for one in named if one.function is not Function.COUNT]
    return tuple(name for one in valued for name in (one.column, one.by) if name is not None)
