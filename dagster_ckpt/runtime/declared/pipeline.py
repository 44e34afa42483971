"""From the user's `Stream` to a checked operator, before anything runs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dagster_ckpt.errors import InvalidPipelineError, naming
from dagster_ckpt.operators.output_times import output_lag_us
from dagster_ckpt.operators.rows.append import AppendOnly
from dagster_ckpt.operators.step import OperatorStep
from dagster_ckpt.protocol.manifest.manifest import Pipeline, SourceIdentity
from dagster_ckpt.runtime.declared.row_work import column_origin
from dagster_ckpt.runtime.declared.step_operator import build_operator, step_input
from dagster_ckpt.runtime.declared.step_parts import WHOLE_ROWS
from dagster_ckpt.runtime.declared.stream import Earlier, Stream


@dataclass(frozen=True)
class Dataflow:
    """The operators of a stream's steps, in the order of `Stream.steps`. `pipeline` is the fingerprint of all."""

    operators: tuple[OperatorStep | AppendOnly, ...]

    @property
    def pipeline(self) -> Pipeline:
        *before, last = (operator.pipeline for operator in self.operators)
        return replace(last, before=tuple(before))

    @property
    def horizon_us(self) -> int | None:
        """How far the watermark must pass a row's event time until no step waits for it. None: none ever does."""
        pipeline = self.pipeline
        horizons = [
            pipeline.behind_us(number) + each.horizon_us
            for number, each in enumerate(self.operators)
            if not isinstance(each, AppendOnly) and each.horizon_us is not None
        ]
        return max(horizons, default=None)


def build_dataflow(asset: str, stream: Stream, sources: Sequence[Sequence[SourceIdentity]]) -> Dataflow:
    """The operators of the stream's steps, with their columns and types checked. Raises `InvalidPipelineError`.

    `sources` has, for each of `stream.sources`, what it reads.
    """
    steps, reads = stream.steps, iter(sources)
    operators: list[OperatorStep | AppendOnly] = []
    for step in steps:
        inputs = []
        for each in step.inputs:
            if each.earlier is None:
                inputs.append(step_input(asset, each, next(reads)))
                continue
            number = next(number for number, other in enumerate(steps) if other is each.earlier.stream)
            spec = step_input(asset, each, ())
            behind_us = _behind_us(asset, step, each, each.earlier, operators[number])
            inputs.append(replace(spec, spec=replace(spec.spec, step=number, behind_us=behind_us)))
        operators.append(build_operator(asset, step, inputs))
    return Dataflow((*operators[:-1], _with_table(asset, operators[-1], stream.columns)))


def _with_table(
    asset: str, operator: OperatorStep | AppendOnly, columns: Sequence[tuple[str, str]]
) -> OperatorStep | AppendOnly:
    """The operator as a stream's last step, with these names for its columns if there are any."""
    if isinstance(operator, AppendOnly):
        assert not columns, "Spark names the columns of what is appended"
        return operator
    with naming(asset=asset):
        last = operator.with_table()
        return last.with_names(dict(columns)) if columns else last


def _behind_us(
    asset: str, reader: Stream, stream: Stream, earlier: Earlier, operator: OperatorStep | AppendOnly
) -> int:
    """How far the rows of an earlier step, which `reader` reads as `stream`, may be behind its watermark."""
    time = stream.event_time
    if time is None:
        return 0
    if time.idle_after_ms is not None:
        raise InvalidPipelineError(
            "rows of an earlier step have the watermark of the sources, so only a source can be idle: leave idle_after "
            f"out, and give it to the source. asset={asset}, column={time.column}"
        )
    if reader.step is not None and reader.step.never_late:
        return 0
    if all(each.event_time is None for each in earlier.stream.sources):
        raise InvalidPipelineError(
            "the watermark begins at the sources: call with_watermark before the first step too. "
            f"asset={asset}, column={time.column}"
        )
    unknown = [each for each in earlier.stream.inputs if each.earlier is None and each.event_time is None]
    if _is_set_operation(earlier.stream) and unknown:
        raise InvalidPipelineError(
            "the watermark after a set operation is the least of its inputs': call with_watermark on each of them "
            f"that reads a source. asset={asset}, column={time.column}"
        )
    origin = column_origin(earlier.changes, stream.frame, time.column)
    with naming(asset=asset):
        held_us = 0 if origin is None or isinstance(operator, AppendOnly) else output_lag_us(operator.operator, origin)
    return held_us + time.delay_ms * 1000


def _is_set_operation(stream: Stream) -> bool:
    return stream.step is not None and stream.step.name in WHOLE_ROWS
