"""An epoch as Dagster metadata: always the same labels, because each number is a plot of its own in Dagster's UI."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import dagster as dg

from dagster_ckpt.history.info.epoch_info import most_runs
from dagster_ckpt.operators import counters_of
from dagster_ckpt.protocol.epochs.upstream import FORMAT
from dagster_ckpt.protocol.manifest.manifest import BackfillStatus, Manifest, SourcePosition

Metadata = dict[str, dg.MetadataValue[Any]]


@dataclass(frozen=True, slots=True)
class Pace:
    """What an epoch's manifest cannot know: how fast it was, and what its operator counted.

    All zero for an epoch that an earlier Dagster run committed.
    """

    commit_ms: int = 0
    rows_per_second: float = 0.0
    lag_seconds: float = 0.0
    counters: Mapping[str, int] = field(default_factory=dict)


_PACE_LABELS = ("rows_per_second", "commit_milliseconds", "lag_seconds")


def pace_of(said: Mapping[str, dg.MetadataValue[Any]], manifest: Manifest) -> Metadata:
    """What metadata that was made of this epoch before says beyond the manifest."""
    labels = (*_PACE_LABELS, *counters_of(manifest.pipeline))
    return {label: said[label] for label in labels if label in said}


def epoch_metadata(manifest: Manifest, pace: Pace) -> Metadata:
    """The epoch that the manifest shows.

    State rows, state bytes, row count and runs (of the shard that has the most) are those of the whole stream at it.
    An interval of 0: each micro-batch is an epoch.
    """
    statistics = manifest.statistics
    numbers: dict[str, int | float] = {
        "epoch": manifest.epoch,
        "rows_in": statistics.rows_in,
        "rows_out": statistics.rows_out,
        "rows_per_second": round(pace.rows_per_second, 1),
        "epoch_milliseconds": statistics.epoch_ms,
        "commit_milliseconds": pace.commit_ms,
        "state_rows": statistics.state_rows,
        "state_bytes": statistics.state_bytes,
        "runs": most_runs(manifest),
        "merged_rows": statistics.merged_rows,
        "stall_milliseconds": statistics.stall_ms,
        "late_rows": statistics.late_rows,
        "lag_seconds": pace.lag_seconds,
        "checkpoint_interval_seconds": (manifest.checkpoint_interval_ms or 0) / 1_000,
        "dagster/row_count": row_count(manifest),
        **_consumed(manifest),
        **{name: pace.counters.get(name, 0) for name in counters_of(manifest.pipeline)},
    }
    metadata: Metadata = {
        label: dg.MetadataValue.float(number) if isinstance(number, float) else dg.MetadataValue.int(number)
        for label, number in numbers.items()
    }
    if manifest.backfill.status is BackfillStatus.CREATING:
        metadata["backfill"] = dg.MetadataValue.text(f"creating {manifest.backfill.position}")
    metadata["slowest_shards"] = _slowest_shards(manifest)
    metadata["source_positions"] = dg.MetadataValue.json([_position(source) for source in manifest.sources])
    return metadata


def _slowest_shards(manifest: Manifest) -> dg.TableMetadataValue:
    """A table of the shards whose tasks took longest; without rows where no task has worked."""
    columns = [
        dg.TableColumn("shard", "int"),
        dg.TableColumn("host", "string"),
        dg.TableColumn("milliseconds", "int", description="How long its task has worked, for all its shards."),
        dg.TableColumn("rows_in", "int"),
    ]
    records = [dg.TableRecord(asdict(each)) for each in manifest.slowest_shards]
    return dg.MetadataValue.table(records, dg.TableSchema(columns))


def _consumed(manifest: Manifest) -> dict[str, int]:
    """The epoch that was consumed of each upstream; 0 before the first, for a label is always there."""
    sources = (source for entry in manifest.pipeline.inputs for source in entry.sources)
    upstreams = sorted({source.address for source in sources if source.format == FORMAT})
    consumed = {entry.stream: entry.epoch for entry in manifest.consumed}
    return {f"consumed_epoch/{stream}": consumed.get(stream, 0) for stream in upstreams}


def row_count(manifest: Manifest) -> int:
    """The rows of the stream's table: one for each live key, or each row that ever came in where there are no keys."""
    statistics = manifest.statistics
    return statistics.total_rows_out if manifest.pipeline.appends else statistics.state_rows


def data_version(stream: str, manifest: Manifest) -> str:
    """What Dagster compares to know whether the table changed: the stream and its epoch."""
    return f"{stream}@{manifest.epoch}"


def _position(position: SourcePosition) -> dict[str, object]:
    """One source and how far it was read. A source identity holds no secret options."""
    source, files = position.source, position.files
    shown: dict[str, object] = {"format": source.format, "address": source.address, "position": _json(position.current)}
    if files.index or files.tail:
        shown["files"] = sum(reference.entries for reference in files.index) + len(files.tail)
    return shown


def _json(text: str | None) -> object:
    """The source's own offset as JSON where it is JSON; Spark's sources each have a form of their own."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text
