"""From a pipeline's fingerprint back to its operator. Only a process function needs the user's code."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import cast

from dagster_ckpt.errors import CorruptStateError, IncompatibleStateError
from dagster_ckpt.operators import process
from dagster_ckpt.operators.aggregates import aggregate
from dagster_ckpt.operators.joins import appending_join
from dagster_ckpt.operators.joins.interval import interval_join
from dagster_ckpt.operators.joins.regular import regular_join
from dagster_ckpt.operators.joins.window import window_join
from dagster_ckpt.operators.one_group import OneGroup
from dagster_ckpt.operators.operator import ChangesAlone, Operator, WithoutTable
from dagster_ckpt.operators.renamed import Renamed
from dagster_ckpt.operators.rows import append, changes_from, deduplicate, kept_table, mirror
from dagster_ckpt.operators.rows.append import AppendOnly
from dagster_ckpt.operators.rows.over import over
from dagster_ckpt.operators.rows.top import top
from dagster_ckpt.operators.sets import distinct, set_operation, union_all
from dagster_ckpt.operators.windows import session_aggregate, window_aggregate, window_of_table
from dagster_ckpt.protocol.manifest.manifest import DELIVERY, Pipeline

_BUILDERS: Mapping[str, Callable[[Pipeline], Operator | AppendOnly]] = {
    aggregate.NAME: aggregate.RunningAggregate.from_pipeline,
    append.NAME: append.AppendOnly.from_pipeline,
    changes_from.NAME: changes_from.ChangesFrom.from_pipeline,
    DELIVERY: append.AppendOnly.from_pipeline,
    deduplicate.NAME: deduplicate.Deduplicate.from_pipeline,
    distinct.NAME: distinct.Distinct.from_pipeline,
    interval_join.NAME: interval_join.IntervalJoin.from_pipeline,
    mirror.NAME: mirror.Mirror.from_pipeline,
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
NAMES = frozenset({*_BUILDERS, process.NAME})
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


def from_pipeline(pipeline: Pipeline, code: object = None) -> Operator | AppendOnly:
    """The operator of this pipeline; `IncompatibleStateError` if this release does not know it.

    `code` is the user's code, for the operators that have some. Raises `CorruptStateError` for a pipeline that no
    operator can have produced, such as one edited by hand.
    """
    try:
        operator = _built(pipeline, code)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise CorruptStateError(_senseless(pipeline, error)) from error
    if _read_by(operator.pipeline) != _read_by(pipeline):
        raise CorruptStateError(_senseless(pipeline, "its operator has different tables or a different output"))
    return operator


def rebuilt(pipeline: Pipeline, code: object = None) -> Operator | AppendOnly:
    """The operator with the options of this pipeline, whose tables and output may be those of other options."""
    return _built(pipeline, code)


def as_last_step(operator: Operator) -> Operator:
    """The operator as the last step of a stream, which has a table. Raises `InvalidPipelineError`."""
    if isinstance(operator, OneGroup):
        inner = as_last_step(operator.inner)
        return operator if inner is operator.inner else OneGroup.around(inner)
    if isinstance(operator, WithoutTable) and not operator.pipeline.appends:
        return kept_table.KeptTable.build(cast("ChangesAlone", operator))
    return operator


def counters_of(pipeline: Pipeline) -> tuple[str, ...]:
    """The names of the counters of the pipeline's last step, and of changes that an earlier step reads."""
    earlier = (name for step in pipeline.before if step.operator == changes_from.NAME for name in COUNTED_IN_ANY_STEP)
    return tuple(dict.fromkeys((*_COUNTERS.get(pipeline.operator, ()), *earlier)))


def _read_by(pipeline: Pipeline) -> object:
    """The parts of a pipeline on which reading the table depends."""
    return pipeline.output, pipeline.keys, pipeline.appends, [(table.name, table.keys) for table in pipeline.tables]


def _built(pipeline: Pipeline, code: object) -> Operator | AppendOnly:
    if not pipeline.columns:
        return _built_bare(pipeline, code)
    inner = _built_bare(pipeline.own, code)
    assert not isinstance(inner, AppendOnly), "Spark names the columns of what is appended"
    return Renamed.from_pipeline(pipeline, inner)


def _built_bare(pipeline: Pipeline, code: object) -> Operator | AppendOnly:
    if pipeline.operator == process.NAME:
        return process.ProcessOperator.from_pipeline(pipeline, code)
    builder = _BUILDERS.get(pipeline.operator)
    if code is not None and pipeline.operator in _WITH_CODE:
        builder = partial(_WITH_CODE[pipeline.operator], code=code)
    if builder is None:
        raise IncompatibleStateError(
            f"this release does not know the stream's operator: install the release that wrote it. "
            f"operator={pipeline.operator}"
        )
    if not pipeline.tables:
        return builder(pipeline)

    def built(keyed: Pipeline) -> Operator:
        operator = builder(keyed)
        assert not isinstance(operator, AppendOnly), "an append-only stream has no state tables"
        return as_last_step(operator) if kept_table.is_kept(pipeline) else operator

    return built(pipeline) if pipeline.keys else OneGroup.from_pipeline(pipeline, built)


def _senseless(pipeline: Pipeline, reason: object) -> str:
    return (
        f"a manifest's pipeline is invalid: restore the manifest from a backup, or go back to an epoch before it. "
        f"operator={pipeline.operator}, reason={reason!r}"
    )
