"""From a pipeline's fingerprint back to what can work on it, without the user's code."""

from dagster_ckpt.errors import CorruptStateError, IncompatibleStateError
from dagster_ckpt.operators import aggregate, append
from dagster_ckpt.protocol.manifest import Pipeline


def from_pipeline(pipeline: Pipeline) -> aggregate.RunningAggregate | append.AppendOnly:
    """The operator whose `pipeline` this is; `IncompatibleStateError` for one that this release does not know.

    Raises `CorruptStateError` for a pipeline that no operator ever had: somebody has written it by hand.
    """
    try:
        operator = _built(pipeline)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise CorruptStateError(_senseless(pipeline, error)) from error
    if _read_by(operator.pipeline) != _read_by(pipeline):
        raise CorruptStateError(_senseless(pipeline, "its operator has other tables or another output"))
    return operator


def _read_by(pipeline: Pipeline) -> object:
    """What reading the table goes by."""
    return pipeline.output, pipeline.keys, [(table.name, table.keys) for table in pipeline.tables]


def _built(pipeline: Pipeline) -> aggregate.RunningAggregate | append.AppendOnly:
    match pipeline.operator:
        case aggregate.NAME:
            return aggregate.RunningAggregate.from_pipeline(pipeline)
        case append.NAME:
            return append.AppendOnly.from_pipeline(pipeline)
        case other:
            raise IncompatibleStateError(
                f"this release does not know the stream's operator: install the release that wrote it. operator={other}"
            )


def _senseless(pipeline: Pipeline, reason: object) -> str:
    return (
        f"a manifest's pipeline makes no sense: restore the manifest from a backup, or go back to an epoch before it. "
        f"operator={pipeline.operator}, reason={reason!r}"
    )


def counters_of(pipeline: Pipeline) -> tuple[str, ...]:
    """The names of what the pipeline's operator counts."""
    return aggregate.COUNTERS if pipeline.operator == aggregate.NAME else ()
