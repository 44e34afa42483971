"""The steps of a stream, in their order: each is a method of `Stream`, or a selection of Spark's before it.

`key_by: [carrier]` is `.key_by("carrier")`. Joins, set operations and process functions are not here:
they need a second stream or Python, so a function declares them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

import dagster as dg
from pydantic import BaseModel, ConfigDict

from dagster_ckpt.errors import InvalidPipelineError, naming
from dagster_ckpt.integration.component.functions import Aggregations, OverFunctions
from dagster_ckpt.integration.component.templates import render_all, text, texts, texts_by_name
from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.operators.shared.window_kinds import Window, hopping, session, tumbling
from dagster_ckpt.runtime.declared.stream import PlaceholderFrame, Stream, WindowedStream

Late = Literal["drop", "keep"]
OnEnd = Literal["keep", "flush"]
Unfinished = Stream | WindowedStream
"""A stream between two steps: after `window`, only `aggregate` follows."""

_LATE = dg.Resolver.default(description="Whether late rows are only counted, or also kept for inspection.")
_ON_END = dg.Resolver.default(
    description="What waits for the watermark when an available_now run has processed its input: kept, or emitted."
)


class WatermarkStep(dg.Model, dg.Resolvable):
    """The column with a row's event time, and how late a row may come."""

    column: Annotated[str, text("The column with the event time: a timestamp.")]
    delay: Annotated[str, text("How much later than the newest row a row may come.")]
    idle_after: Annotated[
        str | None,
        text("Leave the input out of the watermark after so long without a row."),
    ] = None


class KeyByStep(dg.Model, dg.Resolvable):
    """The columns of the key. Write a list for the columns alone."""

    columns: Annotated[list[str], texts("The key columns, at least one.")]
    expire_after: Annotated[str | None, text("Forget a key so long in event time after its last row.")] = None


class WindowStep(dg.Model, dg.Resolvable):
    """Windows of event time, of one kind: tumbling, hopping or session. The next step is aggregate."""

    tumbling: Annotated[str | None, text("The size of adjacent windows.")] = None
    hopping: Annotated[str | None, text("The size of windows that overlap.")] = None
    session: Annotated[str | None, text("The silence after which a session ends.")] = None
    slide: Annotated[str | None, text("The time between two hopping windows.")] = None
    offset: Annotated[str | None, text("Windows begin at the Unix epoch (UTC) plus this.")] = None
    early: Annotated[bool, dg.Resolver.default(description="Show a window from its first row on.")] = False
    late: Annotated[Late, _LATE] = "drop"
    on_end: Annotated[OnEnd, _ON_END] = "keep"

    @property
    def window(self) -> Window:
        """The window that these options describe. Raises `InvalidPipelineError` where they do not fit together."""
        given = [kind for kind in ("tumbling", "hopping", "session") if getattr(self, kind) is not None]
        if len(given) != 1:
            raise InvalidPipelineError(
                f"a window is of one kind: give one of tumbling, hopping and session, with its length. given={given}"
            )
        if (self.slide is not None) != (self.hopping is not None):
            raise InvalidPipelineError(
                "hopping windows have a slide, and no others: write {hopping: 1 hour, slide: 15 minutes}. "
                f"kind={given[0]}, slide={self.slide}"
            )
        if self.session is not None:
            if self.offset is not None:
                raise InvalidPipelineError(f"sessions begin with their rows: leave out offset. offset={self.offset}")
            return session(self.session)
        offset = self.offset or "0s"
        if self.hopping is not None:
            return hopping(self.hopping, self.slide or "", offset)
        return tumbling(self.tumbling or "", offset)


class DeduplicateStep(dg.Model, dg.Resolvable):
    """One row of each key."""

    keep: Annotated[
        Literal["first", "last"], dg.Resolver.default(description="The first row, or the newest by event time.")
    ] = "first"
    by: Annotated[list[str] | None, texts("Columns that say which row is newer, before the event time.")] = None
    expire_after: Annotated[str | None, text("Forget a key so long in event time after its row.")] = None
    late: Annotated[Late, _LATE] = "drop"
    on_end: Annotated[OnEnd, _ON_END] = "keep"


class TopStep(dg.Model, dg.Resolvable):
    """The first rows of each key in an order, or of all rows without a key."""

    n: Annotated[int, dg.Resolver.default(description="How many rows of each key.")]
    by: Annotated[list[str], texts("The order: columns with asc or desc.", examples=[["delay desc"]])]
    ties: Annotated[
        Literal["rows", "rank", "dense_rank"],
        dg.Resolver.default(description="Rows that tie: ordered by their other columns, or with one rank."),
    ] = "rows"
    rank: Annotated[str | None, text("A column to have the rank in.")] = None


class OverStep(dg.Model, dg.Resolvable):
    """Each row with functions over its partition, the rows of its key in an order; without a key all rows."""

    by: Annotated[list[str], texts("The order: columns with asc or desc.", examples=[["departed_at asc"]])]
    functions: OverFunctions


class DistinctStep(dg.Model, dg.Resolvable):
    """Each row once, compared by all columns. It has no options: write {}."""


def _key_by(context: dg.ResolutionContext, given: Sequence[str] | BaseModel) -> KeyByStep:
    if isinstance(given, BaseModel):
        resolved: KeyByStep = KeyByStep.resolve_from_model(context, given)
        return resolved
    return KeyByStep(columns=render_all(context, given))


class Step(dg.Model, dg.Resolvable):
    """One step of a stream. Give exactly one of these."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    where: Annotated[
        str | None,
        text("Keep the rows that match a condition in Spark SQL.", examples=["dep_delay IS NOT NULL"]),
    ] = None
    select: Annotated[
        list[str] | None,
        texts("The columns from here on, as expressions in Spark SQL.", examples=[["carrier", "time AS at"]]),
    ] = None
    with_columns: Annotated[
        dict[str, str] | None,
        texts_by_name(
            "Columns added or replaced, each an expression in Spark SQL.",
            examples=[{"is_late": "dep_delay > 15"}],
        ),
    ] = None
    with_watermark: Annotated[
        WatermarkStep | None,
        dg.Resolver.default(
            description="The column with the event time, and how late a row may come.",
            examples=[{"column": "at", "delay": "10 minutes"}],
        ),
    ] = None
    key_by: Annotated[
        KeyByStep | None,
        dg.Resolver(
            _key_by,
            model_field_type=list[str] | KeyByStep.model(),
            description="Bring the rows of one key together.",
            examples=[["carrier"], {"columns": ["user"], "expire_after": "30 days"}],
        ),
    ] = None
    window: Annotated[
        WindowStep | None,
        dg.Resolver.default(
            description="Group rows by windows of event time; aggregate follows.",
            examples=[{"tumbling": "15 minutes"}, {"hopping": "1 hour", "slide": "15 minutes"}],
        ),
    ] = None
    aggregate: Annotated[
        Aggregations | None,
        dg.Resolver.default(
            description="One row for each key, or over everything: a column for each aggregate, by its name.",
            examples=[{"flights": "count()", "mean_delay": {"avg": "dep_delay"}}],
        ),
    ] = None
    deduplicate: Annotated[
        DeduplicateStep | None,
        dg.Resolver.default(description="One row of each key; {} for the first one.", examples=[{"keep": "last"}]),
    ] = None
    top: Annotated[
        TopStep | None,
        dg.Resolver.default(
            description="The first rows of each key in an order.", examples=[{"n": 3, "by": ["delay desc"]}]
        ),
    ] = None
    over: Annotated[
        OverStep | None,
        dg.Resolver.default(
            description="Each row with functions over its partition, as by SQL's OVER.",
            examples=[{"by": ["at asc"], "functions": {"flight": "row_number()", "before": {"lag": "delay"}}}],
        ),
    ] = None
    distinct: Annotated[
        DistinctStep | None, dg.Resolver.default(description="Each row once; {} for that.", examples=[{}])
    ] = None

    @classmethod
    def model(cls) -> type[BaseModel]:
        """The derived model. Its JSON schema also says that a step is one of the fields."""
        derived = super().model()
        # Dagster 1.13.0 leaves it out.
        extra: Any = derived.model_config.get("json_schema_extra") or {}
        derived.model_config["json_schema_extra"] = {**extra, "minProperties": 1, "maxProperties": 1}
        return derived

    @property
    def name(self) -> str:
        """The step that is given. Raises `InvalidPipelineError` for none and for several."""
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise InvalidPipelineError(
                f"an item of steps is one step: write each as an item of its own, with a dash. given={given}"
            )
        return given[0]

    def apply(self, stream: Unfinished) -> Unfinished:
        """The stream after this step. Raises `InvalidPipelineError` where the step cannot stand here."""
        name = self.name
        if isinstance(stream, WindowedStream):
            if self.aggregate is None:
                raise InvalidPipelineError(f"only aggregate follows window: put {name} before window. step={name}")
            return stream.aggregate(**self.aggregate)
        return _METHODS[name](stream, getattr(self, name))


def _select(stream: Stream, columns: Sequence[str]) -> Stream:
    return stream.select(*columns)


def _with_watermark(stream: Stream, given: WatermarkStep) -> Stream:
    return stream.with_watermark(given.column, given.delay, given.idle_after)


def _keyed(stream: Stream, given: KeyByStep) -> Stream:
    return stream.key_by(*given.columns, expire_after=given.expire_after)


def _window(stream: Stream, given: WindowStep) -> WindowedStream:
    return stream.window(given.window, early=given.early, late=given.late, on_end=given.on_end)


def _aggregate(stream: Stream, aggregations: Mapping[str, Aggregation]) -> Stream:
    return stream.aggregate(**aggregations)


def _deduplicate(stream: Stream, given: DeduplicateStep) -> Stream:
    return stream.deduplicate(given.keep, given.expire_after, by=given.by, late=given.late, on_end=given.on_end)


def _top(stream: Stream, given: TopStep) -> Stream:
    return stream.top(given.n, given.by, ties=given.ties, rank=given.rank)


def _over(stream: Stream, given: OverStep) -> Stream:
    return stream.over(given.by, **given.functions)


def _distinct(stream: Stream, _: DistinctStep) -> Stream:
    return stream.distinct()


_METHODS: Mapping[str, Callable[[Stream, Any], Unfinished]] = {
    "where": Stream.where,
    "select": _select,
    "with_columns": Stream.with_columns,
    "with_watermark": _with_watermark,
    "key_by": _keyed,
    "window": _window,
    "aggregate": _aggregate,
    "deduplicate": _deduplicate,
    "top": _top,
    "over": _over,
    "distinct": _distinct,
}


def apply_steps(stream: Stream, steps: Sequence[Step]) -> Stream:
    """The stream after all steps. Raises `InvalidPipelineError`, with the number of the step (the first is 1)."""
    done: Unfinished = stream
    for number, step in enumerate(steps, start=1):
        with naming(number=str(number)):
            done = step.apply(done)
    if isinstance(done, WindowedStream):
        raise InvalidPipelineError("window needs aggregate as the next step: add it. step=window")
    if done.keys and done.step is None:
        raise InvalidPipelineError(
            "keys alone do nothing: add aggregate, deduplicate, top or over after key_by, or leave key_by out. "
            f"keys={', '.join(done.keys)}"
        )
    return done


def check_steps(steps: Sequence[Step]) -> None:
    """Raise `InvalidPipelineError` for what is wrong with the steps, as far as that is known without Spark."""
    unread: Any = PlaceholderFrame()
    done = apply_steps(Stream(unread), steps)
    if done.event_time is None and (waiting := next(filter(None, map(_needs_event_time, steps)), None)):
        raise InvalidPipelineError(
            f"{waiting} needs event time: add with_watermark with a column and a delay before it. step={waiting}"
        )


def _needs_event_time(step: Step) -> str | None:
    """The step or option that waits for the watermark; None for a step without one."""
    if step.window is not None:
        return "window"
    expiring = step.key_by or step.deduplicate
    return "expire_after" if expiring is not None and expiring.expire_after is not None else None
