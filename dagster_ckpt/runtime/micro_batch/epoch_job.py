"""One epoch's Spark job: run it with a timeout, cancel it, follow it in Spark's status store, and say why it failed."""

import logging
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from dagster_ckpt.ids import Shard
from dagster_ckpt.runtime.catalyst.physical_plan import PlannedRows, rows_of
from dagster_ckpt.runtime.spark.package_archive import PACKAGE
from dagster_ckpt.runtime.task.ack_rows import Reply, decode_replies
from dagster_ckpt.runtime.task.epoch_task import ORDER_PROPERTY, EpochOrder, ReplyAccumulator
from dagster_ckpt.runtime.task.shard_assignment import ShardAssignment

_SHARDS_SHOWN_MAX = 8


@dataclass(frozen=True)
class RunningTask:
    """A running task: a description, and the shards that it works on (none: it reads input)."""

    name: str
    shards: tuple[Shard, ...] = ()


@dataclass(frozen=True)
class JobProgress:
    """How many of a job's tasks have ended; of those that run, which started first (None: none runs) and when.

    `tasks` counts those of the stages that Spark has planned so far. `began_ms` is milliseconds since the Unix epoch.
    """

    tasks_done: int
    tasks: int
    slowest: RunningTask | None = None
    began_ms: int = 0


def running_tasks(context: SparkContext, tag: str, assignment: ShardAssignment) -> Iterator[RunningTask]:
    """The running tasks of the jobs with that tag. Raises Spark's error where it does not answer."""
    store = _status_store(context)
    for stage, is_last in _stages(context, tag):
        tasks = store.taskList(stage, 0, 2**31 - 1).iterator()
        while tasks.hasNext():
            task = tasks.next()
            if task.status() == "RUNNING":
                yield _describe(task, assignment, works_shards=is_last)


def job_progress(context: SparkContext, tag: str, assignment: ShardAssignment) -> JobProgress:
    """The progress of the jobs with that tag: a few calls for each stage, however many tasks it has.

    Raises Spark's error where it does not answer.
    """
    store, done, known = _status_store(context), 0, 0
    slowest: RunningTask | None = None
    began_ms = 0
    for stage, is_last in _stages(context, tag):
        attempt = store.lastStageAttempt(stage)
        if str(attempt.status()) == "SKIPPED":
            continue
        done, known = done + attempt.numCompleteTasks(), known + attempt.numTasks()
        if attempt.numActiveTasks():
            oldest = _oldest_running(context, stage, attempt.attemptId())
            if oldest is not None:
                slowest, began_ms = _describe(oldest, assignment, works_shards=is_last), oldest.launchTime().getTime()
    return JobProgress(done, known, slowest, began_ms)


def _status_store(context: SparkContext) -> Any:
    scala: Any = context._jsc.sc()  # noqa: SLF001  (Spark exposes its status store nowhere else)
    return scala.statusStore()


def _stages(context: SparkContext, tag: str) -> Iterator[tuple[int, bool]]:
    """The stages of the jobs with that tag, each with whether it is the last of its job: its tasks work on shards."""
    tracker: Any = context._jsc.sc().statusTracker()  # noqa: SLF001
    for job in tracker.getJobIdsForTag(tag):
        stages = list(tracker.getJobInfo(job).get().stageIds())
        for stage in sorted(stages):
            yield stage, stage == max(stages)


def _oldest_running(context: SparkContext, stage: int, attempt: int) -> Any:
    """The running task with the lowest number: it started first."""
    jvm: Any = context._jvm  # noqa: SLF001
    api = jvm.org.apache.spark.status.api.v1
    running = jvm.java.util.ArrayList()
    running.add(api.TaskStatus.RUNNING)
    tasks = _status_store(context).taskList(stage, attempt, 0, 1, api.TaskSorting.ID, running)
    return tasks.head() if tasks.nonEmpty() else None


def _describe(task: Any, assignment: ShardAssignment, *, works_shards: bool) -> RunningTask:
    where = f"{task.host()} (task {task.taskId()}"
    if not works_shards:
        return RunningTask(f"{where} reads partition {task.partitionId()} of the input)")
    shards = assignment.shards_of(task.partitionId())
    which = ", ".join(map(str, shards)) if len(shards) <= _SHARDS_SHOWN_MAX else f"{shards[0]} to {shards[-1]}"
    return RunningTask(f"{where} works shards {which})", shards)


_LOG = logging.getLogger(__name__)

_CANCEL_AGAIN_S = 1.0
_PROGRESS_EVERY_S = 1.0
_REASON_LENGTH_MAX = 1000
_FRAMES = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t]+.*\n)*")
"""A Python traceback up to the error itself, which is the first line after it that is not indented."""
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_JAVA_FRAME = re.compile(r"at [\w.$]+\(")
_TASKS_SHOWN_MAX = 20


@dataclass(frozen=True)
class JobOutcome:
    """How the job ended. `replies` are the tasks', none where it failed: `error` is why, `reason` the same in one line.

    `silent` are the tasks that did not reply before the timeout; `aborted` is why we cancelled the job ourselves.
    `last_tasks` is how many tasks the last step had; None where the job failed.
    """

    replies: tuple[Reply, ...] = ()
    error: Exception | None = None
    reason: str = ""
    silent: tuple[RunningTask, ...] | None = None
    aborted: str | None = None
    last_tasks: int | None = None

    @property
    def had_tasks(self) -> bool:
        """False where Spark concluded from the plan alone that there are no rows, and started no task."""
        return self.last_tasks != 0


class EpochJob:
    """The Spark job that makes one epoch's ACKs. `tag` is unique among the process's jobs.

    `replies` takes those of the tasks while the job runs.

    `on_progress` gets the progress every second, the first time after one second and never after `run` has returned.
    """

    def __init__(
        self,
        frame: DataFrame | PlannedRows,
        order: EpochOrder,
        assignment: ShardAssignment,
        replies: ReplyAccumulator,
        tag: str,
        on_progress: Callable[[JobProgress], None],
    ) -> None:
        self._frame = frame
        self._order = order
        self._assignment = assignment
        self._replies = replies
        self._tag = tag
        self._on_progress = on_progress
        self._reporting = threading.Lock()
        self._done = threading.Event()
        self._silent: tuple[RunningTask, ...] | None = None
        self._aborted: str | None = None

    def run(self, timeout_ms: int) -> JobOutcome:
        """Run the job, in the thread of `foreachBatch`."""
        context = self._frame.sparkSession.sparkContext
        watch = threading.Thread(target=self._watch, args=(context, timeout_ms), name=self._tag, daemon=True)
        context.setLocalProperty(ORDER_PROPERTY, self._order.encode())
        properties = self._frame.properties if isinstance(self._frame, PlannedRows) else {}
        for name, value in properties.items():
            context.setLocalProperty(name, value)
        context.addJobTag(self._tag)
        self._replies.value.clear()
        watch.start()
        threading.Thread(
            target=self._report_progress, args=(context,), name=f"{self._tag}-progress", daemon=True
        ).start()
        try:
            rows = rows_of(self._frame)
            rows.count()
            tasks = int(rows.getNumPartitions())
        except (Py4JError, PySparkException) as error:
            return JobOutcome((), error, reason_text(error), self._silent, self._aborted)
        finally:
            with self._reporting:
                self._done.set()
            context.removeJobTag(self._tag)
            for name in properties:
                context.setLocalProperty(name, "")
        # A task of an epoch that was given up may have replied since the list was cleared.
        texts = [text for epoch, text in self._replies.value if epoch == self._order.epoch]
        replies = tuple(reply for text in texts for reply in decode_replies(text))
        return JobOutcome(replies, last_tasks=tasks)

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
        # Repeated, since Spark may not have started the job yet.
        while not self._done.is_set():
            context.cancelJobsWithTag(self._tag)
            self._done.wait(_CANCEL_AGAIN_S)

    def _running_tasks(self, context: SparkContext) -> tuple[RunningTask, ...]:
        """The tasks that have not replied, their hosts and shards."""
        try:
            return tuple(islice(running_tasks(context, self._tag, self._assignment), _TASKS_SHOWN_MAX))
        except (Py4JError, PySparkException) as error:
            return (RunningTask(f"unknown, for Spark's status store did not answer: {reason_text(error)}"),)

    def _report_progress(self, context: SparkContext) -> None:
        """Report progress from a separate thread: Spark may hang, and nothing else may wait for it then."""
        while not self._done.wait(_PROGRESS_EVERY_S):
            try:
                progress = job_progress(context, self._tag, self._assignment)
            except (Py4JError, PySparkException, ConnectionError) as error:
                _LOG.debug("Spark did not report the epoch's progress; it is asked again in a second. reason=%s", error)
                continue
            with self._reporting:
                if not self._done.is_set():
                    self._on_progress(progress)


def reason_text(error: Py4JError | PySparkException) -> str:
    """What went wrong, without the pages of stack traces around it."""
    cause: Any = getattr(error, "java_exception", None)
    text = str(cause.getMessage()) if cause is not None else str(error)
    text = _FRAMES.sub("", text.split("Driver stacktrace:")[0])
    lines = [line.strip() for line in text.splitlines()]
    kept = [line for line in lines if line and not _JAVA_FRAME.match(line)]
    return f"{_advice(text)}{' '.join(kept)}"[:_REASON_LENGTH_MAX]


def _advice(text: str) -> str:
    """What to do, where the Python of Spark's workers cannot load what a task needs; empty where it can."""
    found = _NO_MODULE.search(text)
    if found is None:
        return ""
    if found[1].partition(".")[0] == PACKAGE.name:
        return (
            "the Python of an executor has loaded another dagster-ckpt than the driver's: remove what loads it when "
            "Python starts; the driver brings its own. "
        )
    return (
        f"the Python of an executor has no {found[1]}: install it on every host, in the environment that "
        "spark.pyspark.python names. "
    )
