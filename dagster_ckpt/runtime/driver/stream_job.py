"""A job: what the Dagster integration, or a test, gives the runtime and gets back."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from dagster_ckpt.protocol.coordinator.checkpoint_coordinator import CoordinatorOptions
from dagster_ckpt.protocol.epochs.topic_offsets import LostOffsets
from dagster_ckpt.protocol.manifest.manifest import Manifest, Pipeline
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.lag.lag import Lag
from dagster_ckpt.runtime.micro_batch.epoch_driver import CommittedEpoch
from dagster_ckpt.runtime.run_mode import Mode
from dagster_ckpt.runtime.task.worker_engine import EngineOptions
from dagster_ckpt.storage.operations.collector import GRACE_MS, MAX_LAG
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.writer.opening import Opening


@dataclass(frozen=True)
class JobOptions:
    """How a stream is run.

    An epoch that takes longer than `timeout_ms` is given up. Work without a sign of progress for `slack_ms` longer than
    that counts as hung, and its lease stops beating: around an epoch's job, calls to a store, a database or Spark have
    no timeout, and none of them may take that long.

    `tolerable_failures` is how many times in a row an epoch may fail and be retried, each time after `pause_ms`.
    `drain_ms` is how long the epoch in progress may continue when the run is interrupted. `tasks_max` bounds an epoch's
    tasks (None: the task slots of all executors that the application is allowed). `grace_ms` is how long an epoch can
    still be read after it was retired; `max_lag` how many epochs a downstream may be behind before the change log is no
    longer kept for it. `lag_interval_ms` is how often the stream's lag is measured. `engine` is for each Python worker.

    `flushes`: at the end of an `AVAILABLE_NOW` run, steps with `on_end="flush"` emit what waits; else they keep it.
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
    lag_interval_ms: int = 30_000
    tasks_max: int | None = None
    flushes: bool = True
    engine: EngineOptions = field(default_factory=EngineOptions)

    @property
    def coordination(self) -> CoordinatorOptions:
        """The coordinator's part of them. An `AVAILABLE_NOW` run has no interval."""
        interval_ms = None if self.mode is Mode.AVAILABLE_NOW else self.checkpoint_interval_ms
        return CoordinatorOptions(interval_ms, self.timeout_ms, self.tolerable_failures)

    def pause_ms(self, failures: int, chance: float) -> int:
        """How long to wait after `failures` in a row: `backoff_ms`, then twice that and so on, up to a bound.

        Half of it is scaled by `chance`, in [0, 1], so that streams which failed together do not retry together.
        """
        longest_ms: int = min(self.backoff_ms * 2 ** min(failures - 1, 32), self.backoff_ms_max)
        return round(longest_ms * (0.5 + chance / 2))


@dataclass(frozen=True)
class StreamJob:
    """What is run: the user's stream and where it lives.

    `asset` is its display name, `folder` its folder in the store. `opening` makes the writer's opening from the
    pipeline, which is known only once the stream is checked. `moved` maps folders that sources were read from to where
    they are now, `renamed` the old names of columns to the new ones.
    """

    asset: str
    stream: Stream
    address: StoreAddress
    folder: str
    opening: Callable[[Pipeline], Opening]
    options: JobOptions
    moved: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)


def _ignore(_: object) -> None: ...


@dataclass(frozen=True)
class JobHooks:
    """What a run calls: `on_commit` after every epoch, in a Spark thread.

    `on_lag` gets each measurement of the stream's lag, None where it is not known, in another thread, and the last one
    before a clean end. `on_skipped` gets the records of Kafka that an epoch goes on without, before each try to commit
    it. `on_open` gets the newest manifest once the stream is open: the one that began the term; `on_changed_functions`
    then the names of functions whose code is another one than that of the epoch before, if any. The others are called
    about every 200 ms in the thread that runs the job. `stop_reason` returns why to end cleanly after the epoch in
    progress, None to continue.
    """

    on_commit: Callable[[CommittedEpoch], None] = _ignore
    stop_reason: Callable[[], str | None] = lambda: None
    on_idle: Callable[[], None] = lambda: None
    on_open: Callable[[Manifest], None] = _ignore
    on_lag: Callable[[Lag | None], None] = _ignore
    on_skipped: Callable[[Sequence[LostOffsets]], None] = _ignore
    on_changed_functions: Callable[[Sequence[str]], None] = _ignore


class Ending(StrEnum):
    """Why a run ended cleanly."""

    INPUT_DONE = "input_done"
    RUN_FOR = "run_for"
    STOPPED = "stopped"


@dataclass(frozen=True)
class JobResult:
    """How a run ended, the newest manifest then, and, where it was stopped, why."""

    ending: Ending
    manifest: Manifest
    reason: str | None = None
