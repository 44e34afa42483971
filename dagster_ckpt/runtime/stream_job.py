"""What is run and how: the words between the Dagster surface, or a test, and the runtime."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from dagster_ckpt.protocol.manifest import Manifest, Pipeline
from dagster_ckpt.runtime.driver import CommittedEpoch
from dagster_ckpt.runtime.engines import EngineOptions
from dagster_ckpt.runtime.mode import Mode
from dagster_ckpt.runtime.stream import Stream
from dagster_ckpt.storage.address import StoreAddress
from dagster_ckpt.storage.opening import Opening


@dataclass(frozen=True)
class JobOptions:
    """How a stream is run.

    `tolerable_failures` is how many times in a row an epoch may fail and be tried again: after `backoff_ms`, then twice
    that and so on. `drain_ms` is how long the epoch in work may go on when the run is interrupted. `tasks_max` is how
    many tasks an epoch has at most, None: as many as Spark has cores. `engine` is how each of Spark's Python workers
    works.
    """

    mode: Mode = Mode.AVAILABLE_NOW
    run_for_ms: int | None = None
    checkpoint_interval_ms: int = 10_000
    timeout_ms: int = 600_000
    tolerable_failures: int = 3
    backoff_ms: int = 1_000
    backoff_ms_max: int = 30_000
    drain_ms: int = 30_000
    tasks_max: int | None = None
    engine: EngineOptions = field(default_factory=EngineOptions)


@dataclass(frozen=True)
class StreamJob:
    """What is run: the user's stream and where it lives.

    `asset` is its name for people, `folder` its folder in the store. `opening` completes the writer's words with the
    pipeline, which is known only once the stream was looked at.
    """

    asset: str
    stream: Stream
    address: StoreAddress
    folder: str
    opening: Callable[[Pipeline], Opening]
    options: JobOptions


def _ignore(epoch: CommittedEpoch) -> None: ...


@dataclass(frozen=True)
class JobHooks:
    """What a run calls: `on_commit` after every epoch, in a thread of Spark's.

    The others are called about every 200 ms in the thread that runs the job. `stop_reason` says why to end cleanly
    after the epoch in work, None to go on.
    """

    on_commit: Callable[[CommittedEpoch], None] = _ignore
    stop_reason: Callable[[], str | None] = lambda: None
    on_idle: Callable[[], None] = lambda: None


class Ending(StrEnum):
    """Why a run ended cleanly."""

    INPUT_DONE = "input_done"
    RUN_FOR = "run_for"
    STOPPED = "stopped"


@dataclass(frozen=True)
class JobResult:
    """How a run ended, the newest manifest then, and, where it was told to stop, why."""

    ending: Ending
    manifest: Manifest
    reason: str | None = None
