"""The replies of an epoch's tasks: one per shard with an ACK or a decline, those of a task as one JSON."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from dagster_ckpt.ids import Shard
from dagster_ckpt.protocol.ack import FilesMerged, ShardAck, ShardRuns
from dagster_ckpt.protocol.json_codec import COUNT, TEXT, WHOLE, Codec, Json, Record, optional, pair, sequence
from dagster_ckpt.protocol.manifest.codec import CHANGE, CHANGES, PATH, RUNS
from dagster_ckpt.protocol.manifest.manifest import RunRef


@dataclass(frozen=True, slots=True)
class ShardDecline:
    """A shard's reply that it cannot make its part of the epoch. `error` is the name of the error's class."""

    shard: Shard
    host: str
    error: str
    reason: str


Reply = ShardAck | ShardDecline


@dataclass(frozen=True, slots=True)
class _Replies:
    """Those of a task. Its ACKs are without their run lists, which come one after the other.

    `tables` is how many lists each ACK has, `names` has the table of each, `counts` how many runs it has.
    """

    acks: tuple[ShardAck, ...]
    declines: tuple[ShardDecline, ...]
    tables: tuple[int, ...]
    names: tuple[str, ...]
    counts: tuple[int, ...]
    runs: tuple[RunRef, ...]


def _none(value: Json) -> tuple[ShardRuns, ...]:
    if value != []:
        raise ValueError("the run lists of an ACK are beside it")
    return ()


_FILES_MERGED = Record(FilesMerged, {"replaced": sequence(PATH), "file": CHANGE.codec()}).codec()
_ACK = Record(
    ShardAck,
    {
        "shard": COUNT,
        "tables": Codec(_none, list),
        "changes": CHANGES,
        "rows_in": COUNT,
        "rows_out": COUNT,
        "late_rows": COUNT,
        "state_rows": WHOLE,
        "event_times_us": sequence(optional(WHOLE)),
        "milliseconds": COUNT,
        "host": TEXT,
        "merged_rows": COUNT,
        "stall_ms": COUNT,
        "counters": sequence(pair(TEXT, COUNT)),
        "files_merged": optional(_FILES_MERGED),
        "table_rows": WHOLE,
        "late_rows_by_input": sequence(COUNT),
        "step": COUNT,
        "rows_from_steps": COUNT,
        "rows_to_steps": COUNT,
    },
).columns()
_DECLINE = Record(ShardDecline, {"shard": COUNT, "host": TEXT, "error": TEXT, "reason": TEXT}).codec()
# Column by column: the many runs of many shards take a third of the time of an ACK after another.
_REPLIES = Record(
    _Replies,
    {
        "acks": _ACK,
        "declines": sequence(_DECLINE),
        "tables": sequence(COUNT),
        "names": sequence(TEXT),
        "counts": sequence(COUNT),
        "runs": RUNS,
    },
).codec()


def encode_replies(replies: Sequence[Reply]) -> str:
    """The replies of a task as text."""
    acks = [each for each in replies if isinstance(each, ShardAck)]
    lists = [each for ack in acks for each in ack.tables]
    written = _Replies(
        acks=tuple(replace(ack, tables=()) for ack in acks),
        declines=tuple(each for each in replies if isinstance(each, ShardDecline)),
        tables=tuple(len(ack.tables) for ack in acks),
        names=tuple(each.table for each in lists),
        counts=tuple(len(each.runs) for each in lists),
        runs=tuple(run for each in lists for run in each.runs),
    )
    return json.dumps(_REPLIES.encode(written))


def decode_replies(text: str) -> list[Reply]:
    """The replies in a text, ACKs first."""
    read = _REPLIES.decode(json.loads(text))
    runs = iter(read.runs)
    lists = iter(
        [ShardRuns(name, tuple(islice(runs, count))) for name, count in zip(read.names, read.counts, strict=True)]
    )
    acks = [replace(ack, tables=tuple(islice(lists, count))) for ack, count in zip(read.acks, read.tables, strict=True)]
    return [*acks, *read.declines]


def merge_acks(acks: Iterable[ShardAck]) -> dict[Shard, ShardAck]:
    """One ACK per shard. Only an unkeyed stream has several: each of its partitions appends files."""
    found: dict[Shard, ShardAck] = {}
    for ack in acks:
        known = found.get(ack.shard)
        found[ack.shard] = ack if known is None else _both(known, ack)
    return found


def _both(one: ShardAck, other: ShardAck) -> ShardAck:
    assert not one.tables, f"two tasks worked on the state of one shard. shard={one.shard}"
    assert not other.tables, f"two tasks worked on the state of one shard. shard={one.shard}"
    assert not (one.files_merged and other.files_merged), f"two tasks merged files. shard={one.shard}"
    return replace(
        one,
        changes=one.changes + other.changes,
        rows_in=one.rows_in + other.rows_in,
        rows_out=one.rows_out + other.rows_out,
        late_rows=one.late_rows + other.late_rows,
        rows_from_steps=one.rows_from_steps + other.rows_from_steps,
        event_times_us=tuple(
            max((time for time in times if time is not None), default=None)
            for times in zip(one.event_times_us, other.event_times_us, strict=True)
        ),
        milliseconds=max(one.milliseconds, other.milliseconds),
        host=one.host if one.milliseconds >= other.milliseconds else other.host,
        merged_rows=one.merged_rows + other.merged_rows,
        files_merged=one.files_merged or other.files_merged,
    )
