"""An operator with its parameters, and the position in a source, each in one readable line."""

import json
from collections.abc import Iterator, Mapping, Sequence

from dagster_ckpt.cli.output import amounts
from dagster_ckpt.history import UpstreamInfo
from dagster_ckpt.operators.rows.mirror import NAME as MIRROR
from dagster_ckpt.operators.shared.checks.updating_checks import WHERE
from dagster_ckpt.protocol.epochs.topic_offsets import FORMAT as KAFKA
from dagster_ckpt.protocol.epochs.topic_offsets import offsets_of, text_of
from dagster_ckpt.protocol.epochs.upstream import FORMAT, UpstreamPosition, decode
from dagster_ckpt.protocol.manifest.manifest import Pipeline, SourceIdentity, SourcePosition


def operator_line(pipeline: Pipeline) -> str:
    """`aggregate flights=count(), mean_delay=avg(dep_delay)`, `interval_join keys=k|rk lower=-1 h upper=0 ms`."""
    parameters = dict(pipeline.parameters)
    if pipeline.operator == MIRROR:
        where = parameters.get(WHERE)
        return f"the upstream's table where {where}" if where else "the upstream's table as it is"
    if pipeline.delivers:
        what = "the table" if parameters["mode"] == "upsert" else "the changes"
        return f"delivers {what} to {parameters['address']}"
    aggregates = parameters.pop("aggregates", None)
    words = [", ".join(map(_call, aggregates))] if isinstance(aggregates, list) else []
    return " ".join([pipeline.operator, *words, *_words(parameters)])


def inputs_of(step: Pipeline) -> Iterator[str]:
    """What each input of a step reads: `step 0`, or its sources, as `parquet file:///data/departures`."""
    for entry in step.inputs:
        yield " and ".join(map(_source, entry.sources)) if entry.step is None else f"step {entry.step}"


def source_line(position: SourcePosition) -> str:
    """The source, and the stream's position in it."""
    source, seen = position.source, sum(index.entries for index in position.files.index) + len(position.files.tail)
    if position.current is None:
        at = "no position yet"
    elif source.format == FORMAT:
        at = _read(decode(position.current))
    elif source.format == KAFKA:
        at = f"next offset by partition: {text_of(offsets_of(position.current))}"
    else:  # for files Spark's offset is only the number of a batch
        at = f"{amounts.count(seen, 'file')} seen" if seen else f"at {position.current}"
    return f"{_source(source)}, {at}"


def lag_line(upstream: UpstreamInfo) -> str:
    """How far a stream is behind one that it reads: `3 epochs, 1,200 rows; the newest is epoch 44`."""
    if upstream.gone:
        return "unknown: no such stream is in this store"
    if upstream.ahead:
        return f"unknown: a rollback of it left epoch {upstream.read} behind"
    if upstream.epochs is None or upstream.rows is None:
        return f"unknown: it no longer has epoch {upstream.read}; its newest is epoch {upstream.newest}"
    if not upstream.epochs:
        return "none: all of it is read"
    behind = f"{amounts.count(upstream.epochs, 'epoch')}, {amounts.count(upstream.rows, 'row')} of its change log"
    return f"{behind}; its newest is epoch {upstream.newest}"


def _source(source: SourceIdentity) -> str:
    return " ".join(filter(None, ["stream" if source.format == FORMAT else source.format, source.address]))


def _read(at: UpstreamPosition) -> str:
    if at.in_snapshot:
        return f"its table at epoch {at.epoch} is being read: {at.part} of {at.parts} parts"
    return f"read up to epoch {at.epoch}" if at.epoch else "nothing read yet"


def _call(aggregate: Mapping[str, str | None]) -> str:
    arguments = filter(None, (aggregate["column"], aggregate["by"]))
    return f"{aggregate['name']}={aggregate['function']}({', '.join(arguments)})"


def _words(parameters: Mapping[str, object]) -> Iterator[str]:
    for name, value in parameters.items():
        if value is not None and value is not False:
            yield f"{name.removesuffix('_us')}={_value(name, value)}"


def _value(name: str, value: object) -> str:
    if isinstance(value, int) and name.endswith("_us"):
        return amounts.span(value)
    if isinstance(value, Mapping) and "kind" in value:
        sizes = {key: each for key, each in value.items() if key != "kind" and each}
        return f"{value['kind']}({', '.join(_words(sizes))})"
    if isinstance(value, Sequence) and not isinstance(value, str) and value and all(value):
        # One per input, or the key columns of each.
        inputs = [each if isinstance(each, str) else ",".join(map(str, each)) for each in value]
        return "|".join(inputs)
    return value if isinstance(value, str) else json.dumps(value)
