"""From a pipeline's fingerprint back to what can work on it, without the user's code."""

from dagster_ckpt.errors import IncompatibleStateError
from dagster_ckpt.operators import aggregate, append
from dagster_ckpt.protocol.manifest import Pipeline


def from_pipeline(pipeline: Pipeline) -> aggregate.RunningAggregate | append.AppendOnly:
    """The operator whose `pipeline` this is; `IncompatibleStateError` for one that this release does not know."""
    match pipeline.operator:
        case aggregate.NAME:
            return aggregate.RunningAggregate.from_pipeline(pipeline)
        case append.NAME:
            return append.AppendOnly.from_pipeline(pipeline)
        case other:
            raise IncompatibleStateError(
                f"this release does not know the stream's operator: install the release that wrote it. operator={other}"
            )


def counters_of(pipeline: Pipeline) -> tuple[str, ...]:
    """The names of what the pipeline's operator counts."""
    return aggregate.COUNTERS if pipeline.operator == aggregate.NAME else ()
