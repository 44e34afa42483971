"""JSON output: each command prints one document. Keys are only ever added; times are ISO 8601 in UTC."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields

import pyarrow as pa

from dagster_ckpt.cli.far_times import rows_of
from dagster_ckpt.cli.output import amounts
from dagster_ckpt.cli.request import Document
from dagster_ckpt.history import Collected, EpochInfo, PinInfo, UpstreamInfo, Verification, WriterInfo
from dagster_ckpt.operators.explained.explanation import Explanation
from dagster_ckpt.operators.explained.kept import Kept
from dagster_ckpt.protocol.manifest.manifest import Ancestor, Manifest, SourceIdentity, SourcePosition, StateTableSpec
from dagster_ckpt.protocol.transitions.epoch_statistics import distinct_files, total_bytes


def streams(store: str, newest: Sequence[tuple[EpochInfo, WriterInfo]]) -> Document:
    """Every stream with its current epoch and its writer."""
    return {"store": store, "streams": [{**_info(info), **_writer(writer)} for info, writer in newest]}


def epochs(stream: str, readable: Sequence[EpochInfo], pinned: Sequence[PinInfo]) -> Document:
    """The epochs of a stream that can be read, newest first, with the pins of each."""
    pins = {info.epoch: [pin.name for pin in pinned if pin.epoch == info.epoch] for info in readable}
    return {"stream": stream, "epochs": [{**_info(info), "pins": pins[info.epoch]} for info in readable]}


def read(info: EpochInfo, table: pa.Table, limit: int | None) -> Document:
    """The stream's table; `rows` counts all of them, `data` holds the first `limit`, or all."""
    shown = table if limit is None else table.slice(0, limit)
    return {
        "stream": info.stream,
        "epoch": info.epoch,
        "columns": _columns(table.schema),
        "rows": table.num_rows,
        "data": rows_of(shown),
    }


def changes(stream: str, table: pa.Table, limit: int | None) -> Document:
    """A change log; `rows` counts all of its rows, `data` holds the first `limit`, or all."""
    shown = table if limit is None else table.slice(0, limit)
    return {"stream": stream, "columns": _columns(table.schema), "rows": table.num_rows, "data": rows_of(shown)}


def show(
    info: EpochInfo, manifest: Manifest, writer: WriterInfo | None, upstreams: Sequence[UpstreamInfo] = ()
) -> Document:
    """An epoch and the manifest that shows it; for the current epoch the writer, null for others, and its lag."""
    pipeline = manifest.pipeline
    return {
        **_info(info),
        "uuid": manifest.uuid,
        "manifest_version": manifest.version,
        "kind": manifest.kind,
        "term": manifest.term,
        "owner": asdict(manifest.owner),
        "batch_id": manifest.batch_id,
        "shards": manifest.shards,
        "pipeline": {
            "operator": pipeline.operator,
            "parameters": pipeline.parameters,
            "keys": list(pipeline.key_names),
            "columns": _columns(pipeline.output),
            "inputs": [
                {"sources": [_identity(source) for source in entry.sources], "columns": _columns(entry.schema)}
                for entry in pipeline.source_inputs
            ],
        },
        **({"steps": [_step(number, manifest) for number in range(len(pipeline.steps))]} if pipeline.before else {}),
        "state": [_state(spec, manifest) for spec in pipeline.all_tables],
        "changes": {
            "files": len(manifest.changes),
            "rows": info.rows_out,
            "bytes": sum(change.bytes for change in manifest.changes),
        },
        "checkpoint_interval_ms": manifest.checkpoint_interval_ms,
        "slowest_shards": [asdict(each) for each in manifest.slowest_shards],
        "table_files": sum(index.entries for index in manifest.files.index) + len(manifest.files.tail),
        "sources": [_source(position) for position in manifest.sources],
        "total_late_rows": manifest.statistics.total_late_rows,
        "ancestors": [_ancestor(ancestor) for ancestor in manifest.ancestors],
        "consumed": [asdict(consumed) for consumed in manifest.consumed],
        "backfill": asdict(manifest.backfill),
        "sinks": [asdict(mark) for mark in manifest.sinks],
        "upstreams": [asdict(upstream) for upstream in upstreams],
        **_writer(writer),
    }


def explain(info: EpochInfo, manifest: Manifest, explanation: Explanation) -> Document:
    """What each step of a stream reads, keeps and emits; `share` is that of the bytes of all state, from 0 to 1.

    `bound` is one of `operators.explained.kept.Bound`, and `limit` the same in words.
    """
    whole = total_bytes(manifest.runs)
    return {
        **_info(info),
        "steps": [
            {
                "step": step.number,
                "operator": manifest.pipeline.steps[step.number].operator,
                "description": step.operator,
                "keys": list(step.keys),
                "inputs": [asdict(each) for each in step.inputs],
                "appends": step.appends,
                "watermark_behind_us": step.behind_us,
                "state": [_state_table(kept, step.number, manifest, whole) for kept in step.keeps],
            }
            for step in explanation.steps
        ],
    }


def verify(store: str, verified: Sequence[Verification]) -> Document:
    """What was read from each stream, and every damaged object."""
    return {"store": store, "streams": [{"whole": each.whole, **asdict(each)} for each in verified]}


def rollback(info: EpochInfo) -> Document:
    """The epoch that the stream shows now."""
    return _info(info)


def rollbacks(infos: Sequence[EpochInfo]) -> Document:
    """The epochs that several streams show now."""
    return {"streams": [_info(info) for info in infos]}


def savepoint(pins: Mapping[str, PinInfo]) -> Document:
    """The pins of several streams that exist now."""
    return {"pins": [{"stream": stream, **asdict(pin)} for stream, pin in pins.items()]}


def pins(stream: str, pinned: Sequence[PinInfo]) -> Document:
    """The pins of a stream, by name."""
    return {"stream": stream, "pins": [asdict(pin) for pin in pinned]}


def new_pin(stream: str, pin: PinInfo) -> Document:
    """The pin that exists now."""
    return {"stream": stream, **asdict(pin)}


def fork(info: EpochInfo, origin: str, epoch: int) -> Document:
    """The new stream's current epoch, and the origin stream and epoch."""
    return {**_info(info), "forked_from": {"stream": origin, "epoch": epoch}}


def removed_pin(stream: str, name: str) -> Document:
    """The removed pin."""
    return {"stream": stream, "unpinned": name}


def removed_objects(store: str, removed: Mapping[str, Collected]) -> Document:
    """How many objects of each kind were removed from each stream."""
    return {"store": store, "streams": [{"stream": name, **asdict(each)} for name, each in removed.items()]}


def reshard(info: EpochInfo) -> Document:
    """The epoch that the stream shows, with its new number of shards."""
    return _info(info)


def _info(info: EpochInfo) -> Document:
    lag = info.event_time_lag
    facts = {field.name: getattr(info, field.name) for field in fields(info)}
    return {**facts, "event_time_lag_at_commit_seconds": None if lag is None else lag.total_seconds()}


def _writer(writer: WriterInfo | None) -> Document:
    if writer is None:
        return {"status": None, "writer": None}
    return {
        "status": writer.status(amounts.now()),
        "writer": asdict(writer),
    }


def _columns(schema: pa.Schema) -> list[Document]:
    return [{"name": column.name, "type": str(column.type), "nullable": column.nullable} for column in schema]


def _step(number: int, manifest: Manifest) -> Document:
    """One of several steps. An input reads sources, or the earlier step of that number. `table` is as in `state`.

    `work` is what it did in the epoch, null where no release recorded it.
    """
    pipeline = manifest.pipeline
    step = pipeline.steps[number]
    names = {pipeline.name_in_runs(number, spec.name) for spec in step.tables}
    return {
        "step": number,
        "operator": step.operator,
        "parameters": step.parameters,
        "keys": list(step.keys),
        "columns": _columns(step.output),
        "inputs": [
            {
                "step": entry.step,
                "sources": [_identity(source) for source in entry.sources],
                "columns": _columns(entry.schema),
            }
            for entry in step.inputs
        ],
        "state": [_state(spec, manifest) for spec in pipeline.all_tables if spec.name in names],
        "work": None if (did := manifest.work_of(number)) is None else asdict(did),
    }


def _ancestor(ancestor: Ancestor) -> Document:
    """Without its columns: those of the stream are in `pipeline`."""
    return {
        "uuid": ancestor.uuid,
        "stream": ancestor.stream,
        "epoch": ancestor.epoch,
        "swapped": ancestor.swapped,
    }


def _state(spec: StateTableSpec, manifest: Manifest) -> Document:
    shards = manifest.runs.get(spec.name, ())
    runs = distinct_files(shards)
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


def _state_table(kept: Kept, step: int, manifest: Manifest, whole: int) -> Document:
    name = manifest.pipeline.name_in_runs(step, kept.table)
    runs = distinct_files(manifest.runs.get(name, ()))
    size = sum(run.bytes for run in runs)
    return {
        "table": name,
        "keeps": kept.rows,
        "bound": kept.limit.bound,
        "limit": kept.limit.text,
        "rows": sum(run.rows for run in runs),
        "bytes": size,
        "share": size / whole if whole else 0.0,
    }


def _identity(source: SourceIdentity) -> Document:
    return {
        "format": source.format,
        "address": source.address,
        "options": dict(source.options),
        "ordinal": source.ordinal,
    }


def _source(position: SourcePosition) -> Document:
    return {
        **_identity(position.source),
        "current": position.current,
        "files_seen": sum(index.entries for index in position.files.index) + len(position.files.tail),
    }
