"""What is run and how: the words between the Dagster surface, or a test, and the runtime."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from dagster_ckpt.protocol.coordinator.checkpoint_coordinator import CoordinatorOptions
from dagster_ckpt.protocol.manifest.manifest import Manifest, Pipeline
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.epoch_driver import CommittedEpoch
from dagster_ckpt.runtime.run_mode import Mode
from dagster_ckpt.runtime.task.worker_engine import EngineOptions
from dagster_ckpt.storage.operations.collector import GRACE_MS, MAX_LAG
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.writer.opening import Opening


@dataclass(frozen=True)
class JobOptions:
    """How a stream is run.

    An epoch that takes longer than `timeout_ms` is given up. Work that shows no sign of progress for `slack_ms` longer
    than that hangs where no time-out reaches it, and its lease stops beating: what surrounds an epoch's job waits for a
    store, a database or Spark, none of which may take that long.

    `tolerable_failures` is how many times in a row an epoch may fail and be tried again, each time after `pause_ms`.
    `drain_ms` is how long the epoch in work may go on when the run is interrupted. `tasks_max` is how many tasks an
    epoch has at most, None: as many as the application's executors may come to run at once. `grace_ms` is for how long
    an epoch can still be read after it ceased to be retained; `max_lag` how many epochs a stream that reads this one
    may be behind before the change log is no longer kept for it. `engine` is how each of Spark's Python workers works.
    """

    mode: Mode = Mode.AVAILABLE_NOW
    run_for_ms: int | None = None
    checkpoint_interval_ms: int = 10_000
    timeout_ms: int = 600_000
    slack_ms: int = 120_000
    tolerable_failures: int = 3
    backoff_ms: int = 1_000
    backoff_ms_max: int = 30_000
    drain_ms: int = 30_000
    grace_ms: int = GRACE_MS
    max_lag: int = MAX_LAG
    tasks_max: int | None = None
    engine: EngineOptions = field(default_factory=EngineOptions)

    @property
    def coordination(self) -> CoordinatorOptions:
        """Their part for the coordinator. What works through what is there has no interval."""
        interval_ms = None if self.mode is Mode.AVAILABLE_NOW else self.checkpoint_interval_ms
        return CoordinatorOptions(interval_ms, self.timeout_ms, self.tolerable_failures)

    def pause_ms(self, failures: int, chance: float) -> int:
        """How long to wait after so many failures in a row: `backoff_ms`, then twice that and so on, up to a bound.

        Half of it is `chance`, in [0, 1], so that streams which failed together do not come back together.
        """
        longest_ms: int = min(self.backoff_ms * 2 ** min(failures - 1, 32), self.backoff_ms_max)
        return round(longest_ms * (0.5 + chance / 2))


@dataclass(frozen=True)
class StreamJob:
    """What is run: the user's stream and where it lives.

    `asset` is its name for people, `folder` its folder in the store. `opening` completes the writer's words with the
    pipeline, which is known only once the stream was looked at. `moved` says for folders that sources were read from
    where those are now.
    """

    asset: str
    stream: Stream
    address: StoreAddress
    folder: str
    opening: Callable[[Pipeline], Opening]
    options: JobOptions
    moved: Mapping[str, str] = field(default_factory=dict)


def _ignore(epoch: CommittedEpoch) -> None: ...


@dataclass(frozen=True)
class JobHooks:
    """What a run calls: `on_commit` after every epoch, in a thread of Spark's, and `on_open` once the stream is open.

    The others are called about every 200 ms in the thread that runs the job. `stop_reason` says why to end cleanly
    after the epoch in work, None to go on.
    """

    on_commit: Callable[[CommittedEpoch], None] = _ignore
    stop_reason: Callable[[], str | None] = lambda: None
    on_idle: Callable[[], None] = lambda: None
    on_open: Callable[[], None] = lambda: None


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
