"""One epoch's Spark job: run it with a time limit, cancel it, and say in one line why it failed."""

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from dagster_ckpt.ids import Shard
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.runtime.ack_rows import ShardDecline, decode_word
from dagster_ckpt.runtime.layout import Layout
from dagster_ckpt.runtime.task import ORDER_PROPERTY, EpochOrder

_CANCEL_AGAIN_S = 1.0
_REASON_LENGTH_MAX = 1000
_TASKS_SHOWN_MAX = 20


@dataclass(frozen=True)
class SilentTask:
    """A task that had not answered when time was up, in words, and the shards that it works (none: it reads input)."""

    name: str
    shards: tuple[Shard, ...] = ()


@dataclass(frozen=True)
class JobOutcome:
    """How the job ended. `words` are what the tasks said, none where it failed: `error` is why, `reason` in one line.

    `silent` are the tasks that were silent for too long; `aborted` says why we cancelled it ourselves. `had_tasks` is
    false where Spark knew from the plan alone that there are no rows, and so had nobody to say a word.
    """

    words: tuple[ShardAck | ShardDecline, ...] = ()
    error: Exception | None = None
    reason: str = ""
    silent: tuple[SilentTask, ...] | None = None
    aborted: str | None = None
    had_tasks: bool = True


class EpochJob:
    """The Spark job that makes one epoch's ACKs. `tag` is a name that no other job of the process has."""

    def __init__(self, frame: DataFrame, order: EpochOrder, layout: Layout, tag: str) -> None:
        self._frame = frame
        self._order = order
        self._layout = layout
        self._tag = tag
        self._done = threading.Event()
        self._silent: tuple[SilentTask, ...] | None = None
        self._aborted: str | None = None

    def run(self, timeout_ms: int) -> JobOutcome:
        """Run it, in the thread of `foreachBatch`."""
        context = self._frame.sparkSession.sparkContext
        watch = threading.Thread(target=self._watch, args=(context, timeout_ms), name=self._tag, daemon=True)
        context.setLocalProperty(ORDER_PROPERTY, self._order.encode())
        context.addJobTag(self._tag)
        watch.start()
        try:
            rows = self._frame.collect()
            had_tasks = bool(rows) or self._frame.rdd.getNumPartitions() > 0
        except (Py4JError, PySparkException) as error:
            return JobOutcome((), error, reason_of(error), self._silent, self._aborted)
        finally:
            self._done.set()
            context.removeJobTag(self._tag)
        return JobOutcome(tuple(decode_word(row["word"]) for row in rows), had_tasks=had_tasks)

    def abort(self, reason: str) -> None:
        """Cancel the job, from another thread."""
        self._aborted = reason
        context = self._frame.sparkSession.sparkContext
        threading.Thread(target=self._cancel, args=(context,), name=self._tag, daemon=True).start()

    def _watch(self, context: SparkContext, timeout_ms: int) -> None:
        if not self._done.wait(timeout_ms / 1000):
            self._silent = self._running_tasks(context)
            self._cancel(context)

    def _cancel(self, context: SparkContext) -> None:
        # Again and again: Spark may not have begun the job yet.
        while not self._done.is_set():
            context.cancelJobsWithTag(self._tag)
            self._done.wait(_CANCEL_AGAIN_S)

    def _running_tasks(self, context: SparkContext) -> tuple[SilentTask, ...]:
        """The tasks that have not answered, their hosts and shards, from Spark's own status store."""
        try:
            return tuple(islice(self._from_status_store(context), _TASKS_SHOWN_MAX))
        except (Py4JError, PySparkException) as error:
            return (SilentTask(f"unknown, for Spark's status store did not answer: {reason_of(error)}"),)

    def _from_status_store(self, context: SparkContext) -> Iterator[SilentTask]:
        scala: Any = context._jsc.sc()  # noqa: SLF001  (Spark shows its status store nowhere else)
        for job in scala.statusTracker().getJobIdsForTag(self._tag):
            stages = scala.statusTracker().getJobInfo(job).get().stageIds()
            for stage in stages:
                tasks = scala.statusStore().taskList(stage, 0, 2**31 - 1).iterator()
                while tasks.hasNext():
                    task = tasks.next()
                    if task.status() == "RUNNING":
                        yield self._named(stage == max(stages), task)

    def _named(self, in_last_stage: bool, task: Any) -> SilentTask:  # noqa: FBT001  (a fact, no switch)
        where = f"{task.host()} (task {task.taskId()}"
        if not in_last_stage:
            return SilentTask(f"{where} reads partition {task.partitionId()} of the input)")
        shards = self._layout.shards_of(task.partitionId())
        return SilentTask(f"{where} works shards {', '.join(map(str, shards))})", tuple(shards))


def reason_of(error: Py4JError | PySparkException) -> str:
    """What went wrong, without the pages of stack traces around it."""
    cause: Any = getattr(error, "java_exception", None)
    text = str(cause.getMessage()) if cause is not None else str(error)
    text = text.split("Driver stacktrace:")[0]
    lines = [line.strip() for line in text.splitlines()]
    kept = [line for line in lines if line and not re.match(r"at [\w.$]+\(|File \"|Traceback", line)]
    return " ".join(kept)[:_REASON_LENGTH_MAX]
