"""A stream whose steps work under the names that their state has, where the code has new names for some columns.

Spark renames the rows on their way into a step; what comes out has the code's names again. So what the user does with
rows between two steps goes on under the names of the code.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators import process
from dagster_ckpt.operators.kept_names import Own, own_code, with_own_names
from dagster_ckpt.operators.operator import Operator
from dagster_ckpt.operators.rows.append import AppendOnly
from dagster_ckpt.protocol.manifest.manifest import Pipeline
from dagster_ckpt.protocol.transitions.renamed_columns import Renames, check_renames, own_names
from dagster_ckpt.runtime.declared.pipeline import Dataflow
from dagster_ckpt.runtime.declared.step_parts import Work
from dagster_ckpt.runtime.declared.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def renamed(
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
    if not any(own for own, _ in works):
        return stream, dataflow
    names = [own for own, _ in works]
    return _rewired(stream, dataflow.operators, names), Dataflow(tuple(operator for _, operator in works))


def _works(
    asset: str, stream: Stream, dataflow: Dataflow, stored: Pipeline, renames: Renames
) -> Iterator[tuple[Own, Operator | AppendOnly]]:
    """Each step's names in the code with those in its state, and its operator under the latter."""
    steps = dataflow.pipeline.steps
    for number, (step, operator) in enumerate(zip(stream.steps, dataflow.operators, strict=True)):
        own = own_names(stored.steps[number], steps[number], renames) if number < len(stored.steps) else {}
        if not own:
            yield {}, operator
            continue
        _check_can_follow(asset, operator, own, is_last=number == len(steps) - 1)
        under = with_own_names(operator, own, own_code(_code_of(step), own))
        # Without one the step stays as the code has it: the comparison with the stored one says what is wrong.
        yield ({}, operator) if under is None else (own, under)


def _check_can_follow(asset: str, operator: Operator | AppendOnly, own: Own, *, is_last: bool) -> None:
    pairs = ", ".join(f"{old!r}: {new!r}" for new, old in own.items())
    if operator.pipeline.operator == process.NAME:
        raise InvalidPipelineError(
            "a process function knows the columns by their names: rename them behind it, with select. "
            f"asset={asset}, renamed={{{pairs}}}"
        )
    if is_last and operator.pipeline.appends:
        raise InvalidPipelineError(
            "a table that only grows is made of files, which have the old name of the column: leave the name, and "
            f"rename the column where you read the table. asset={asset}, renamed={{{pairs}}}"
        )


def _rewired(stream: Stream, operators: Sequence[Operator | AppendOnly], names: Sequence[Own]) -> Stream:
    done: dict[int, Stream] = {}
    steps = stream.steps
    for step, operator, own in zip(steps, operators, names, strict=True):
        assert step.step is not None, "a stream without a stateful step has no state"
        read = [each.schema.names for each in operator.pipeline.inputs]
        first, *others = (_input(each, its, own, done) for each, its in zip(step.inputs, read, strict=True))
        code = own_code(_code_of(step), own)
        done[id(step)] = replace(first, step=replace(step.step, others=tuple(others), code=code))
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

        return rows.select(*(F.col(_quoted(name)).alias(own.get(name, name)) for name in read))

    return work


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _code_of(step: Stream) -> object:
    return None if step.step is None else step.step.code
