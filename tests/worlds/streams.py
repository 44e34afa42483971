"""Streams to test with: what a writer brings, and epochs it might commit."""

from typing import Any
from uuid import uuid4

from dagster_ckpt.ids import Shard
from dagster_ckpt.protocol.ack import ShardAck, ShardRuns
from dagster_ckpt.protocol.lease import LeaseHolder, ProcessId
from dagster_ckpt.protocol.manifest.manifest import IndexedList, Manifest, SourcePosition
from dagster_ckpt.protocol.transitions.edits import EpochEdit
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from dagster_ckpt.storage.writer.opening import Opening
from tests.worlds.manifests import OWNER, PIPELINE, SOURCE, a_change, a_run

SHARDS = 2


def a_store() -> MemoryObjectStore:
    """An empty stream folder of its own."""
    return MemoryObjectStore(uuid4().hex)


def a_holder(run: str = "run-1", host: str = "elsewhere", instance: str = OWNER.instance) -> LeaseHolder:
    """A writer on another host, whose process nobody here can look up."""
    return LeaseHolder(run, instance, ProcessId(host, "boot", "pid:[1]", 4242, 99))


def an_opening(run: str = "run-1", **fields: Any) -> Opening:
    plain: dict[str, Any] = {
        "stream": "flights/delay_by_carrier",
        "owner": OWNER,
        "pipeline": PIPELINE,
        "shards": SHARDS,
        "holder": a_holder(run),
        "root_run": run,
        "retained": 5,
    }
    return Opening(**{**plain, **fields})


def an_edit(parent: Manifest, attempt: int = 0, **fields: Any) -> EpochEdit:
    """The next epoch after `parent`: a new run and a change-log file in each shard, and the next batch."""
    term, epoch = parent.term, parent.version + 1
    acks = tuple(
        ShardAck(
            Shard(shard),
            tables=tuple(
                ShardRuns(table, (a_run(term, epoch, shard, SHARDS, attempt), *shards[shard][:3]))
                for table, shards in parent.runs.items()
            ),
            changes=(a_change(term, epoch, shard, attempt),),
            rows_in=7,
            rows_out=5,
            state_rows=1,
            event_times_us=(1_000_000 * epoch,),
        )
        for shard in range(SHARDS)
    )
    batch_id = 1 if parent.batch_id is None else parent.batch_id + 1
    before = parent.sources[0] if parent.sources else SourcePosition(SOURCE)
    current = f'{{"logOffset":{batch_id}}}'
    after = SourcePosition(SOURCE, current, previous=before.current, files=before.files, table=before.table)
    plain: dict[str, Any] = {
        "acks": acks,
        "sources": (after,),
        "batch_id": batch_id,
        "epoch_ms": 12,
        "delays_us": (1_000,),
    }
    return EpochEdit(**{**plain, **fields})


def with_files(position: SourcePosition, *files: Any) -> SourcePosition:
    """The position after the source has handed out these files too."""
    listed = IndexedList(position.files.index, (*position.files.tail, *files))
    return SourcePosition(position.source, position.current, position.previous, position.initial, listed)
