"""What a task says about one shard: the only result of an epoch's Spark job."""

from dataclasses import dataclass

from dagster_ckpt.ids import Shard
from dagster_ckpt.protocol.manifest.manifest import ChangeRef, RunRef


@dataclass(frozen=True, slots=True)
class ShardRuns:
    """All runs of one state table in one shard after the epoch, newest first. They replace the parent manifest's.

    Each is either the parent's own reference (perhaps with a wider merge range) or a file this very epoch wrote.
    """

    table: str
    runs: tuple[RunRef, ...]


@dataclass(frozen=True, slots=True)
class FilesMerged:
    """Files of an append-only stream's table that have become one: `replaced` are neighbours in the parent's list.

    `replaced` are their names, in the list's order. `file` has all their rows, in that order.
    """

    replaced: tuple[str, ...]
    file: ChangeRef


@dataclass(frozen=True, slots=True)
class ShardAck:
    """A shard's word that its part of the epoch is durable: every file named here has been fsynced or its put answered.

    `state_rows` is the change in live rows of the state tables; `event_times_us` the greatest event time seen by each
    input in this epoch, None where it saw none; `merged_rows` what compaction wrote, `stall_ms` how long the intake of
    rows waited for it; `counters` what the operator counts by names of its own. A task that works several shards works
    them together: `milliseconds` is how long it worked for all of them, and all that is counted, but for `rows_in`, is
    given with its first shard. One task of an append-only stream may also have merged files of the table.
    """

    shard: Shard
    tables: tuple[ShardRuns, ...] = ()
    changes: tuple[ChangeRef, ...] = ()
    rows_in: int = 0
    rows_out: int = 0
    late_rows: int = 0
    state_rows: int = 0
    event_times_us: tuple[int | None, ...] = ()
    milliseconds: int = 0
    host: str = ""
    merged_rows: int = 0
    stall_ms: int = 0
    counters: tuple[tuple[str, int], ...] = ()
    files_merged: FilesMerged | None = None
