"""What programs read: each command prints one JSON document. Keys are only ever added; times are ISO 8601 in UTC."""

import base64
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import date, datetime, time, timedelta
from decimal import Decimal

import click
import pyarrow as pa

from dagster_ckpt.history import EpochInfo, Verification
from dagster_ckpt.protocol.manifest import Manifest, SourceIdentity, SourcePosition, StateTableSpec

Json = dict[str, object]


def streams(store: str, newest: Sequence[EpochInfo]) -> None:
    """Every stream with its current epoch."""
    _print({"store": store, "streams": [_info(info) for info in newest]})


def epochs(stream: str, retained: Sequence[EpochInfo]) -> None:
    """The retained epochs of a stream, newest first."""
    _print({"stream": stream, "epochs": [_info(info) for info in retained]})


def read(info: EpochInfo, table: pa.Table, limit: int | None) -> None:
    """The stream's table; `rows` counts all of them, `data` holds the first `limit`, or all."""
    shown = table if limit is None else table.slice(0, limit)
    _print(
        {
            "stream": info.stream,
            "epoch": info.epoch,
            "columns": _columns(table.schema),
            "rows": table.num_rows,
            "data": shown.to_pylist(),
        }
    )


def show(info: EpochInfo, manifest: Manifest) -> None:
    """An epoch, and the manifest that shows it."""
    pipeline = manifest.pipeline
    document = {
        **_info(info),
        "uuid": manifest.uuid,
        "kind": manifest.kind,
        "term": manifest.term,
        "owner": asdict(manifest.owner),
        "batch_id": manifest.batch_id,
        "shards": manifest.shards,
        "pipeline": {
            "operator": pipeline.operator,
            "parameters": pipeline.parameters,
            "keys": list(pipeline.keys),
            "columns": _columns(pipeline.output),
            "inputs": [
                {"sources": [_identity(source) for source in entry.sources], "columns": _columns(entry.schema)}
                for entry in pipeline.inputs
            ],
        },
        "state": [_state(spec, manifest) for spec in pipeline.tables],
        "changes": {
            "files": len(manifest.changes),
            "rows": info.rows_out,
            "bytes": sum(change.bytes for change in manifest.changes),
        },
        "table_files": sum(index.entries for index in manifest.files.index) + len(manifest.files.tail),
        "sources": [_source(position) for position in manifest.sources],
        "total_late_rows": manifest.statistics.total_late_rows,
        "consumed": [asdict(consumed) for consumed in manifest.consumed],
        "sinks": [asdict(mark) for mark in manifest.sinks],
    }
    _print(document)


def verify(store: str, verified: Sequence[Verification]) -> None:
    """What was read of each stream, and every damaged object."""
    _print({"store": store, "streams": [{"whole": each.whole, **asdict(each)} for each in verified]})


def rollback(info: EpochInfo) -> None:
    """The epoch that the stream shows now."""
    _print(_info(info))


def _info(info: EpochInfo) -> Json:
    return {field.name: getattr(info, field.name) for field in fields(info)}


def _columns(schema: pa.Schema) -> list[Json]:
    return [{"name": column.name, "type": str(column.type), "nullable": column.nullable} for column in schema]


def _state(spec: StateTableSpec, manifest: Manifest) -> Json:
    shards = manifest.runs.get(spec.name, ())
    runs = {run.path: run for shard in shards for run in shard}.values()  # several shards may share a file
    return {
        "table": spec.name,
        "keys": list(spec.keys),
        "columns": _columns(spec.schema),
        "runs": len(runs),
        "runs_per_shard_max": max((len(shard) for shard in shards), default=0),
        "rows": sum(run.rows for run in runs),
        "tombstones": sum(run.tombstones for run in runs),
        "bytes": sum(run.bytes for run in runs),
    }


def _identity(source: SourceIdentity) -> Json:
    return {
        "format": source.format,
        "address": source.address,
        "options": dict(source.options),
        "ordinal": source.ordinal,
    }


def _source(position: SourcePosition) -> Json:
    return {
        **_identity(position.source),
        "current": position.current,
        "files_seen": sum(index.entries for index in position.files.index) + len(position.files.tail),
    }


def _print(document: Json) -> None:
    click.echo(json.dumps(_finite(document), indent=2, ensure_ascii=False, allow_nan=False, default=_as_text))


def _finite(value: object) -> object:
    """The value with the floats that JSON lacks by their names."""
    match value:
        case dict():
            return {key: _finite(entry) for key, entry in value.items()}
        case list() | tuple():
            return [_finite(entry) for entry in value]
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
        case _:
            return value


def _as_text(value: object) -> object:
    """What JSON has no type for: times as ISO 8601, spans in seconds, decimals as written, bytes as base64."""
    match value:
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return str(value)
        case _:
            raise TypeError(f"no JSON for this type. type={type(value).__name__}")
