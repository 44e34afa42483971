"""Facts about an epoch that need none of its rows."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from dagster_ckpt.ids import Epoch, Version
from dagster_ckpt.protocol.epochs.lineage import is_abandoned
from dagster_ckpt.protocol.manifest.manifest import Manifest, ReadBy, Retained

_UNIX = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class EpochInfo:
    """One retained epoch of a stream. All times are aware and in UTC; they are the writer's clock, for people to read.

    `version` is the manifest that shows the epoch. `current`: it is what readers of the stream see now. `abandoned`: a
    rollback left it behind, and it can be read until it is retired. `rows_in`, `rows_out` (rows of the change log),
    `late_rows`, `epoch_ms`, `change_bytes`, `merged_rows` (written by compaction) and `stall_ms` (how long the intake
    of rows waited for that) are what this epoch did; `state_rows` and `state_bytes` what the stream held after it,
    `shards` how many shards it had, and `runs` the most runs of any of them, which is what a look-up has to search;
    `total_rows_in` and `total_epochs` count from the stream's beginning. `event_time` is the greatest event time any
    input had seen by then, None where there is none. `table_rows` are the rows of the stream's table, None where they
    are not known. `nonce` identifies the epoch for ever, which a number alone does not: a stream that was restored from
    a backup reaches it again. `read_by` says who has read the epoch's rows: Spark, its tasks by Arrow, or the driver,
    which then has done all of its work; None where there was nothing to read.
    """

    stream: str
    epoch: Epoch
    version: Version
    committed_at: datetime
    current: bool
    abandoned: bool
    rows_in: int
    rows_out: int
    late_rows: int
    epoch_ms: int
    change_bytes: int
    merged_rows: int
    stall_ms: int
    state_rows: int
    state_bytes: int
    runs: int
    shards: int
    total_rows_in: int
    total_epochs: int
    watermark: datetime | None
    event_time: datetime | None
    table_rows: int | None
    nonce: str | None
    read_by: ReadBy | None

    @property
    def event_time_lag(self) -> timedelta | None:
        """How far the newest event time was behind the commit; None without event times."""
        return None if self.event_time is None else self.committed_at - self.event_time


def info_of(retained: Retained, shown: Manifest, newest: Manifest) -> EpochInfo:
    """The facts about a retained epoch from its manifest, `shown`, and the stream's newest manifest."""
    assert shown.epoch == retained.epoch, f"shown={shown.epoch}, retained={retained.epoch}"
    did = shown.statistics
    event_times = [moment_of(time_us) for time_us in shown.event_times_us if time_us is not None]
    return EpochInfo(
        stream=newest.stream,
        epoch=retained.epoch,
        version=retained.version,
        committed_at=moment_of(retained.time_ms * 1_000),
        current=retained.epoch == newest.epoch,
        abandoned=is_abandoned(newest, retained.epoch),
        rows_in=did.rows_in,
        rows_out=did.rows_out,
        late_rows=did.late_rows,
        epoch_ms=did.epoch_ms,
        change_bytes=did.change_bytes,
        merged_rows=did.merged_rows,
        stall_ms=did.stall_ms,
        state_rows=did.state_rows,
        state_bytes=did.state_bytes,
        runs=most_runs(shown),
        shards=shown.shards,
        total_rows_in=did.total_rows_in,
        total_epochs=did.total_epochs,
        watermark=None if shown.watermark_us is None else moment_of(shown.watermark_us),
        event_time=max(event_times, default=None),
        table_rows=shown.table_rows,
        nonce=shown.epoch_nonce,
        read_by=did.read_by,
    )


def most_runs(manifest: Manifest) -> int:
    """The runs of the shard that has the most, in any one state table: what a look-up there has to search."""
    return max((len(runs) for table in manifest.runs.values() for runs in table), default=0)


def moment_of(time_us: int) -> datetime:
    """Microseconds since the Unix epoch as a time in UTC, or the nearest one that Python can represent."""
    try:
        return _UNIX + timedelta(microseconds=time_us)
    except OverflowError:
        # Such event times occur: one bad row must not hide the stream.
        return datetime.max.replace(tzinfo=UTC) if time_us > 0 else datetime.min.replace(tzinfo=UTC)
