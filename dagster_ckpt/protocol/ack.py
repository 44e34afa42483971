"""A task's reply for one shard: the only result of an epoch's Spark job."""

from dataclasses import dataclass

from dagster_ckpt.ids import Shard
from dagster_ckpt.protocol.manifest.manifest import ChangeRef, RunRef


@dataclass(frozen=True, slots=True)
class ShardRuns:
    """All runs of one state table in one shard after the epoch, newest first. They replace the parent manifest's.

    Each is either the parent's reference (perhaps with a wider merge range) or a file that this epoch wrote.
    """

    table: str
    runs: tuple[RunRef, ...]


@dataclass(frozen=True, slots=True)
class FilesMerged:
    """Files of an append-only stream's table that were merged into one.

    `replaced` are their names: neighbours in the parent's list, in its order. `file` has all their rows, in that order.
    """

    replaced: tuple[str, ...]
    file: ChangeRef


@dataclass(frozen=True, slots=True)
class ShardAck:
    """A shard's reply that its part of the epoch is durable: every file named here was fsynced, or its put confirmed.

    `state_rows` is the change in live rows of the state tables, `table_rows` that of the one which the stream's table
    is made of (0 for an append-only table); `event_times_us` the greatest event time that each input saw in this epoch,
    None where it saw none; `merged_rows` what compaction wrote; `stall_ms` how long the intake of rows waited for it;
    `counters` the operator's counters by name. A task processes its shards together: `milliseconds` is its time for all
    of them, and all counts but `rows_in` and `rows_from_steps` are in the ACK of its first shard. `late_rows_by_input`
    is by input, in the order of `Pipeline.input_places`, and empty where no row was late. One task of an append-only
    stream may also have merged files of the table. `step` is the number of the step in the pipeline, from 0;
    `rows_from_steps` came to it from earlier steps, and `rows_to_steps` are the changes that it hands to later ones:
    neither is in `rows_in` or `rows_out`, which count the stream's.
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
    table_rows: int = 0
    late_rows_by_input: tuple[int, ...] = ()
    step: int = 0
    rows_from_steps: int = 0
    rows_to_steps: int = 0
