"""Epochs of few rows, or of few keys, worked in the driver without a job of Spark's.

The functions of the tasks are called one after the other. A job of two stages takes Spark 50 ms and two processes,
however few the rows. Here one task has all shards; its files, its ACKs and the commit are those of any other task. Only
one epoch is worked so at a time in a process, since its streams share the engine.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

import pyarrow as pa

from dagster_ckpt.operators.shared.checks.updating_checks import changes_schema
from dagster_ckpt.runtime.micro_batch.epoch_job import JobOutcome
from dagster_ckpt.runtime.task.ack_rows import Reply
from dagster_ckpt.runtime.task.dataflow import Stage, scan_inputs
from dagster_ckpt.runtime.task.epoch_task import EpochOrder, TaskSetup, run_task
from dagster_ckpt.runtime.task.scan import AnyScan, Piece, check_pieces, scan
from dagster_ckpt.runtime.task.shard_assignment import ShardAssignment

ROWS_MAX = 20_000
BYTES_MAX = 1 << 22
PIECES_MAX = 64
"""The most rows, bytes, and pieces, such as files, that the driver works itself."""
STREAMED_BYTES_MAX = 1 << 26
"""The most bytes of files whose rows come while they are worked: then there are few keys, and Spark is on this host.

One core does a million rows of few keys in a third of the time that two take with a job.
"""
CHANGES_MAX = 50_000
"""It works no epoch after one with more changes than this."""
MEMORY_BYTES = 1 << 27

_FIRST_ATTEMPT = 1 << 40
"""Spark numbers its attempts from 0: no file of the driver's has the name of one of a task's."""

_attempts = count(_FIRST_ATTEMPT)
_one_at_a_time = threading.Lock()


class TooManyRowsError(Exception):
    """More rows than the driver works itself."""


@dataclass(frozen=True)
class DriverWork:
    """The work of one epoch: its stages, and the rows of the first one, as its task takes them."""

    stages: Sequence[Stage]
    rows: Iterable[pa.RecordBatch]

    def run(self, order: EpochOrder) -> JobOutcome:
        """Do it, in this thread."""
        replies: list[Reply] = []
        with _one_at_a_time:
            rows = self.rows
            for stage, following in zip(self.stages, (*self.stages[1:], None), strict=True):
                own: list[Reply] = []
                changes = list(run_task(stage.setup, order, 0, next(_attempts), iter(rows), own))
                replies += own
                if following is not None:
                    rows = _rows_for(changes, stage, following)
        return JobOutcome(tuple(replies), last_tasks=1)


def _rows_for(changes: Sequence[pa.Table], stage: Stage, following: Stage) -> Iterator[pa.RecordBatch]:
    """The changes of a stage as rows of the next one."""
    packed = following.packed_rows(stage.setup.step)
    assert packed is not None, "the tasks of the step before do what is done with its changes"
    for table in changes:
        yield from packed.rows(table.select(changes_schema(stage.pipeline).names)).to_batches()


def work_on(stages: Sequence[Stage], scans: Sequence[AnyScan], pieces: Sequence[Piece], *, streams: bool) -> DriverWork:
    """The work on these pieces. Raises `LeftToSparkError`, and `TooManyRowsError` where it is not the driver's.

    `streams`: rows may also come while they are worked, so that there may be more of them.
    """
    size = sum(piece.length for piece in pieces)
    if len(pieces) > PIECES_MAX or size > (STREAMED_BYTES_MAX if streams else BYTES_MAX):
        raise TooManyRowsError
    inputs = scan_inputs(stages, scans)
    if size <= BYTES_MAX:
        try:
            return DriverWork(stages, _few_rows(scan(0, inputs[0], pieces)))
        except TooManyRowsError:
            if not streams:
                raise
    check_pieces(inputs, pieces)
    return DriverWork(stages, scan(0, inputs[0], pieces))


def _few_rows(batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        found.append(batch)
        rows += batch.num_rows
        if rows > ROWS_MAX:
            raise TooManyRowsError
    return found


def in_one_task(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """The stages as the driver works them."""
    return tuple(replace(stage, setup=_of_driver(stage.setup)) for stage in stages)


def _of_driver(setup: TaskSetup) -> TaskSetup:
    engine = replace(setup.engine, memory_limit_bytes=min(setup.engine.memory_limit_bytes, MEMORY_BYTES))
    one = setup.assignment if setup.assignment.tasks is None else ShardAssignment.keyed(setup.assignment.shards, 1)
    # The package is the driver's own, not from the archive that it sends to others.
    return replace(setup, assignment=one, engine=engine, package=None)


def can_work(stages: Sequence[Stage]) -> bool:
    """Whether the driver can work the steps: each but the first reads the one before, by what its tasks can do.

    A user's function stays in Spark's workers, which a crash of it does not take the stream along with; so do rows that
    wait for the watermark, of which any number may be due.
    """
    return all(
        stage.setup.code is None
        and not stage.shared
        and not any(stage.setup.event_times)
        and (number == 0 or (len(stage.pipeline.inputs) == 1 and stage.packed_rows(number - 1) is not None))
        for number, stage in enumerate(stages)
    )
