"""A running job in Spark's status store: the only place that has its tasks while they run."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark import SparkContext

from dagster_ckpt.ids import Shard
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
                yield _named(task, assignment, works_shards=is_last)


def progress_of(context: SparkContext, tag: str, assignment: ShardAssignment) -> JobProgress:
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
                slowest, began_ms = _named(oldest, assignment, works_shards=is_last), oldest.launchTime().getTime()
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


def _named(task: Any, assignment: ShardAssignment, *, works_shards: bool) -> RunningTask:
    where = f"{task.host()} (task {task.taskId()}"
    if not works_shards:
        return RunningTask(f"{where} reads partition {task.partitionId()} of the input)")
    shards = assignment.shards_of(task.partitionId())
    which = ", ".join(map(str, shards)) if len(shards) <= _SHARDS_SHOWN_MAX else f"{shards[0]} to {shards[-1]}"
    return RunningTask(f"{where} works shards {which})", shards)
