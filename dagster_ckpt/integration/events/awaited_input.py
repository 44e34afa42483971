"""What a stream without an epoch waits for: the first thing that a person asks of an empty page in Dagster."""

from collections.abc import Mapping

import dagster as dg

from dagster_ckpt.protocol.epochs.upstream import FORMAT as UPSTREAM
from dagster_ckpt.protocol.manifest.manifest import Pipeline, SourceIdentity

_FILES = ("avro", "binaryfile", "csv", "json", "orc", "parquet", "text", "xml")
_TOPICS: Mapping[str, str] = {
    "subscribe": "topic {}",
    "subscribepattern": "a topic like {}",
    "assign": "the partitions {}",
}


def first_input(pipeline: Pipeline) -> str:
    """The input with which the first epoch comes, of every source of the pipeline."""
    sources = [source for each in pipeline.source_inputs for source in each.sources]
    return " or ".join(dict.fromkeys(map(_first_input, sources)))


def observation(key: dg.AssetKey, pipeline: Pipeline) -> dg.AssetObservation:
    """The event of a stream that was opened and has no epoch."""
    what = first_input(pipeline)
    return dg.AssetObservation(
        key, description=f"The stream has no epoch yet. It waits for {what}.", metadata={"waits_for": what}
    )


def _first_input(source: SourceIdentity) -> str:
    if source.format == UPSTREAM:
        return f"the first epoch of the stream {source.address}"
    if source.format == "kafka":
        chosen = [_TOPICS[option].format(value) for option, value in source.options if option in _TOPICS]
        return " ".join(["the first record in", *chosen, *([f"at {source.address}"] if source.address else [])])
    if source.format in _FILES:
        return f"the first {source.format} file in {source.address}"
    return f"the first rows of the source {source.format} {source.address}".strip()
