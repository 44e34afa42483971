"""What an epoch did, what the stream holds after it, and the totals since it began."""

from collections.abc import Iterable, Sequence

from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.manifest.manifest import Manifest, Pipeline, ReadBy, RunRef, Statistics, StepWork


def statistics_after(
    parent: Manifest,
    acks: Sequence[ShardAck],
    epoch_ms: int,
    runs: dict[str, tuple[tuple[RunRef, ...], ...]],
    read_by: ReadBy | None = None,
) -> Statistics:
    """The statistics of the epoch that these ACKs make of its parent, whose runs are `runs`."""
    before, delivers = parent.statistics, parent.pipeline.delivers
    table_rows = (parent.table_rows or 0) if delivers else parent.table_rows
    rows_in = sum(ack.rows_in for ack in acks)
    rows_out = sum(ack.rows_out for ack in acks)
    late_rows = sum(ack.late_rows for ack in acks)
    more_rows = rows_out if parent.pipeline.appends and not delivers else sum(ack.table_rows for ack in acks)
    return Statistics(
        rows_in=rows_in,
        rows_out=rows_out,
        late_rows=late_rows,
        epoch_ms=epoch_ms,
        change_bytes=sum(change.bytes for ack in acks for change in ack.changes),
        # For tables whose rows expire it is an estimate: it may err, but an epoch must never fail for that.
        state_rows=max(0, before.state_rows + sum(ack.state_rows for ack in acks)),
        state_bytes=total_bytes(runs),
        total_rows_in=before.total_rows_in + rows_in,
        total_epochs=before.total_epochs + 1,
        merged_rows=sum(ack.merged_rows for ack in acks),
        stall_ms=max((ack.stall_ms for ack in acks), default=0),
        total_rows_out=before.total_rows_out + rows_out,
        total_late_rows=before.total_late_rows + late_rows,
        table_rows=None if table_rows is None else max(0, table_rows + more_rows),
        late_rows_by_input=_late_rows_by_input(parent, acks),
        read_by=read_by,
    )


def _late_rows_by_input(parent: Manifest, acks: Sequence[ShardAck]) -> tuple[int, ...]:
    """The late rows of each input since the stream began; of a stream with one input they are in its total."""
    inputs = range(len(parent.pipeline.input_places))
    if len(inputs) < 2:
        return ()
    late = [ack.late_rows_by_input for ack in acks if ack.late_rows]
    return tuple(parent.late_rows_of(number) + sum(each[number] for each in late) for number in inputs)


def work_of_steps(pipeline: Pipeline, acks: Sequence[ShardAck]) -> tuple[StepWork, ...]:
    """What each of several steps did, by these ACKs; nothing for a stream of one step, whose statistics have it."""
    if not pipeline.before:
        return ()
    by_step = ([ack for ack in acks if ack.step == number] for number in range(len(pipeline.steps)))
    return tuple(
        StepWork(
            rows_in=sum(ack.rows_in + ack.rows_from_steps for ack in own),
            rows_out=sum(ack.rows_out + ack.rows_to_steps for ack in own),
            late_rows=sum(ack.late_rows for ack in own),
            milliseconds=max(ack.milliseconds for ack in own),
        )
        for own in by_step
    )


def total_bytes(runs: dict[str, tuple[tuple[RunRef, ...], ...]]) -> int:
    """The bytes of all runs; a run that several shards share counts once."""
    return sum(run.bytes for run in distinct_files(shard for table in runs.values() for shard in table))


def distinct_files(shards: Iterable[Sequence[RunRef]]) -> list[RunRef]:
    """A run of each file of these shards: several shards may share one."""
    return list({run.name: run for shard in shards for run in shard}.values())
