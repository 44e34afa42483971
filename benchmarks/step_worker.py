"""Works epochs of one kind of step after another, as tasks do, without Spark; `benchmarks.paired` says when.

Each line of the input is the name of a kind, which fills its state, or empty: the next epoch of that kind. Each line of
the output is JSON: first the names of all kinds and where the package is, then for each line what was asked for. Only
the task's own work is timed: rows in, state and changes on disk, and not the commit.
"""

import gc
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, process_time

import pyarrow as pa

import dagster_ckpt
from benchmarks.filling import opening_of
from benchmarks.step_kinds import KINDS, Kind
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.lsm.key_hash import key_hashes
from dagster_ckpt.operators.operator import keys_of_inputs
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.transitions.edits import EpochEdit
from dagster_ckpt.runtime.declared.pipeline import build_dataflow
from dagster_ckpt.runtime.task.epoch_task import EpochOrder, TaskSetup, replies_of
from dagster_ckpt.runtime.task.shard_assignment import HASH, INPUT, ShardAssignment, columns_of_input
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.writer.stream_writer import open_stream

_SHARDS = 4
_FILL = 4
"""Epochs that are not timed: they fill the state, and warm what is slow at first."""


class KindAtWork:
    """A stream of this kind in a store of its own, after `fill` epochs."""

    def __init__(self, kind: Kind, folder: Path, fill: int = _FILL) -> None:
        stream = kind.stream().with_mirror()
        [operator] = build_dataflow("kind", stream, [()] * kind.inputs).operators
        self._kind, self._pipeline, self._epoch = kind, operator.pipeline, 0
        address = StoreAddress(folder.as_uri())
        self._writer = open_stream(
            folder_store(address.open(), "kind"), opening_of("kind", operator, _SHARDS, 20), SystemClock()
        )
        self._writer.heartbeat.stop()
        times = [each.event_time for each in stream.inputs]
        self._delays_us = tuple(None if time is None else time.delay_ms * 1_000 for time in times)
        keyed = self._pipeline.shuffles
        self._setup = TaskSetup(
            address,
            "kind",
            ShardAssignment.keyed(_SHARDS, 1) if keyed else ShardAssignment.unkeyed(_SHARDS),
            tuple(None if time is None else time.column for time in times),
            code=stream.code,
        )
        for _ in range(fill):
            self.epoch()

    def epoch(self) -> dict[str, float]:
        """Work and commit the next epoch: milliseconds of the processor and of the clock, and rows that came out."""
        manifest = self._writer.manifest
        order = EpochOrder(self._writer.next_epoch, manifest.term, manifest.version, manifest.nonce)
        batches = [self._as_shuffled(number) for number in range(self._kind.inputs)]
        tasks = 1 if self._pipeline.shuffles else _SHARDS
        wall, cpu = perf_counter(), process_time()
        replies = [
            reply
            for task in range(tasks)
            for reply in replies_of(self._setup, order, task, task, iter(batches if task == 0 else ()))
        ]
        cpu_ms, wall_ms = (process_time() - cpu) * 1e3, (perf_counter() - wall) * 1e3
        acks = tuple(reply for reply in replies if isinstance(reply, ShardAck))
        assert len(acks) == len(replies), replies
        self._epoch += 1
        self._writer.commit(EpochEdit(acks, (), self._epoch, epoch_ms=1, delays_us=self._delays_us))
        return {"cpu_ms": cpu_ms, "wall_ms": wall_ms, "rows_out": sum(ack.rows_out for ack in acks)}

    def _as_shuffled(self, number: int) -> pa.RecordBatch:
        """The next rows of an input as Spark's shuffle brings them, those of several inputs in one struct each."""
        batch = self._kind.batch(self._epoch, number)
        if not self._pipeline.shuffles:
            return batch
        keys = pa.Table.from_batches([batch]).select(list(keys_of_inputs(self._pipeline)[number]))
        hashes = pa.array(key_hashes(keys).view("int64"))
        batch = batch.select(self._pipeline.inputs[number].schema.names)
        if self._kind.inputs == 1:
            return batch.append_column(HASH, hashes)
        columns = {INPUT: pa.array([number] * batch.num_rows, pa.int32()), HASH: hashes}
        for other, spec in enumerate(self._pipeline.inputs):
            mine = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
            absent = pa.nulls(batch.num_rows, pa.struct(list(spec.schema)))
            columns[columns_of_input(other)] = mine if other == number else absent
        return pa.record_batch(columns)


def replies(lines: Iterator[str], root: Path) -> Iterator[object]:
    """What is written for each line of the input; before it, what there is."""
    yield {"kinds": list(KINDS), "package": str(Path(dagster_ckpt.__file__).parents[1])}
    at_work: KindAtWork | None = None
    for number, name in enumerate(line.strip() for line in lines):
        if name:
            at_work = KindAtWork(KINDS[name], root / str(number))
            gc.collect()
            gc.freeze()  # the collections below then take no time, and none falls into an epoch's
            yield {}
        else:
            assert at_work is not None, "a kind comes first"
            gc.collect()
            yield at_work.epoch()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for reply in replies(iter(sys.stdin.readline, ""), Path(folder)):
            print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
