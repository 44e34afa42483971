"""`Stream`: what a streaming asset's function returns."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Literal

from dagster_ckpt.errors import InvalidPipelineError, naming
from dagster_ckpt.operators.aggregates.aggregate import RunningAggregate
from dagster_ckpt.operators.aggregates.aggregation import Aggregation
from dagster_ckpt.operators.aggregates.grouped_state import code_of
from dagster_ckpt.operators.joins.interval_join import IntervalJoin
from dagster_ckpt.operators.joins.regular.regular_join import RegularJoin
from dagster_ckpt.operators.joins.window_join import WindowedJoin
from dagster_ckpt.operators.operator import Operator
from dagster_ckpt.operators.over import Over
from dagster_ckpt.operators.process import ProcessFunction, ProcessOperator
from dagster_ckpt.operators.rows.deduplicate import Deduplicate
from dagster_ckpt.operators.rows.materializer import Materializer
from dagster_ckpt.operators.rows.over.over import OverPartition
from dagster_ckpt.operators.rows.top import Best, Top
from dagster_ckpt.operators.sets.distinct import Distinct
from dagster_ckpt.operators.sets.set_operation import Kind, SetOperation
from dagster_ckpt.operators.sets.union_all import UnionAll
from dagster_ckpt.operators.shared.checks.updating_checks import (
    UNBOUNDED_JOIN,
    changes_schema,
    check_keys_stay,
    check_no_event_time,
    check_step,
)
from dagster_ckpt.operators.shared.checks.window_checks import time_of_window
from dagster_ckpt.operators.shared.expiry_checks import check_expiry
from dagster_ckpt.operators.shared.ranked.order_by import names_in_order, quote
from dagster_ckpt.operators.shared.window_kinds import FixedWindow, Session, Window
from dagster_ckpt.operators.step import one_group
from dagster_ckpt.operators.windows.session_aggregate import SessionAggregate
from dagster_ckpt.operators.windows.window_aggregate import WindowAggregate
from dagster_ckpt.operators.windows.window_of_table import WindowOfTable
from dagster_ckpt.operators.windows.windowed_state import WindowOptions
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from dagster_ckpt.protocol.manifest.row_key import row_key
from dagster_ckpt.quantities import Duration, microseconds, milliseconds
from dagster_ckpt.runtime.declared import row_work
from dagster_ckpt.runtime.declared.queries import as_dataframe, as_steps
from dagster_ckpt.runtime.declared.step_parts import (
    WHOLE_ROWS,
    EventTime,
    OnEnd,
    StepInput,
    Upstream,
    Work,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


_EXPIRING = ("aggregate", "process")
"""The steps that `key_by(..., expire_after=...)` applies to. The others have other options for it."""


_KEYS_OPTIONAL = ("aggregate", "over", "top", "window")
"""The steps that, without keys, have one group of all rows."""


@dataclass(frozen=True, slots=True, eq=False)
class StatefulStep:
    """The stateful step of a stream.

    `name` is the method that made it. `build` makes the operator from its inputs, or raises `InvalidPipelineError`.
    `compared_columns` are those of the first input, besides its keys, that are compared as text. `code` is the user's
    function. `never_late`: it takes rows however old they are, so that no watermark need follow from its input.
    """

    name: str
    build: Callable[[Sequence[StepInput]], Operator]
    others: tuple["Stream", ...] = ()
    compared_columns: tuple[str, ...] = ()
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


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """A stream of rows on its way to a table. Each step returns a new one; nothing runs before the asset does.

        Stream(departures(spark)).where("dep_delay > 0").key_by("carrier").aggregate(flights=agg.count())

    `frame` is a streaming DataFrame of the session that the function is given. `with_watermark` and `key_by` come
    before the step that they are for. After a step that keeps state the next one takes its changes: any number of steps
    are one stream, and commit together. What Spark does with rows one by one (`where`, `select`, ...) stands anywhere
    between them.

    `initial` are rows that the stream begins with, of a DataFrame that is no stream: the past, which the source no
    longer has, or the state of another system. They are the stream's first epoch; the source follows.

    Returned as it is, a stream is append-only: each input row once. The DataFrame may use Spark's stateless steps and
    joins with static tables; one that keeps state is refused before the first epoch.

    As a parameter of a streaming function it is the table of the stream with the parameter's name. If that updates and
    deletes rows, so does what the next step takes: each step says whether it can follow.

    `columns` are a query's: those of the table, each with the name that it has in the step's output, where these
    differ. `work` is then the text of what Spark does with the rows of a source or of a step that only appends.
    `table` is `initial` as it was given, before any work on its rows.
    `ignored_watermarks` are the watermarks in it, each as column and delay, which let nothing go.
    """

    frame: "DataFrame"
    event_time: EventTime | None = None
    keys: tuple[str, ...] = ()
    expire_after_us: int | None = None
    step: StatefulStep | None = None
    upstream: Upstream | None = None
    earlier: Earlier | None = None
    columns: tuple[tuple[str, str], ...] = ()
    work: str = ""
    initial: "DataFrame | None" = None
    table: "DataFrame | None" = None
    ignored_watermarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.table is None and self.initial is not None:
            object.__setattr__(self, "table", self.initial)
        if self.earlier is not None or self.upstream is not None or self.step is not None or self.work:
            return
        query: Stream | None = as_steps(self.frame)
        if query is not None:  # what Spark would keep state for is steps: this stream follows them
            if self.initial is not None:
                raise InvalidPipelineError(
                    "initial rows are those of a source: give them to the Stream of its DataFrame, as it is read. "
                    f"columns={self.frame.columns}"
                )
            rows = rows_of(query)
            for name in ("frame", "upstream", "earlier", "work"):
                object.__setattr__(self, name, getattr(rows, name))
            object.__setattr__(self, "ignored_watermarks", query.ignored_watermarks)

    @property
    def steps(self) -> tuple["Stream", ...]:
        """The streams that end in a step, each after those that it reads; this one is the last."""
        before = (step for each in self.inputs if each.earlier is not None for step in each.earlier.stream.steps)
        once = {id(step): step for step in (*before, self)}  # a step that two others read is one
        return tuple(once.values())

    @property
    def sources(self) -> tuple["Stream", ...]:
        """The inputs of all steps that read no earlier step, in order."""
        return tuple(each for step in self.steps for each in step.inputs if each.earlier is None)

    @property
    def inputs(self) -> tuple["Stream", ...]:
        """The streams that the stateful step reads; this one is the first."""
        return (self, *(self.step.others if self.step else ()))

    @property
    def all_ignored_watermarks(self) -> tuple[str, ...]:
        """Those of all queries that the stream is made of, each once."""
        streams = (each for step in self.steps for each in (step, *step.inputs))
        return tuple(dict.fromkeys(text for each in streams for text in each.ignored_watermarks))

    @property
    def flushes(self) -> bool:
        """Whether one of the steps emits at the end of the input what waits for the watermark."""
        return any(each.step is not None and each.step.on_end is OnEnd.FLUSH for each in self.steps)

    @property
    def code(self) -> object:
        return None if self.step is None else self.step.code

    @property
    def updating(self) -> bool:
        """Whether rows are the changes of an upstream's table, which updates and deletes them."""
        return self.upstream is not None and self.upstream.updating

    def with_mirror(self) -> "Stream":
        """The stream as it runs: one that reads an updating table without a stateful step mirrors that table."""
        if self.step is not None or self.upstream is None or not self.updating or self.keys:
            return self
        if self.event_time is not None:
            check_no_event_time(None, self.event_time.column)
        key, counted = self.upstream.row_key, self.upstream.row_key is None

        def build(inputs: Sequence[StepInput]) -> Operator:
            [rows] = inputs
            return _of_groups(rows, lambda keys, spec: Materializer.build(keys, spec, _where(rows), counted=counted))

        return replace(
            self, keys=row_work.key_columns(self.frame) if key is None else key, step=StatefulStep("where", build)
        )

    def where(self, condition: "str | Column") -> "Stream":
        """The rows that match a condition, in Spark's SQL or as a Column. Null is no match.

        If the rows are those of a table that updates them, a row that no longer matches is deleted here too. The
        condition must then depend on the row's values alone, so that its result is the same each time.

        Raises `InvalidPipelineError` for a condition on an updating table that depends on anything else, such as the
        time.
        """
        # The text of a Column has numbers of Spark's and Python's.
        describe = (lambda _: condition) if isinstance(condition, str) else None
        return self._with_work(lambda rows: rows.where(condition), describe)

    def select(self, *columns: "str | Column") -> "Stream":
        """These columns instead, each a name or an expression in Spark's SQL, or a Column.

            delays.key_by("carrier").aggregate(flights=agg.count()).select("carrier", "flights > 100 AS is_large")

        If the rows are those of a table that updates them, the columns must depend on the row's values alone.
        """
        return self._with_work(lambda rows: row_work.select_columns(rows, columns))

    def with_column(self, name: str, column: "str | Column") -> "Stream":
        """The rows with one more column, or with another in place of the one of that name. Otherwise as `select`.

        delays.with_column("is_late", "dep_delay > 15")
        """
        return self.with_columns({name: column})

    def with_columns(self, columns: "Mapping[str, str | Column]") -> "Stream":
        """As `with_column`, for several columns by name; none of them sees another."""
        return self._with_work(lambda rows: row_work.with_columns(rows, columns))

    def transform(self, function: "Callable[[DataFrame], DataFrame]") -> "Stream":
        """What a function makes of the rows with Spark's stateless operations. It may be called more than once.

            delays.transform(lambda rows: rows.join(carriers, "carrier", "left"))

        If the rows are those of a table that updates them, they have `_change_type`, which the function keeps as it is,
        and the result may depend on the row's values alone: no joins.
        """
        return self._with_work(function)

    def _with_work(self, work: Work, describe: "Callable[[DataFrame], str] | None" = None) -> "Stream":
        """This stream with stateless work on its rows. `describe` gives its text, None: as Spark's plan does."""
        if self.step is not None:
            return changes_of_step(self)._with_work(work, describe)  # noqa: SLF001  (another stream)
        if isinstance(self.frame, PlaceholderFrame):
            return self
        frame = work(self.frame)
        earlier = None if self.earlier is None else self.earlier.then(work)
        done = row_work.RowWork(self.frame, frame)
        if earlier is not None:
            done.check_partitions()
        if self.upstream is None or not self.updating:
            initial = None if self.initial is None else work(_in_order(self.initial, self.frame.columns))
            return replace(self, frame=frame, earlier=earlier, initial=initial)
        described = done.text if describe is None else describe(frame)
        done.check_judges_by_values(described or done.text)
        described = done.with_zone(described)
        key, texts = self.upstream.row_key, [each for each in (self.upstream.where, described) if each]
        upstream = Upstream(
            self.upstream.name,
            None if key is None else done.key_after(key),
            " AND ".join(f"({each})" for each in texts) if len(texts) > 1 else next(iter(texts), None),
            changes=True,
        )
        return replace(self, frame=frame, upstream=upstream, earlier=earlier)

    def to_df(self) -> "DataFrame":
        """The table as a DataFrame for a query. It has no rows yet: what is made of it is kept up to date.

            Stream(orders.to_df().groupBy("shop").count())

        The only way to a DataFrame of a table whose rows are updated and deleted: `frame` has its changes.
        """
        return as_dataframe(self)

    def with_watermark(self, column: str, delay: Duration, idle_after: Duration | None = None) -> "Stream":
        """Declare the column with a row's event time, a timestamp, and how late a row may come.

            Stream(departures(spark)).with_watermark("scheduled", "10 minutes", idle_after="1 minute")

        Of several inputs the slowest holds the watermark back; one without a row for `idle_after` is left out until its
        next row. Each step documents what it does with a row without an event time.

        If the rows are those of a table that updates and deletes them, a window follows: see `window`.
        """
        if self.step is not None:
            return changes_of_step(self).with_watermark(column, delay, idle_after)
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
        if self.step is not None:
            return changes_of_step(self).key_by(*columns, expire_after=expire_after)
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

        return self._with_step(
            StatefulStep("aggregate", build, compared_columns=_valued_columns(aggregations), code=code_of(aggregations))
        )

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

        If the rows are those of a table that updates and deletes them, a row that goes leaves its windows. With `early`
        no row is then late, and the table has the windows that have rows, as in SQL. Otherwise what comes or goes
        behind the watermark is late: the row of a closed window is final.
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
        return self._with_join("interval_join", other, on_end, IntervalJoin.build, lower_us, upper_us, how, late)

    def join(
        self,
        other: "Stream",
        expire_after: Duration | None = None,
        how: str = "inner",
        *,
        late: Literal["drop", "keep"] = "drop",
        on_end: Literal["keep", "flush"] = "keep",
    ) -> "Stream":
        """Rows of both with equal keys: the join of two tables, whose rows may come and go.

            orders.key_by("customer").join(customers.key_by("id"), how="left")

        Of a stream that only appends all rows stay; of one that updates and deletes rows they are joined as long as
        they are there. A row that `how` keeps without a match is there until it has one, and again when it has none.
        `how` and the columns as in `interval_join`. All rows are kept, so the state grows with the inputs.

            delays.key_by("flight").join(gates.key_by("flight"), expire_after="2 hours")

        With `expire_after` rows match whose event times differ by at most that: so long each row is kept. Both streams
        then only append, and have a watermark. Which rows match does not depend on when they come, as long as they are
        not late. Otherwise as `interval_join`; `late` and `on_end` are for this join alone.
        """
        if expire_after is None:
            return self._joined_tables(other, how, late, on_end)
        reach_us = microseconds(expire_after, "expire_after")
        return self._with_join("join", other, on_end, IntervalJoin.expiring, reach_us, how, late)

    def _joined_tables(self, other: "Stream", how: str, late: str, on_end: str) -> "Stream":
        """The join without a bound in time."""
        if (late, on_end) != ("drop", "keep"):
            raise InvalidPipelineError(
                "without expire_after no row of a join is late or waits for the end: leave late and on_end out, or "
                f"give expire_after. late={late!r}, on_end={on_end!r}"
            )
        for stream in (self, other):
            if stream.event_time is not None and stream.step is None:
                raise InvalidPipelineError(
                    "a join without expire_after keeps all rows, whatever their event time: give expire_after, or "
                    f"leave with_watermark out. column={stream.event_time.column}"
                )

        def build(inputs: Sequence[StepInput]) -> Operator:
            specs, keys, _ = _sides(inputs)
            row_keys = [None if each.upstream is None else each.upstream.row_key for each in inputs]
            return RegularJoin.build(specs, keys, how, row_keys, [_where(each) for each in inputs])

        return self._with_step(StatefulStep(UNBOUNDED_JOIN, build, (other,)))

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
        return self._with_join("instant_join", other, on_end, WindowedJoin.build, None, how, late)

    def window_join(
        self,
        other: "Stream",
        window: FixedWindow,
        how: str = "inner",
        *,
        late: Literal["drop", "keep"] = "drop",
        on_end: Literal["keep", "flush"] = "keep",
    ) -> "Stream":
        """Rows of both with equal keys in the same `tumbling` or `hopping` window, once the window is over.

            clicks.key_by("user").window_join(orders.key_by("user"), tumbling("10 minutes"))

        `how`, `late` and `on_end` as in `interval_join`.
        """
        return self._with_join("window_join", other, on_end, WindowedJoin.build, window, how, late)

    def _with_join(
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
        """One row of each key: the first one that is seen, or the newest by event time (`keep="last"`).

        If the rows are those of a table that updates and deletes them, the next row takes the place of one that is
        gone; the order is `by`, since such rows have no event time.

            customers.key_by("id").deduplicate(keep="last", by="version")

        `by` names columns that say which row is earlier in place of the event time, such as the version of a record:
        the first of them decides, then the next. Ties go by the event time, then by the other columns in their order.
        With `"first"` an earlier row of a later epoch takes the place, so; without `by` the row seen first stays.

        With `expire_after` a key is forgotten that much event time after its row. With `"first"` the table then grows
        by a row for each life of a key; with `"last"` the row leaves the table.
        """
        expire_after_us = None if expire_after is None else microseconds(expire_after, "expire_after")
        order = () if by is None else (by,) if isinstance(by, str) else tuple(by)

        def build(inputs: Sequence[StepInput]) -> Operator:
            [rows] = inputs
            if rows.upstream is not None and rows.upstream.updating:
                check_keys_stay(expire_after_us)
                check_expiry("deduplicate", None, late, None, rows.spec.schema)
                return _top(rows, Best.for_deduplicate(keep, order))
            return Deduplicate.build(rows.keys, rows.spec, keep, rows.event_time, expire_after_us, late, order)

        return self._with_step(StatefulStep("deduplicate", build, compared_columns=order, on_end=OnEnd(on_end)))

    def top(
        self,
        n: int,
        by: str | Sequence[str],
        *,
        ties: Literal["rows", "rank", "dense_rank"] = "rows",
        rank: str | None = None,
    ) -> "Stream":
        """The first `n` rows of each key in an order, or of all rows without `key_by`.

            flights.key_by("carrier").top(3, by="dep_delay desc", rank="place")

        `by` is spelled as after ORDER BY in Spark's SQL, a text for each column: `asc` or `desc`, which is never left
        out, then `nulls first` or `nulls last`. Rows that tie are ordered by their other columns. With `ties="rank"`
        they have one rank, as in SQL, and there may be more than `n`; with `"dense_rank"` ranks have no gaps. `rank`
        names a column to have the rank in. When a row goes, the next one comes up.
        """
        best = Best(n, by, ties, rank)
        if not by:
            raise InvalidPipelineError(f"top needs an order: by='delay desc', or a list of these. by={by!r}")

        def build(inputs: Sequence[StepInput]) -> Operator:
            [rows] = inputs
            return _top(rows, best)

        return self._with_step(StatefulStep("top", build, compared_columns=names_in_order(by)))

    def over(self, by: str | Sequence[str], /, **functions: Over) -> "Stream":
        """The rows with functions over their partition, the rows of one key in an order; without `key_by` of all rows.

            flights.key_by("carrier").over(
                "departed_at asc",
                flight=over.row_number(),
                delay_before=over.lag("dep_delay"),
                mean_of_ten=over.avg("dep_delay", rows=(-9, 0)),
            )

        `by` is spelled as in `top`, and rows that tie are ordered by their other columns. When a row comes or goes, the
        rows whose values it changes are emitted again, and no others: of `lag`, `lead` and bounded frames a few, of
        `row_number` and running totals all after it.
        """

        def build(inputs: Sequence[StepInput]) -> Operator:
            [rows] = inputs
            options = _of_upstream(rows)
            return _of_groups(rows, lambda keys, spec: OverPartition.build(keys, spec, by, functions, **options))

        given: Iterable[object] = functions.values()  # what is no function is refused later, with its name
        overs = [one for one in given if isinstance(one, Over)]
        least = [one.column for one in overs if one.function in {"min", "max"} and one.column is not None]
        return self._with_step(StatefulStep("over", build, compared_columns=(*names_in_order(by), *least)))

    def distinct(self) -> "Stream":
        """Each row once, compared by all columns as SQL does: null equals null. -0.0 becomes 0.0.

            flights.select("origin", "dest").distinct()

        Rows that only come are appended when they are first there, and every distinct row is kept for that.
        """

        def build(inputs: Sequence[StepInput]) -> Operator:
            [rows] = inputs
            return Distinct.build(rows.spec, _where(rows), rows.event_time)

        return self._with_step(StatefulStep("distinct", build))

    def union(self, other: "Stream") -> "Stream":
        """All rows of both, as SQL's UNION ALL; both have the same columns, in the same order."""

        def build(inputs: Sequence[StepInput]) -> Operator:
            return UnionAll.build(*_whole(inputs))

        return self._with_step(StatefulStep("union", build, (other,)))

    def intersect(self, other: "Stream") -> "Stream":
        """The distinct rows that both have, compared by all columns. Otherwise as `union` and `distinct`."""
        return self._set_operation(Kind.INTERSECT, other)

    def intersect_all(self, other: "Stream") -> "Stream":
        """SQL INTERSECT ALL: a row that is l times in one and r times in the other is min(l, r) times in the result."""
        return self._set_operation(Kind.INTERSECT_ALL, other)

    def subtract(self, other: "Stream") -> "Stream":
        """SQL's EXCEPT: distinct rows, retracted when `other` gains the row. Otherwise as `intersect`."""
        return self._set_operation(Kind.SUBTRACT, other)

    def except_all(self, other: "Stream") -> "Stream":
        """The rows less those of the other: one that they have l and r times is there l - r times, if any are left."""
        return self._set_operation(Kind.EXCEPT_ALL, other)

    def _set_operation(self, kind: Kind, other: "Stream") -> "Stream":
        def build(inputs: Sequence[StepInput]) -> Operator:
            specs, wheres, times = _whole(inputs)
            return SetOperation.build(specs, kind, wheres, times)

        return self._with_step(StatefulStep(kind, build, (other,)))

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
        if self.step is not None:
            return changes_of_step(self)._with_step(step)  # noqa: SLF001  (another stream)
        others = tuple(changes_of_step(each) if each.step is not None else each for each in step.others)
        if step.name in WHOLE_ROWS:
            return replace(
                _by_all_columns(self, step.name),
                step=replace(step, others=tuple(_by_all_columns(each, step.name) for each in others)),
            )
        step = replace(step, others=others)
        for number, stream in enumerate((self, *step.others)):
            _refuse_updating(stream, step.name)
            if not stream.keys and step.name not in _KEYS_OPTIONAL:
                which = "" if number == 0 else " of the other stream"
                raise InvalidPipelineError(
                    f"{step.name} needs key columns: call key_by(column, ...){which} before it. step={step.name}"
                )
            if stream.expire_after_us is not None and step.name not in _EXPIRING:
                raise InvalidPipelineError(
                    f"{step.name} expires rows itself: leave expire_after out of key_by. step={step.name}"
                )
        return replace(self, step=step)


def global_aggregate(stream: Stream, aggregations: Mapping[str, Aggregation]) -> Stream:
    """As `Stream.aggregate` without keys, but the row is there from the first epoch on, as in SQL.

    Before there are rows a count in it is 0, and all else is null.
    """

    def build(inputs: Sequence[StepInput]) -> Operator:
        [rows] = inputs
        updating = rows.upstream is not None and rows.upstream.updating
        options: dict[str, Any] = {"updating": updating, "where": _where(rows)}
        return _of_groups(
            rows, lambda keys, spec: RunningAggregate.build(keys, aggregations, spec, **options).lasting()
        )

    step = StatefulStep("aggregate", build, compared_columns=_valued_columns(aggregations), code=code_of(aggregations))
    return stream._with_step(step)  # noqa: SLF001  (a step that Stream has no method for)


def _in_order(rows: "DataFrame", columns: Sequence[str]) -> "DataFrame":
    """The rows with their columns in this order, if they have these: what is done with both may go by their places."""
    from pyspark.sql import functions as F

    if rows.columns == columns or sorted(rows.columns) != sorted(columns):
        return rows
    # By number: Spark reads a dot in a name as a field.
    by_number = {name: f"_column_{number}" for number, name in enumerate(rows.columns)}
    return rows.toDF(*by_number.values()).select(*(F.col(by_number[name]).alias(name) for name in columns))


def with_query_work(stream: Stream, work: Work, text: str) -> Stream:
    """The stream with stateless work of a query on its rows; `text` is what the step's fingerprint has of it."""
    worked = stream._with_work(work, lambda _: text)  # noqa: SLF001  (work with a text of its own)
    return worked if worked.updating else replace(worked, work=text)


def unwrap_last_step(stream: Stream) -> Stream:
    """The stream that ends in a step, where this one follows it and nothing was done with its changes."""
    if stream.step is not None or stream.earlier is None or stream.earlier.work or stream.keys or stream.event_time:
        return stream
    return stream.earlier.stream


class PlaceholderFrame:
    """Stands for the rows of a source that is not read yet: any column may be there."""


def rows_of(stream: Stream) -> Stream:
    """The stream of the rows of a table: downstream of the step, where the stream ends in one."""
    return stream if stream.step is None else changes_of_step(stream)


def changes_of_step(stream: Stream) -> Stream:
    """The stream of a step's changes, for the next step. Its frame only stands for them: it has their columns."""
    from dagster_ckpt.runtime.declared.step_operator import declared_operator  # it loads Spark

    assert stream.step is not None, "only a step has changes"
    if stream.columns:
        renamed = [f"{quote(own)} AS {quote(name)}" for name, own in stream.columns]
        return changes_of_step(replace(stream, columns=())).select(*renamed)
    if isinstance(stream.frame, PlaceholderFrame):
        return Stream(stream.frame, earlier=Earlier(stream, stream.frame))
    pipeline = declared_operator(stream).pipeline
    frame = row_work.stand_in(stream.frame.sparkSession, changes_schema(pipeline))
    upstream = None if pipeline.appends else Upstream(stream.step.name, row_key(pipeline), changes=True)
    return Stream(frame, upstream=upstream, earlier=Earlier(stream, frame))


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

        before = self.stream.earlier
        joined = before is not None and before.stream.step is not None and before.stream.step.name == UNBOUNDED_JOIN
        fixed = not isinstance(self.window, Session)
        never_late = self.early and fixed and (self.stream.updating or joined)

        def build(inputs: Sequence[StepInput]) -> Operator:
            [rows] = inputs
            updating = rows.upstream is not None and rows.upstream.updating
            if updating or never_late:
                time = time_of_window(rows.event_time, rows.spec.schema)
                of_table = WindowOptions(self.window, aggregations, time, self.early, self.late)
                where = _where(rows)
                return _of_groups(
                    rows, lambda keys, spec: WindowOfTable.build(keys, of_table, spec, updating=updating, where=where)
                )
            options = (rows.event_time, self.window, self.early, self.late)
            kind = WindowAggregate if fixed else SessionAggregate
            return _of_groups(rows, lambda keys, spec: kind.build(keys, aggregations, spec, *options))

        compared = _valued_columns(aggregations)
        code = code_of(aggregations)
        step = StatefulStep(
            "window", build, compared_columns=compared, on_end=self.on_end, code=code, never_late=never_late
        )
        return self.stream._with_step(step)  # noqa: SLF001  (one class in two steps)


def _by_all_columns(stream: Stream, step: str) -> Stream:
    """The stream, brought together by all columns that can be a key."""
    if stream.keys:
        raise InvalidPipelineError(
            f"{step} compares whole rows: leave key_by out. step={step}, keys={', '.join(stream.keys)}"
        )
    _refuse_updating(stream, step)
    return (
        stream
        if isinstance(stream.frame, PlaceholderFrame)
        else replace(stream, keys=row_work.key_columns(stream.frame))
    )


def _of_groups(rows: StepInput, build: Callable[[tuple[str, ...], InputSpec], Operator]) -> Operator:
    """The operator that `build` makes of the keys, or of one group where there are none."""
    return build(rows.keys, rows.spec) if rows.keys else one_group(rows.spec, build)


def _top(rows: StepInput, best: Best) -> Operator:
    options = _of_upstream(rows)
    return _of_groups(rows, lambda keys, spec: Top.build(keys, spec, best, **options))


def _of_upstream(rows: StepInput) -> dict[str, Any]:
    """What steps over ordered rows have to know of a table that they read."""
    upstream = rows.upstream
    key, updating = (None, False) if upstream is None else (upstream.row_key, upstream.updating)
    return {"input_key": key, "updating": updating, "where": _where(rows)}


def _refuse_updating(stream: Stream, step: str) -> None:
    """Raise `InvalidPipelineError` where the step cannot follow the changes of an updating upstream."""
    if stream.upstream is not None and stream.updating:
        with naming(upstream=stream.upstream.name):
            check_step(step, stream.keys, stream.upstream.row_key)
            if stream.event_time is not None:
                check_no_event_time(step, stream.event_time.column)


def _where(rows: StepInput) -> str | None:
    return None if rows.upstream is None or not rows.upstream.updating else rows.upstream.where


def _sides(
    inputs: Sequence[StepInput],
) -> tuple[list[InputSpec], list[tuple[str, ...]], list[str | None]]:
    """The specs, keys and event times of a join's inputs."""
    return [each.spec for each in inputs], [each.keys for each in inputs], [each.event_time for each in inputs]


def _whole(
    inputs: Sequence[StepInput],
) -> tuple[list[InputSpec], list[str | None], list[str | None]]:
    """The specs, conditions and event times of the inputs of a set operation."""
    return [each.spec for each in inputs], list(map(_where, inputs)), [each.event_time for each in inputs]


def _check_some(aggregations: Mapping[str, Aggregation]) -> None:
    """Raise `InvalidPipelineError` where there is nothing to compute."""
    if not aggregations:
        raise InvalidPipelineError("an aggregate needs something to compute, such as rows=agg.count(). got=nothing")


def _valued_columns(aggregations: Mapping[str, object]) -> tuple[str, ...]:
    """The columns whose values are compared. A count compares none."""
    named = [one for one in aggregations.values() if isinstance(one, Aggregation)]  # the others are refused later
    valued = [one for one in named if one.function != "count"]
    return tuple(name for one in valued for name in one.read)
