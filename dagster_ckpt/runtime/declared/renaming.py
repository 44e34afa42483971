"""A stream whose steps work under the names that their state has, where the code has new names for some columns.

Spark renames the rows on their way into a step; what comes out has the code's names again. So what the user does with
rows between two steps goes on under the names of the code.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators import process
from dagster_ckpt.operators.kept_names import Own, own_code, with_own_names
from dagster_ckpt.operators.rows.append import AppendOnly
from dagster_ckpt.operators.step import OperatorStep
from dagster_ckpt.protocol.manifest.manifest import Pipeline
from dagster_ckpt.protocol.transitions.renamed_columns import (
    Renames,
    check_renames,
    own_names,
    with_column_ids,
)
from dagster_ckpt.runtime.declared.pipeline import Dataflow
from dagster_ckpt.runtime.declared.step_parts import Work
from dagster_ckpt.runtime.declared.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def rename(
    asset: str, stream: Stream, dataflow: Dataflow, stored: Pipeline | None, renames: Renames
) -> tuple[Stream, Dataflow]:
    """The stream and its operators under the names of the stored pipeline's state; None: there is no state yet.

    `renames` are the user's; what the stored pipeline remembers of earlier ones counts too. Raises
    `InvalidPipelineError` for a rename that cannot be meant, or that a step cannot follow.
    """
    check_renames(asset, stored, dataflow.pipeline, renames)
    if stored is None:
        return stream, dataflow
    works = list(_works(asset, stream, dataflow, stored, renames))
    names = [own for own, _ in works]
    if not any(names):
        return stream, dataflow
    return _rewire(stream, dataflow.operators, names), Dataflow(tuple(operator for _, operator in works))


def with_files(dataflow: Dataflow, stored: Pipeline, renames: Renames) -> Dataflow:
    """The operators, where a table that only grows has the names that its columns have in its files."""
    *before, last = dataflow.operators
    if not (stored.appends and last.pipeline.appends):
        return dataflow
    output = with_column_ids(stored, last.pipeline, renames)
    step: Any = last  # each has its fingerprint as a field
    return Dataflow((*before, replace(step, pipeline=replace(last.pipeline, output=output))))


def _works(
    asset: str, stream: Stream, dataflow: Dataflow, stored: Pipeline, renames: Renames
) -> Iterator[tuple[Own, OperatorStep | AppendOnly]]:
    """Each step's names in the code with those in its state, and its operator under the latter."""
    steps = dataflow.pipeline.steps
    for number, (step, operator) in enumerate(zip(stream.steps, dataflow.operators, strict=True)):
        own = own_names(stored.steps[number], steps[number], renames) if number < len(stored.steps) else {}
        if not own or isinstance(operator, AppendOnly):
            yield {}, operator
            continue
        _check_can_follow(asset, operator, own)
        under = with_own_names(operator, own, own_code(_user_code(step), own))
        # Without one the step stays as the code has it: the comparison with the stored one says what is wrong.
        yield ({}, operator) if under is None else (own, under)


def _check_can_follow(asset: str, operator: OperatorStep | AppendOnly, own: Own) -> None:
    if operator.pipeline.operator == process.NAME:
        raise InvalidPipelineError(
            "a process function knows the columns by their names: rename them after it, with select. "
            f"asset={asset}, renamed={ {old: new for new, old in own.items()} }"
        )


def _rewire(stream: Stream, operators: Sequence[OperatorStep | AppendOnly], names: Sequence[Own]) -> Stream:
    done: dict[int, Stream] = {}
    steps = stream.steps
    for step, operator, own in zip(steps, operators, names, strict=True):
        read = [each.schema.names for each in operator.pipeline.inputs]
        first, *others = (_input(each, its, own, done) for each, its in zip(step.inputs, read, strict=True))
        stateful = step.step
        if stateful is not None:
            stateful = replace(stateful, others=tuple(others), code=own_code(stateful.code, own))
        done[id(step)] = replace(first, step=stateful)
    return done[id(steps[-1])]


def _input(stream: Stream, read: Sequence[str], own: Own, done: Mapping[int, Stream]) -> Stream:
    """An input of a step, with these of its columns under the names of the step's state."""
    earlier = stream.earlier
    if earlier is not None:
        earlier = replace(earlier, stream=done[id(earlier.stream)])
    if not any(name in own for name in read):
        return replace(stream, earlier=earlier)
    work = _renaming(read, own)
    time = stream.event_time
    return replace(
        stream,
        frame=work(stream.frame),
        event_time=None if time is None else replace(time, column=own.get(time.column, time.column)),
        keys=tuple(own.get(key, key) for key in stream.keys),
        earlier=None if earlier is None else earlier.then(work),
        initial=None if stream.initial is None else work(stream.initial),
    )


def _renaming(read: Sequence[str], own: Own) -> Work:
    """These columns and no others: one that the step does not read may have a name of the state."""

    def work(rows: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F

        # By number: Spark reads a dot in a name as a field, and of several columns of a name the first is meant.
        there = rows.columns
        by_number = [f"_column_{number}" for number in range(len(there))]
        numbered = dict(zip(reversed(there), reversed(by_number), strict=True))
        return rows.toDF(*by_number).select(*(F.col(numbered[name]).alias(own.get(name, name)) for name in read))

    return work


def _user_code(step: Stream) -> object:
    return None if step.step is None else step.step.code
