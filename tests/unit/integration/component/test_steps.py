"""A step in YAML is the same step in Python: both make the same pipeline."""

from dataclasses import dataclass, field
from textwrap import dedent
from typing import Any, ClassVar, cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from dagster_ckpt import InvalidPipelineError, Stream, agg, hopping, over, session, tumbling
from dagster_ckpt.integration.component.functions import OverAttributes, build_aggregation, build_over
from dagster_ckpt.integration.component.steps import Step, apply_steps, check_steps
from dagster_ckpt.integration.component.streaming_component import StreamingComponent
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline, SourceIdentity
from dagster_ckpt.runtime.declared.step_parts import StepInput
from dagster_ckpt.runtime.declared.stream import PlaceholderFrame
from tests.unit.integration.component.defs_folder import WARNINGS_OF_DAGSTER

pytestmark = WARNINGS_OF_DAGSTER

COLUMNS = pa.schema({"user": "string", "amount": "int64", "version": "int64", "at": pa.timestamp("us", "UTC")})


@dataclass(frozen=True)
class Frame:
    """A DataFrame that only records what is done to it."""

    calls: tuple[tuple[str, Any], ...] = field(default=())

    def where(self, condition: str) -> "Frame":
        return Frame((*self.calls, ("where", condition)))

    def selectExpr(self, *columns: str) -> "Frame":  # noqa: N802
        return Frame((*self.calls, ("select", columns)))

    columns: ClassVar = ["amount", "user"]


def rows() -> Stream:
    return Stream(cast(DataFrame, Frame()))


def steps_of(text: str) -> list[Step]:
    text = "asset: {key: a}\nsource: {format: rate}\nsteps:\n" + dedent(text).strip("\n")
    component: StreamingComponent = StreamingComponent.resolve_from_yaml(text)
    return component.steps


def pipeline_of(stream: Stream) -> tuple[Pipeline, bool]:
    """The fingerprint of the stream's operator, and whether it flushes."""
    assert stream.step is not None
    time = None if stream.event_time is None else stream.event_time.column
    given = StepInput(InputSpec((SourceIdentity("rate", ""),), COLUMNS), stream.keys, time)
    return stream.step.build([given]).pipeline, stream.flushes


def test_expressions_before_a_step_reach_spark_in_their_order() -> None:
    steps = steps_of("""
        - where: amount > 0
        - select: ["*", "amount * 2 AS twice"]
        - where: user = 'UA'
    """)
    frame: Any = apply_steps(rows(), steps).frame
    assert frame.calls == (
        ("where", "amount > 0"),
        ("select", ("*", "amount * 2 AS twice")),
        ("where", "user = 'UA'"),
    )


TIMED = rows().with_watermark("at", "1 hour", "5 minutes")


@pytest.mark.parametrize(
    ("text", "stream"),
    [
        (
            """
            - key_by: [user]
            - aggregate:
                n: count()
                total: {sum: amount}
                last: {last: amount, by: version}
                some: {collect: amount, limit: 3, by: version}
                row: {last: [amount, user], by: version}
            """,
            rows()
            .key_by("user")
            .aggregate(
                n=agg.count(),
                total=agg.sum("amount"),
                last=agg.last("amount", "version"),
                some=agg.collect("amount", 3, "version"),
                row=agg.last(["amount", "user"], "version"),
            ),
        ),
        ("- aggregate: {n: {count: user}}", rows().aggregate(n=agg.count("user"))),
        (
            """
            - with_watermark: {column: at, delay: 1 hour, idle_after: 5 minutes}
            - key_by: {columns: [user, version], expire_after: 30 days}
            - aggregate: {n: count()}
            """,
            TIMED.key_by("user", "version", expire_after="30 days").aggregate(n=agg.count()),
        ),
        (
            """
            - with_watermark: {column: at, delay: 1 hour, idle_after: 5 minutes}
            - key_by: [user]
            - window: {tumbling: 15 minutes, offset: 1 minute, late: keep, on_end: flush}
            - aggregate: {n: count()}
            """,
            TIMED.key_by("user")
            .window(tumbling("15 minutes", "1 minute"), late="keep", on_end="flush")
            .aggregate(n=agg.count()),
        ),
        (
            """
            - with_watermark: {column: at, delay: 1 hour}
            - window: {hopping: 1 hour, slide: 15 minutes, early: true}
            - aggregate: {n: count()}
            """,
            TIMED.window(hopping("1 hour", "15 minutes"), early=True).aggregate(n=agg.count()),
        ),
        (
            """
            - with_watermark: {column: at, delay: 1 hour}
            - key_by: [user]
            - window: {session: 30 minutes}
            - aggregate: {n: count()}
            """,
            TIMED.key_by("user").window(session("30 minutes")).aggregate(n=agg.count()),
        ),
        (
            """
            - with_watermark: {column: at, delay: 1 hour}
            - key_by: [user]
            - deduplicate: {}
            """,
            TIMED.key_by("user").deduplicate(),
        ),
        (
            """
            - with_watermark: {column: at, delay: 1 hour}
            - key_by: [user]
            - deduplicate: {keep: last, by: [at, version], expire_after: 1 day, late: keep, on_end: flush}
            """,
            TIMED.key_by("user").deduplicate("last", "1 day", by=["at", "version"], late="keep", on_end="flush"),
        ),
        (
            """
            - key_by: [user]
            - top: {n: 3, by: [amount desc nulls last, version asc], ties: dense_rank, rank: place}
            """,
            rows().key_by("user").top(3, ["amount desc nulls last", "version asc"], ties="dense_rank", rank="place"),
        ),
        ("- top: {n: 1, by: [amount asc]}", rows().top(1, ["amount asc"])),
        (
            """
            - key_by: [user]
            - over:
                by: [at asc, version desc]
                functions:
                  place: row_number()
                  before: {lag: amount, offset: 2, default: 0}
                  third: {nth_value: amount, n: 3, rows: [null, null]}
                  bucket: {ntile: 4}
                  mean: {avg: amount, rows: [-9, 0]}
                  total: {sum: amount, range: [null, 0]}
                  near: {count: "*", rows: [-1, 1]}
                  some: {count: version}
            """,
            rows()
            .key_by("user")
            .over(
                ["at asc", "version desc"],
                place=over.row_number(),
                before=over.lag("amount", 2, 0),
                third=over.nth_value("amount", 3, rows=(None, None)),
                bucket=over.ntile(4),
                mean=over.avg("amount", rows=(-9, 0)),
                total=over.sum("amount", range=(None, 0)),
                near=over.count(rows=(-1, 1)),
                some=over.count("version"),
            ),
        ),
        ("- over: {by: [at asc], functions: {n: count()}}", rows().over(["at asc"], n=over.count())),
    ],
    ids=[
        "aggregate",
        "global",
        "expire_after",
        "tumbling",
        "hopping",
        "session",
        "deduplicate",
        "deduplicate-last",
        "top",
        "top-of-all",
        "over",
        "over-all",
    ],
)
def test_a_step_makes_the_pipeline_of_its_method(text: str, stream: Stream) -> None:
    steps = steps_of(text)
    check_steps(steps)
    assert pipeline_of(apply_steps(rows(), steps)) == pipeline_of(stream)


def test_a_watermark_has_its_column_delay_and_idle_time() -> None:
    [step] = steps_of("- with_watermark: {column: at, delay: 1 hour, idle_after: 5 minutes}")
    assert apply_steps(rows(), [step]).event_time == TIMED.event_time


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ("count", r"write count\(\) for the number of rows.*aggregate=made, given=count"),
        ({}, r"one function of a column.*aggregate=made, given=\[\]"),
        ({"sum": "a", "avg": "a"}, r"one function of a column.*given=\['sum', 'avg'\]"),
        ({"collect": "a"}, r"collect takes \['limit', 'by', 'since'\].*options=\[\], missing=\['limit'\]"),
        ({"sum": "a", "by": "b"}, r"sum takes \['since'\].*options=\['by'\], missing=\[\]"),
    ],
)
def test_an_aggregate_that_does_not_fit_is_refused(given: Any, error: str) -> None:
    with pytest.raises(InvalidPipelineError, match=error):
        build_aggregation("made", given)


@pytest.mark.parametrize("function", over.Function)
def test_every_function_over_a_partition_has_its_name(function: over.Function) -> None:
    makes = getattr(over, function)
    if function in {"row_number", "rank", "dense_rank", "percent_rank", "cume_dist"}:
        assert build_over("made", f"{function}()") == makes()
        return
    first, options = (4, {}) if function == "ntile" else ("amount", {"n": 2} if function == "nth_value" else {})
    assert build_over("made", {str(function): first, **options}) == makes(first, **options)
    assert function in OverAttributes.model_fields


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ("lag", r"write row_number\(\), .*count\(\), and any other function with its column.*over=made, given=lag"),
        ({}, r"one function of a column.*over=made, given=\[\]"),
        ({"row_number": "a"}, r"one function of a column.*given=\['row_number'\]"),
        ({"nth_value": "a"}, r"nth_value takes \['n', 'rows', 'range'\].*options=\[\], missing=\['n'\]"),
        ({"lag": "a", "rows": [0, 0]}, r"lag takes \['offset', 'default'\].*options=\['rows'\]"),
        ({"ntile": 3, "n": 3}, r"ntile takes \[\].*options=\['n'\]"),
    ],
)
def test_a_function_over_a_partition_that_does_not_fit_is_refused(given: Any, error: str) -> None:
    with pytest.raises(InvalidPipelineError, match=error):
        build_over("made", given)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("- where: a > 1\n  select: [a]", r"write each as an item of its own.*given=\['where', 'select'\], number=1"),
        ("- key_by: []", r"key_by needs at least one column.*number=1"),
        ("- key_by: [a]\n- key_by: [b]", "call key_by once.*number=2"),
        ("- key_by: [a]", "keys alone do nothing: add aggregate, deduplicate, top or over.*keys=a"),
        ("- aggregate: {}", "an aggregate needs something to compute.*number=1"),
        ("- top: {n: 1, by: []}", "top needs an order.*number=1"),
        ("- deduplicate: {}", "deduplicate needs key columns.*number=1"),
        ("- window: {tumbling: 1 hour}", "window needs aggregate as the next step"),
        ("- window: {tumbling: 1 hour}\n- where: a > 1", "only aggregate follows window: put where before.*number=2"),
        ("- window: {tumbling: 1 hour}\n- aggregate: {n: count()}", "window needs event time: add with_watermark"),
        ("- key_by: {columns: [a], expire_after: 1 day}\n- aggregate: {n: count()}", "expire_after needs event time"),
        ("- key_by: [a]\n- deduplicate: {expire_after: 1 day}", "expire_after needs event time"),
        ("- window: {}", r"a window is of one kind.*given=\[\], number=1"),
        ("- window: {tumbling: 1 hour, session: 1 hour}", r"one kind.*given=\['tumbling', 'session'\]"),
        ("- window: {hopping: 1 hour}", "hopping windows have a slide.*kind=hopping, slide=None"),
        ("- window: {tumbling: 1 hour, slide: 1 minute}", "hopping windows have a slide.*kind=tumbling"),
        ("- window: {session: 1 hour, offset: 1 minute}", "sessions begin with their rows: leave out offset"),
        ("- window: {tumbling: soon}", r"size must be a distance in time.*size='soon', number=1"),
        ("- with_watermark: {column: at, delay: late}", "delay must be a length of time.*number=1"),
    ],
)
def test_steps_that_cannot_work_are_refused_before_spark_starts(text: str, error: str) -> None:
    with pytest.raises(InvalidPipelineError, match=error):
        check_steps(steps_of(text))


def test_distinct_has_no_options_and_goes_by_all_columns() -> None:
    [step] = steps_of("- distinct: {}")
    unread: Any = PlaceholderFrame()
    done = step.apply(Stream(unread))
    assert isinstance(done, Stream)
    assert done.step is not None
    assert done.step.name == "distinct"
    check_steps(steps_of("- key_by: [a]\n- aggregate: {n: count()}\n- select: [n]\n- distinct: {}"))


def test_steps_go_on_behind_a_step() -> None:
    check_steps(
        steps_of("- key_by: [a]\n- aggregate: {n: count()}\n- where: n > 1\n- select: [n]\n- aggregate: {m: count()}")
    )
