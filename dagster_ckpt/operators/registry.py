"""From a pipeline's fingerprint back to its operator. Only a process function needs the user's code."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from dagster_ckpt.errors import CorruptStateError, IncompatibleStateError
from dagster_ckpt.operators import process
from dagster_ckpt.operators.aggregates import aggregate
from dagster_ckpt.operators.joins import appending_join, interval_join, window_join
from dagster_ckpt.operators.joins.regular import regular_join
from dagster_ckpt.operators.operator import Operator
from dagster_ckpt.operators.rows import append, changes_from, deduplicate, materializer, top
from dagster_ckpt.operators.rows.append import AppendOnly
from dagster_ckpt.operators.rows.over import over
from dagster_ckpt.operators.sets import distinct, set_operation, union_all
from dagster_ckpt.operators.step import OperatorStep, one_group
from dagster_ckpt.operators.windows import session_aggregate, window_aggregate, window_of_table
from dagster_ckpt.protocol.manifest.manifest import DELIVERY, KEPT_TABLE, Pipeline

_BUILDERS: Mapping[str, Callable[[Pipeline], Operator]] = {
    aggregate.NAME: aggregate.RunningAggregate.from_pipeline,
    changes_from.NAME: changes_from.ChangesFrom.from_pipeline,
    deduplicate.NAME: deduplicate.Deduplicate.from_pipeline,
    distinct.NAME: distinct.Distinct.from_pipeline,
    interval_join.NAME: interval_join.IntervalJoin.from_pipeline,
    materializer.NAME: materializer.Materializer.from_pipeline,
    over.NAME: over.OverPartition.from_pipeline,
    regular_join.NAME: regular_join.RegularJoin.from_pipeline,
    session_aggregate.NAME: session_aggregate.SessionAggregate.from_pipeline,
    set_operation.NAME: set_operation.SetOperation.from_pipeline,
    union_all.NAME: union_all.UnionAll.from_pipeline,
    top.NAME: top.Top.from_pipeline,
    window_aggregate.NAME: window_aggregate.WindowAggregate.from_pipeline,
    window_join.NAME: window_join.WindowedJoin.from_pipeline,
    window_of_table.NAME: window_of_table.WindowOfTable.from_pipeline,
}
NAMES = frozenset({*_BUILDERS, append.NAME, DELIVERY, process.NAME})
"""The names of all operators."""
_WITH_CODE: Mapping[str, Callable[..., Operator]] = {
    aggregate.NAME: aggregate.RunningAggregate.from_pipeline,
    window_of_table.NAME: window_of_table.WindowOfTable.from_pipeline,
}
"""Those that the user's code may be part of, besides `process`, which is nothing without it."""
_COUNTERS: Mapping[str, tuple[str, ...]] = {
    aggregate.NAME: aggregate.COUNTERS,
    changes_from.NAME: changes_from.COUNTERS,
    deduplicate.NAME: deduplicate.COUNTERS,
    interval_join.NAME: appending_join.COUNTERS,
    process.NAME: process.COUNTERS,
    regular_join.NAME: regular_join.COUNTERS,
    session_aggregate.NAME: session_aggregate.COUNTERS,
    window_aggregate.NAME: window_aggregate.COUNTERS,
    window_join.NAME: appending_join.COUNTERS,
    window_of_table.NAME: window_of_table.COUNTERS,
}


COUNTED_IN_ANY_STEP = changes_from.COUNTERS
"""Counters that are reported of every step: what was dropped. No other operator has these names."""


def from_pipeline(pipeline: Pipeline, code: object = None) -> OperatorStep | AppendOnly:
    """The step of this pipeline; `IncompatibleStateError` if this release does not know its operator.

    `code` is the user's code, for the operators that have some. Raises `CorruptStateError` for a pipeline that no
    operator can have produced, such as one edited by hand.
    """
    try:
        step = rebuild(pipeline, code)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise CorruptStateError(_senseless(pipeline, error)) from error
    if _facts_for_readers(step.pipeline) != _facts_for_readers(pipeline):
        raise CorruptStateError(_senseless(pipeline, "its operator has different tables or a different output"))
    return step


def rebuild(pipeline: Pipeline, code: object = None) -> OperatorStep | AppendOnly:
    """The step with the options of this pipeline, whose tables and output may be those of other options."""
    name, own = pipeline.operator, pipeline.own
    if name in (append.NAME, DELIVERY):
        return AppendOnly(pipeline)
    build = _build_from(name, code)
    without_keys = pipeline.tables and not pipeline.keys
    operator = (
        one_group(own.inputs[0], lambda keys, source: build(replace(own, keys=keys, inputs=(source,))))
        if without_keys
        else build(own)
    )
    step = OperatorStep.of(operator)
    if has_kept_table(pipeline):
        step = step.with_table()
    names = {name: own for own, name in pipeline.columns}
    return step.with_names({name: names[name] for name in pipeline.output.names}) if names else step


def has_kept_table(pipeline: Pipeline) -> bool:
    """Whether the stream's table is that of a `Materializer` after the step's operator."""
    return bool(pipeline.tables) and pipeline.tables[0].name == KEPT_TABLE


def counters_of(pipeline: Pipeline) -> tuple[str, ...]:
    """The names of the counters of the pipeline's last step, and of changes that an earlier step reads."""
    earlier = (name for step in pipeline.before if step.operator == changes_from.NAME for name in COUNTED_IN_ANY_STEP)
    return tuple(dict.fromkeys((*_COUNTERS.get(pipeline.operator, ()), *earlier)))


def _facts_for_readers(pipeline: Pipeline) -> object:
    """The parts of a pipeline on which reading the table depends."""
    return pipeline.output, pipeline.keys, pipeline.appends, [(table.name, table.keys) for table in pipeline.tables]


def _build_from(name: str, code: object) -> Callable[[Pipeline], Operator]:
    if name == process.NAME:
        return lambda pipeline: process.ProcessOperator.from_pipeline(pipeline, code)
    if code is not None and name in _WITH_CODE:
        return partial(_WITH_CODE[name], code=code)
    if name not in _BUILDERS:
        raise IncompatibleStateError(
            f"this release does not know the stream's operator: install the release that wrote it. operator={name}"
        )
    return _BUILDERS[name]


def _senseless(pipeline: Pipeline, reason: object) -> str:
    return (
        f"a manifest's pipeline is invalid: restore the manifest from a backup, or go back to an epoch before it. "
        f"operator={pipeline.operator}, reason={reason!r}"
    )
