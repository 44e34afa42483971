"""`since="now"` as the number of the epoch after which an aggregate begins, the same as long as the stream has it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dagster_ckpt.operators.aggregates.aggregation import NOW
from dagster_ckpt.operators.registry import rebuild
from dagster_ckpt.operators.rows.append import AppendOnly
from dagster_ckpt.operators.step import OperatorStep
from dagster_ckpt.protocol.manifest.manifest import Pipeline
from dagster_ckpt.protocol.transitions.compatibility import AGGREGATES

_SINCE = "since"


def begins_now(step: Pipeline) -> bool:
    """Whether an aggregate of the step has `since="now"`."""
    aggregates: Any = step.parameters.get(AGGREGATES, ())
    return any(each.get(_SINCE) == NOW for each in aggregates)


def resolve_since(
    operator: OperatorStep | AppendOnly, code: object, before: Sequence[Pipeline], beginning: int
) -> OperatorStep | AppendOnly:
    """The operator whose aggregates begin where the same ones of the steps `before` do, new ones at `beginning`.

    `before` is what the operator's step may have been (`former`). `code` is the user's, as for `from_pipeline`.
    """
    if not begins_now(operator.pipeline):
        return operator
    aggregates: Any = operator.pipeline.parameters[AGGREGATES]
    known = [each for step in before for each in _with_beginning(step)]
    there = [_bare(each, unnamed=False) for each in aggregates]
    renamed = [each for each in known if _bare(each, unnamed=False) not in there]
    at = [_begins(each, known, renamed, beginning) for each in aggregates]
    parameters = {**operator.pipeline.parameters, AGGREGATES: at}
    return rebuild(replace(operator.pipeline, parameters=parameters), code)


def former(before: Sequence[Pipeline], number: int, step: Pipeline) -> list[Pipeline]:
    """The steps of `before` that this one may have been: those that differ in their aggregates alone, if there are any.

    If there are several, such as windows over different inputs, it is the one in its place.
    """
    alike = [each for each in before if _are_alike(each, step)]
    same = [each for each in alike if _without_aggregates(each) == _without_aggregates(step)]
    in_place = [each for each in before[number : number + 1] if each in (same or alike)]
    return in_place or same or alike


def _are_alike(step: Pipeline, other: Pipeline) -> bool:
    return (step.operator, step.keys) == (other.operator, other.keys)


def _without_aggregates(step: Pipeline) -> dict[str, Any]:
    return {name: value for name, value in step.parameters.items() if name != AGGREGATES}


def _with_beginning(step: Pipeline) -> list[Mapping[str, Any]]:
    spelled: Any = step.parameters[AGGREGATES]
    return [each for each in spelled if isinstance(each.get(_SINCE), int)]


def _begins(
    aggregate: Mapping[str, Any],
    known: Sequence[Mapping[str, Any]],
    renamed: Sequence[Mapping[str, Any]],
    beginning: int,
) -> Mapping[str, Any]:
    """The aggregate with its beginning. One of the same name comes first, then one that may have got another."""
    if aggregate.get(_SINCE) != NOW:
        return aggregate
    for each_of, unnamed in ((known, False), (renamed, True)):
        found = [each[_SINCE] for each in each_of if _bare(each, unnamed=unnamed) == _bare(aggregate, unnamed=unnamed)]
        if found:
            return {**aggregate, _SINCE: max(found)}
    return {**aggregate, _SINCE: beginning}


def _bare(aggregate: Mapping[str, Any], *, unnamed: bool) -> dict[str, Any]:
    left_out = {_SINCE, "name"} if unnamed else {_SINCE}
    return {name: value for name, value in aggregate.items() if name not in left_out}
