"""An epoch as Dagster metadata: always the same labels, because each number is a plot in Dagster's UI."""

import json
from collections.abc import Sequence
from typing import Any

import dagster as dg

from dagster_ckpt.history.info.epoch_info import most_runs
from dagster_ckpt.integration.events.event_totals import EPOCH_NONCE, NO_TOTALS, NO_WORK, CommittedWork, Totals
from dagster_ckpt.operators import counters_of
from dagster_ckpt.operators.explained.explanation import explain_pipeline
from dagster_ckpt.protocol.epochs.upstream import FORMAT
from dagster_ckpt.protocol.manifest.manifest import BackfillStatus, Manifest, SourcePosition, StepWork
from dagster_ckpt.protocol.transitions.epoch_statistics import total_bytes
from dagster_ckpt.runtime.lag.lag import Lag

Metadata = dict[str, dg.MetadataValue[Any]]


def epoch_metadata(
    manifest: Manifest, work: CommittedWork = NO_WORK, before: Totals = NO_TOTALS, lag: Metadata | None = None
) -> Metadata:
    """The event of the epoch that the manifest shows: what happened since the last event, and how the stream is now.

    `work` is how the epochs since then went, as far as this step committed them; `before` are the totals of that event;
    `lag` is `lag_metadata`. State rows, state bytes, row count and runs (of the shard that has the most) are those of
    the whole stream at the epoch. The row count is absent where it is unknown. An interval of 0: each micro-batch is an
    epoch. The order is the one in which Dagster lists them on an event: what tells first whether the stream keeps up,
    then what explains it. (Its Plots page sorts them by name.)
    """
    statistics, totals = manifest.statistics, Totals.of(manifest)
    since = totals.since(before)
    numbers: dict[str, int | float] = {
        "rows_per_second": round(work.rows_per_second, 1),
        "epoch_milliseconds": work.slowest_ms,
        "state_rows": statistics.state_rows,
        "state_bytes": statistics.state_bytes,
        "late_rows": since.late_rows,
        "epoch": manifest.epoch,
        "rows_in": since.rows_in,
        "rows_out": since.rows_out,
        "epochs": since.epochs,
        **totals.labels(),
        **({} if manifest.table_rows is None else {"dagster/row_count": manifest.table_rows}),
        "commit_milliseconds": work.commit_ms,
        "runs": most_runs(manifest),
        "merged_rows": work.merged_rows,
        "stall_milliseconds": work.stall_ms,
        "checkpoint_interval_seconds": (manifest.checkpoint_interval_ms or 0) / 1_000,
        **_consumption(manifest),
        **{name: work.counters.get(name, 0) for name in counters_of(manifest.pipeline)},
        **slowest_step(manifest, work.steps),
    }
    metadata: Metadata = {
        label: dg.MetadataValue.float(number) if isinstance(number, float) else dg.MetadataValue.int(number)
        for label, number in numbers.items()
    }
    metadata = {"rows_per_second": metadata["rows_per_second"], **(lag or {}), **metadata}
    if manifest.backfill.status is BackfillStatus.CREATING:
        metadata["backfill"] = dg.MetadataValue.text(f"creating {manifest.backfill.position}")
    if manifest.pipeline.before:
        metadata["steps"] = steps_table(manifest, work.steps)
    if statistics.read_by is not None:
        metadata["read_by"] = dg.MetadataValue.text(statistics.read_by.value)
    if manifest.epoch_nonce is not None:
        metadata[EPOCH_NONCE] = dg.MetadataValue.text(manifest.epoch_nonce)
    metadata["slowest_shards"] = _slowest_shards(manifest)
    metadata["source_positions"] = dg.MetadataValue.json([_position(source) for source in manifest.sources])
    return metadata


def changed_functions(stream: str, names: Sequence[str]) -> Metadata:
    """How the first epoch after a change reports that the code of these functions changed."""
    which = ", ".join(f"`{name}`" for name in names)
    text = (
        f"The code of {which} has changed. Rows that were there before keep what the old code made of them. "
        f"To have them made by the new code, rebuild the stream: `dagster-ckpt rebuild {stream}`."
    )
    return {"changed_functions": dg.MetadataValue.md(text)}


def lag_metadata(lag: Lag | None, manifest: Manifest, now_ms: int) -> Metadata:
    """How far the stream is behind its sources, and its newest event time behind `now_ms` (Unix time).

    A kind of source always has the same labels. Without a measurement, none: a 0 would be a lie.
    """
    newest_us = max((time_us for time_us in manifest.event_times_us if time_us is not None), default=None)
    metadata: Metadata = {}
    if lag is not None:
        metadata["lag_seconds"] = dg.MetadataValue.float(round(lag.seconds(now_ms), 3))
        waiting = lag.waiting
        counts = {"files": waiting.files, "bytes": waiting.file_bytes, "rows": waiting.rows, "epochs": waiting.epochs}
        metadata |= {f"lag/{unit}": dg.MetadataValue.int(count) for unit, count in counts.items() if count is not None}
    if newest_us is not None:
        metadata["event_time_lag_seconds"] = dg.MetadataValue.float(round((now_ms - newest_us / 1000) / 1000, 3))
    return metadata


def _slowest_shards(manifest: Manifest) -> dg.TableMetadataValue:
    """A table of the shards whose tasks took longest; without rows where no task ran."""
    columns = [
        dg.TableColumn("shard", "int"),
        dg.TableColumn("host", "string"),
        dg.TableColumn("milliseconds", "int", description="How long its task took, for all its shards."),
        dg.TableColumn("rows_in", "int"),
    ]
    if manifest.pipeline.before:
        columns.insert(0, dg.TableColumn("step", "int"))
    names = [each.name for each in columns]
    records = [dg.TableRecord({name: getattr(each, name) for name in names}) for each in manifest.slowest_shards]
    return dg.MetadataValue.table(records, dg.TableSchema(columns))


def _consumption(manifest: Manifest) -> dict[str, int]:
    """The epoch that was consumed of each upstream; 0 before the first, because a label is always there."""
    sources = (source for entry in manifest.pipeline.source_inputs for source in entry.sources)
    upstreams = sorted({source.address for source in sources if source.format == FORMAT})
    consumed = {entry.stream: entry.epoch for entry in manifest.consumed}
    return {f"consumed_epoch/{stream}": consumed.get(stream, 0) for stream in upstreams}


def data_version(stream: str, manifest: Manifest) -> str:
    """The stream and its epoch, with the epoch's nonce: Dagster compares it to detect that the table changed.

    A stream that was restored from a backup has other tables under the numbers that it reaches again.
    """
    return f"{stream}@{manifest.epoch}" + ("" if manifest.epoch_nonce is None else f"-{manifest.epoch_nonce}")


def _position(position: SourcePosition) -> dict[str, object]:
    """One source and how far it was read. A source identity holds no secret options."""
    source, files = position.source, position.files
    shown: dict[str, object] = {"format": source.format, "address": source.address, "position": _json(position.current)}
    if files.index or files.tail:
        shown["files"] = sum(reference.entries for reference in files.index) + len(files.tail)
    return shown


def _json(text: str | None) -> object:
    """The source's offset, as JSON where it is JSON; each Spark source has another form."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


# ---- what each of several steps did: a table of all, and numbers of the slowest


_NOTHING = StepWork(0, 0, 0, 0)
_NO_STATE = "nothing between epochs"
_COLUMNS = [
    dg.TableColumn("step", "int"),
    dg.TableColumn("operator", "string"),
    dg.TableColumn("key", "string"),
    dg.TableColumn("rows_in", "int", description="From sources and from earlier steps, since the last event."),
    dg.TableColumn("rows_out", "int", description="Its changes, since the last event; an update is two."),
    dg.TableColumn("late_rows", "int", description="Since the last event."),
    dg.TableColumn("milliseconds", "int", description="Of its slowest task, in the epoch in which it was slowest."),
    dg.TableColumn("state_bytes", "int", description="The files of its state tables at the epoch."),
    dg.TableColumn("bound", "string", description="What limits its state: `dagster-ckpt explain` has all of it."),
]


def steps_table(manifest: Manifest, work: Sequence[StepWork]) -> dg.TableMetadataValue:
    """A row for each step of the stream; `work` is what each did, empty where no epoch was committed."""
    pipeline = manifest.pipeline
    records = [
        dg.TableRecord(
            {
                "step": number,
                "operator": step.operator,
                "key": ", ".join(step.keys),
                "rows_in": did.rows_in,
                "rows_out": did.rows_out,
                "late_rows": did.late_rows,
                "milliseconds": did.milliseconds,
                "state_bytes": total_bytes(
                    {
                        name: manifest.runs[name]
                        for spec in step.tables
                        if (name := pipeline.name_in_runs(number, spec.name)) in manifest.runs
                    }
                ),
                "bound": _NO_STATE if (limit := said.limit) is None else limit.text,
            }
        )
        for number, (step, did, said) in enumerate(
            zip(pipeline.steps, _each(manifest, work), explain_pipeline(pipeline).steps, strict=True)
        )
    ]
    return dg.MetadataValue.table(records, dg.TableSchema(_COLUMNS))


def slowest_step(manifest: Manifest, work: Sequence[StepWork]) -> dict[str, int]:
    """The number of the slowest of several steps, its time and its rows, each of them a plot; nothing for one step."""
    if not manifest.pipeline.before:
        return {}
    each = _each(manifest, work)
    number = max(range(len(each)), key=lambda step: each[step].milliseconds)
    return {
        "slowest_step": number,
        "slowest_step_milliseconds": each[number].milliseconds,
        "slowest_step_rows_in": each[number].rows_in,
    }


def _each(manifest: Manifest, work: Sequence[StepWork]) -> Sequence[StepWork]:
    return work or [_NOTHING] * len(manifest.pipeline.steps)
