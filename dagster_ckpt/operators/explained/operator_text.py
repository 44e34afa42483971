"""An operator with its parameters, and what its inputs read, each in one readable line."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dagster_ckpt.operators.rows.materializer import NAME as COPY
from dagster_ckpt.operators.shared.checks.updating_checks import WHERE
from dagster_ckpt.protocol.epochs.upstream import FORMAT
from dagster_ckpt.protocol.manifest.manifest import Pipeline, SourceIdentity
from dagster_ckpt.quantities import span

_CALLS = ("aggregates", "functions")
"""The parameters with functions of columns."""


def operator_line(pipeline: Pipeline) -> str:
    """`aggregate flights=count(), mean_delay=avg(dep_delay)`, `interval_join keys=k|rk lower=-1 h upper=0 ms`.

    Columns of the output have the names that the stream's table has.
    """
    parameters = dict(pipeline.parameters)
    if pipeline.operator == COPY:
        where = parameters.get(WHERE)
        return f"the upstream's table where {where}" if where else "the upstream's table as it is"
    if pipeline.delivers:
        what = "the table" if parameters["mode"] == "upsert" else "the changes"
        return f"delivers {what} to {parameters['address']}"
    calls = [parameters.pop(name, None) for name in _CALLS]
    names = dict(pipeline.columns)
    words = [", ".join(_call(each, names) for each in called) for called in calls if isinstance(called, list)]
    return " ".join([pipeline.operator, *words, *_words(parameters)])


def inputs_of(step: Pipeline) -> Iterator[str]:
    """What each input of a step reads: `step 0`, or its sources, as `parquet file:///data/departures`."""
    for entry in step.inputs:
        yield " and ".join(map(source_text, entry.sources)) if entry.step is None else f"step {entry.step}"


def source_text(source: SourceIdentity) -> str:
    """`parquet file:///data/departures`, `stream delays`."""
    return " ".join(filter(None, ["stream" if source.format == FORMAT else source.format, source.address]))


def _call(function: Mapping[str, Any], names: Mapping[str, str]) -> str:
    columns = (function["column"], function.get("other"), *function.get("columns", ()), function.get("by"))
    arguments, name = filter(None, columns), function["name"]
    since = "" if "since" not in function else f" since epoch {function['since']}"
    text = f"{function['function']}({', '.join(arguments)}){since.replace('epoch now', 'now')}"
    shown = names.get(name, name)
    return text if shown == text else f"{shown}={text}"


def _words(parameters: Mapping[str, object]) -> Iterator[str]:
    for name, value in parameters.items():
        if value is not None and value is not False:
            yield f"{name.removesuffix('_us')}={_value(name, value)}"


def _value(name: str, value: object) -> str:
    if isinstance(value, int) and name.endswith("_us"):
        return span(value)
    if isinstance(value, Mapping) and "kind" in value:
        sizes = {key: each for key, each in value.items() if key != "kind" and each}
        return f"{value['kind']}({', '.join(_words(sizes))})"
    if isinstance(value, Sequence) and not isinstance(value, str) and value and all(value):
        # One per input, or the key columns of each.
        inputs = [each if isinstance(each, str) else ",".join(map(str, each)) for each in value]
        return "|".join(inputs)
    return value if isinstance(value, str) else json.dumps(value)
