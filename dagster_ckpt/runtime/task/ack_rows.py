"""The replies of an epoch's tasks: one per shard with an ACK or a decline, as JSON."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from dagster_ckpt.ids import Shard
from dagster_ckpt.protocol.ack import FilesMerged, ShardAck, ShardRuns
from dagster_ckpt.protocol.json_codec import COUNT, TEXT, WHOLE, Record, optional, pair, sequence
from dagster_ckpt.protocol.manifest.codec import CHANGE, CHANGES, PATH, RUN


@dataclass(frozen=True, slots=True)
class ShardDecline:
    """A shard's reply that it cannot make its part of the epoch. `error` is the name of the error's class."""

    shard: Shard
    host: str
    error: str
    reason: str


Reply = ShardAck | ShardDecline


_RUNS = Record(ShardRuns, {"table": TEXT, "runs": RUN.columns()}).codec()
_FILES_MERGED = Record(FilesMerged, {"replaced": sequence(PATH), "file": CHANGE.codec()}).codec()
_ACK = Record(
    ShardAck,
    {
        "shard": COUNT,
        "tables": sequence(_RUNS),
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
).codec()
_DECLINE = Record(ShardDecline, {"shard": COUNT, "host": TEXT, "error": TEXT, "reason": TEXT}).codec()


def encode_reply(reply: Reply) -> str:
    """One reply as text."""
    return json.dumps(
        {"ack": _ACK.encode(reply)} if isinstance(reply, ShardAck) else {"decline": _DECLINE.encode(reply)}
    )


def decode_reply(text: str) -> Reply:
    """The reply in a text."""
    [(kind, value)] = json.loads(text).items()
    return _ACK.decode(value) if kind == "ack" else _DECLINE.decode(value)


def merged(acks: Iterable[ShardAck]) -> dict[Shard, ShardAck]:
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
