"""What each step of a stream reads, keeps and emits, and what limits its state, before or after it has run."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dagster_ckpt.operators import process
from dagster_ckpt.operators.aggregates import aggregate
from dagster_ckpt.operators.explained import kept_groups, kept_joins, kept_rows
from dagster_ckpt.operators.explained.kept import Bound, Kept, Limit, grows_with, updates
from dagster_ckpt.operators.explained.operator_text import inputs_of, operator_line
from dagster_ckpt.operators.joins import interval_join, window_join
from dagster_ckpt.operators.joins.regular import regular_join
from dagster_ckpt.operators.operator import keys_of_inputs
from dagster_ckpt.operators.registry import from_pipeline
from dagster_ckpt.operators.rows import changes_from, deduplicate, materializer, top
from dagster_ckpt.operators.rows.append import AppendOnly
from dagster_ckpt.operators.rows.over import over
from dagster_ckpt.operators.sets import distinct, set_operation, union_all
from dagster_ckpt.operators.shared.checks.updating_checks import ROW_KEY, UPDATING, WHERE
from dagster_ckpt.operators.shared.late_rows import late_table
from dagster_ckpt.operators.windows import session_aggregate, window_aggregate, window_of_table
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.protocol.manifest.manifest import KEPT_TABLE, Pipeline
from dagster_ckpt.quantities import span

_KEPT: Mapping[str, Callable[[Any, str], Iterator[Kept]]] = {
    aggregate.NAME: kept_groups.of_aggregate,
    changes_from.NAME: lambda operator, _: kept_rows.of_changes_from(operator),
    deduplicate.NAME: kept_rows.of_deduplicate,
    distinct.NAME: lambda operator, _: kept_rows.of_distinct(operator),
    interval_join.NAME: lambda operator, _: kept_joins.of_interval_join(operator),
    materializer.NAME: lambda operator, _: kept_rows.of_copy(operator),
    over.NAME: kept_rows.of_over,
    regular_join.NAME: lambda operator, _: kept_joins.of_regular_join(operator),
    session_aggregate.NAME: kept_groups.of_sessions,
    set_operation.NAME: lambda operator, _: kept_rows.of_set_operation(operator),
    union_all.NAME: lambda operator, _: kept_rows.of_union_all(operator),
    top.NAME: kept_rows.of_top,
    window_aggregate.NAME: kept_groups.of_windows,
    window_join.NAME: lambda operator, _: kept_joins.of_window_join(operator),
    window_of_table.NAME: kept_groups.of_windows_of_table,
}
"""The state tables of each operator that has some, without those that any may have. The code of `process` is in none.

The second argument is `key`, or empty where all rows are one group.
"""
_SAID_ELSEWHERE = (UPDATING, WHERE, ROW_KEY, "input_key", aggregate.ALWAYS)
"""Parameters that an explanation has no need of in the operator's line."""
_BY_SCHEMA = (regular_join.NAME, distinct.NAME, set_operation.NAME, union_all.NAME)
"""Operators that take rows back where an input has a change type."""

_SIDES = ("left", "right")
_MIRROR = "the rows of the input"
_NEXT = re.compile(r"; (?=[A-Z]\w* )")
"""Between two things that Spark does, as `InputSpec.work` has them."""


@dataclass(frozen=True, slots=True)
class ExplainedInput:
    """One input of a step.

    `reads` is `step 0`, or the sources. `changes`: its rows are updated and deleted too. `work` is what Spark does with
    them before the step, one thing after the other, as far as the state depends on it: columns of sources have their
    names there, those of earlier steps the names that these give, and others are numbered.
    """

    reads: str
    changes: bool
    work: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExplainedStep:
    """One step: what it does, reads and keeps. `appends`: no row that it emits changes or goes; None: it emits none.

    Its watermark is `behind_us` microseconds behind the stream's. `meets_all`: it is a join without an equal key.
    """

    number: int
    operator: str
    keys: tuple[str, ...]
    inputs: tuple[ExplainedInput, ...]
    keeps: tuple[Kept, ...]
    appends: bool | None
    behind_us: int = 0
    meets_all: bool = False

    @property
    def lasting(self) -> tuple[Kept, ...]:
        """The tables that may have rows between two epochs."""
        return tuple(each for each in self.keeps if each.limit.bound is not Bound.EPOCH)

    @property
    def limit(self) -> Limit | None:
        """The limit of the table that may grow most; None: it keeps nothing between two epochs."""
        return _widest(self.keeps)

    def lines(self, sizes: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """What there is to say, each with a label, which is empty for more of the same.

        `sizes` has how much is in each state table, where that is known.
        """
        label = "reads"
        for each in self.inputs:
            yield label, f"{each.reads}, which {'changes' if each.changes else 'appends'}"
            yield from (("", f"  {line}") for line in each.work)
            label = ""
        if self.keys:
            yield "key", ", ".join(self.keys)
        for kept in self.keeps:
            if kept in self.lasting or kept.table in sizes:
                yield "keeps", kept.rows
                yield "bound", kept.limit.text
            if kept.table in sizes:
                yield "size", sizes[kept.table]
        if not self.lasting:
            yield "keeps", "nothing between epochs"
        if self.meets_all:
            yield "cost", "each row meets all rows of the other input, in one task: the square of the rows"
        if self.behind_us:
            yield "watermark", f"{span(self.behind_us)} behind the stream's"
        if self.appends is not None:
            yield "emits", f"rows that {'are never' if self.appends else 'may be'} taken back"


@dataclass(frozen=True)
class Explanation:
    """The steps of a stream in the order of its dataflow. `str()` is the text of all.

    `ignored_watermarks` are those in a query, each as its column and its delay: they let nothing go. `read_by` says
    whether Arrow reads the sources, and why not; empty where the sources are not known.
    """

    steps: tuple[ExplainedStep, ...]
    ignored_watermarks: tuple[str, ...] = ()
    read_by: str = ""

    @property
    def grows(self) -> bool:
        """Whether some state grows for as long as there are new keys or rows."""
        return any(step.limit is not None and step.limit.bound.grows for step in self.steps)

    def __str__(self) -> str:
        ignored = [f"withWatermark({each}) in the query lets no state go" for each in self.ignored_watermarks]
        read_by = [self.read_by] if self.read_by else []
        return "\n\n".join(["\n".join(_text_of(step)) for step in self.steps] + read_by + ignored)

    def __repr__(self) -> str:
        return str(self)


LABEL_CHARS = 12
"""The width of a label and what separates it."""


def explain_pipeline(pipeline: Pipeline) -> Explanation:
    """What the steps of a stream keep. Raises as `registry.from_pipeline` does."""
    steps = pipeline.steps
    return Explanation(tuple(_step(number, pipeline, steps) for number in range(len(steps))))


def _text_of(step: ExplainedStep) -> Iterator[str]:
    yield f"step {step.number}  {step.operator}"
    for label, text in step.lines({}):
        yield f"  {label.ljust(LABEL_CHARS)}{text}"


def _step(number: int, stream: Pipeline, steps: Sequence[Pipeline]) -> ExplainedStep:
    step = steps[number]
    parameters = {name: value for name, value in step.parameters.items() if name not in _SAID_ELSEWHERE}
    return ExplainedStep(
        number=number,
        operator=_MIRROR if step.operator == materializer.NAME else operator_line(replace(step, parameters=parameters)),
        keys=step.key_names,
        inputs=tuple(
            ExplainedInput(reads, _changes(step, place, steps), _work(step, place))
            for place, reads in enumerate(inputs_of(step))
        ),
        keeps=_tables_of_step(step),
        appends=None if step.delivers else step.appends,
        behind_us=stream.behind_us(number),
        meets_all=step.operator == regular_join.NAME and keys_of_inputs(step) == ((regular_join.EVERY_ROW,),) * 2,
    )


def _tables_of_step(step: Pipeline) -> tuple[Kept, ...]:
    """What each state table of a step has, in the order of the tables."""
    found = {each.table: each for each in [*_of_operator(step), *_late(step)]}
    assert found.keys() == {spec.name for spec in step.tables}, f"a table of {step.operator} has no words"
    return tuple(found[spec.name] for spec in step.tables)


def _of_operator(step: Pipeline) -> Iterator[Kept]:
    if step.operator == process.NAME:
        yield from kept_groups.of_process(step)
        return
    built = from_pipeline(step)
    if isinstance(built, AppendOnly):
        return
    kept = list(_KEPT[step.operator](built.operator, "key" if step.keys else ""))
    yield from kept
    if built.materializer is not None:
        changing = all(CHANGE_TYPE in each.schema.names for each in step.inputs)
        by_inputs = Limit(Bound.INPUT if changing else Bound.ROWS, "")
        yield kept_rows.of_table(built.materializer, _widest(kept) or by_inputs)


def _widest(kept: Iterable[Kept]) -> Limit | None:
    """The limit of the tables that may grow most; None: all are empty between two epochs."""
    order = list(Bound)
    lasting = [each for each in kept if each.limit.bound is not Bound.EPOCH]
    # The table of a last step says no more than what it follows from.
    limits = [each.limit for each in lasting if each.table != KEPT_TABLE or len(lasting) == 1]
    return max(limits, key=lambda limit: order.index(limit.bound), default=None)


def _late(step: Pipeline) -> Iterator[Kept]:
    """The late rows that a step keeps; any step may keep them."""
    there = {spec.name for spec in step.tables}
    for number in range(len(step.inputs)):
        if late_table(number) in there:
            of = f" of the {_SIDES[number]} input" if len(step.inputs) > 1 else ""
            yield Kept(late_table(number), f"the rows{of} that came too late", grows_with("the late rows"))


def _changes(step: Pipeline, place: int, steps: Sequence[Pipeline]) -> bool:
    """Whether the rows of an input are updated and deleted."""
    entry = step.inputs[place]
    if entry.step is not None:
        return not steps[entry.step].appends
    if step.delivers:
        return step.parameters["mode"] == "upsert"
    return updates(step) or (step.operator in _BY_SCHEMA and CHANGE_TYPE in entry.schema.names)


def _work(step: Pipeline, place: int) -> tuple[str, ...]:
    """What Spark does with the rows of an input, or the condition on them, in the order in which it is done."""
    entry = step.inputs[place]
    where: Any = step.parameters.get(WHERE)
    text = entry.work or (where[place] if isinstance(where, list) else where) or ""
    return tuple(line.removesuffix(f", {CHANGE_TYPE}") for line in _NEXT.split(text) if line)
