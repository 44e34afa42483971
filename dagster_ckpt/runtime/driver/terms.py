"""A run and its terms: one writer after another, until the run ends cleanly or fails for good.

Streams and deliveries share it. What they do in a term is their `Work`.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol, TypeVar

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import CheckpointError, StoreUnavailableError
from dagster_ckpt.ids import Term
from dagster_ckpt.protocol.lease import interruption
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.protocol.object_names import COLLECTOR
from dagster_ckpt.runtime.driver.stream_job import Ending, JobHooks, JobOptions, JobResult
from dagster_ckpt.storage.leases.heartbeat import Pulse
from dagster_ckpt.storage.operations.collector import Collected, Collector
from dagster_ckpt.storage.stores.object_store import ObjectMissingError
from dagster_ckpt.storage.writer.drain_requests import DrainWatch
from dagster_ckpt.storage.writer.stream_writer import StreamWriter, TakeoverWatch

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

TICK_MS = 200
"""The longest sleep between two calls of `on_idle`."""
_OPENING_MS_MAX = 60_000
"""How long a stream's opening is retried. A run that has not opened its stream three minutes after its start counts as
dead, and a store that cannot be written to takes no heartbeat to prove the contrary."""
RETRIED = "%s failed and is tried again. asset=%s, failure=%s of %s tolerated, reason=%s"

_PASSES_PER_GRACE = 4
_PAUSE_MS_MIN = 10_000
_PAUSE_MS_MAX = 900_000
_END_S_MAX = 5.0
_CUT_OFF = (
    "streams that read this one are more than max_lag epochs behind: its change log is no longer kept for them, and "
    "they must be backfilled."
)
_GONE = (
    "streams that have read this one are not in the store, and its change log is kept for them: bring their folders "
    "back, or remove them with unsubscribe."
)


@dataclass(frozen=True)
class RunContext:
    """What all parts of a run share. `asset` is its display name; it ends by itself at `end_ms` of the clock, if set.

    `pulse` gets the signs of life of the run's work.
    """

    asset: str
    options: JobOptions
    hooks: JobHooks
    clock: Clock
    pulse: Pulse
    end_ms: int | None

    @classmethod
    def begin(cls, asset: str, options: JobOptions, hooks: JobHooks, clock: Clock) -> "RunContext":
        """A run that begins now."""
        end_ms = None if options.run_for_ms is None else clock.monotonic_ms() + options.run_for_ms
        return cls(asset, options, hooks, clock, Pulse(clock, options.timeout_ms + options.slack_ms), end_ms)

    def pause(self, failures: int, reason_to_end: Callable[[], T | None]) -> T | None:
        """Wait before the next try after `failures` in a row; returns a reason to end, if there is one meanwhile."""
        chance = int(self.clock.unique()[:4], 16) / 0xFFFF
        until_ms = self.clock.monotonic_ms() + self.options.pause_ms(failures, chance)
        while True:
            self.pulse.sign()
            reason = reason_to_end()
            if reason is not None:
                return reason
            left_ms = until_ms - self.clock.monotonic_ms()
            if left_ms <= 0:
                return None
            self.hooks.on_idle()
            self.clock.sleep_ms(min(left_ms, TICK_MS))

    def retry_opening(self, act: Callable[[], T]) -> T:
        """Do a step of the opening. A store that does not answer counts as one failure, as with an epoch."""
        tolerated, late_ms = self.options.tolerable_failures, self.clock.monotonic_ms() + _OPENING_MS_MAX
        for failures in count(1):
            try:
                return act()
            except StoreUnavailableError as error:
                if failures > tolerated or self.clock.monotonic_ms() >= late_ms:
                    raise
                _LOG.warning(RETRIED, "the stream's opening", self.asset, failures, tolerated, error)
                if self.pause(failures, self.hooks.stop_reason) is not None:
                    raise
        raise AssertionError("count() does not end")


@dataclass
class Terms:
    """The terms of a run. `writer` is that of the current one: at first the run's first."""

    run: RunContext
    writer: StreamWriter
    _drain: DrainWatch = field(init=False)
    _takeovers: TakeoverWatch = field(init=False)

    def __post_init__(self) -> None:
        writer, clock, interval_ms = self.writer, self.run.clock, self.run.options.checkpoint_interval_ms
        self._drain = DrainWatch(writer.store, clock, writer.heartbeat.lease.holder, writer.term, interval_ms)
        self._takeovers = TakeoverWatch(clock, interval_ms)

    @property
    def manifest(self) -> Manifest:
        """The newest manifest of the stream."""
        return self.writer.manifest

    def look_for_takeover(self) -> None:
        """Raise `FencedError` if another writer took over. Do not call it during a commit."""
        self._takeovers.look(self.writer)

    def reason_to_end(self) -> JobResult | None:
        """How the run ends now, where its time is up, Dagster wants it to stop, or it was asked to drain; else None."""
        run = self.run
        reason = run.hooks.stop_reason() or self._drain.reason(self.manifest.epoch)
        if reason is not None:
            return JobResult(Ending.STOPPED, self.manifest, reason)
        if run.end_ms is not None and run.clock.monotonic_ms() >= run.end_ms:
            return JobResult(Ending.RUN_FOR, self.manifest)
        return None


class Work(Protocol):
    """What a run does in each of its terms."""

    @property
    def failures(self) -> int:
        """How many tries in a row have failed: the more, the longer the pause before the next."""
        ...

    def attempt(self) -> JobResult | None:
        """Work until the run ends; None where the try failed and may be repeated, in a new term."""
        ...

    def reopen(self) -> None:
        """Begin a new term: tasks and the last commit of the old one may still take effect."""
        ...

    def tolerates(self, what: str, error: Exception) -> bool:
        """Count one more failure in a row; returns whether it may be tried again."""
        ...

    def close(self) -> None:
        """Release what the work holds, however it ended."""
        ...


def run_terms(
    run: RunContext, open_writer: Callable[[], StreamWriter], collector: Collector, begin: Callable[[Terms], Work]
) -> JobResult:
    """Open a writer and work, a term after another, until the run ends. `begin` makes the work once the stream is open.

    After a clean end, and after an interrupt, the lease is closed; after an error it is left to lapse, so that the
    sensor sees a stream to recover.
    """
    with ExitStack() as releases:
        collecting = CollectorThread(collector, run.clock, lambda: terms.writer.term)
        terms = Terms(run, open_writer())  # no line between this and the try: an interrupt would leave it beating
        try:
            run.hooks.on_open(terms.manifest)
            work = begin(terms)
            releases.callback(work.close)
            collecting.begin()
            releases.callback(collecting.end)
            result = work.attempt()
            while result is None:
                result = _next_term(terms, work) or work.attempt()
            # The result is the writer's to report, also where there was nothing to commit.
            terms.writer.check_term()
            terms.writer.close(result.reason or result.ending)
        except Exception:
            terms.writer.heartbeat.stop()
            raise
        except BaseException as interrupt:
            terms.writer.close(interruption(type(interrupt).__name__))
            raise
    return result


def _next_term(terms: Terms, work: Work) -> JobResult | None:
    """Wait, then begin the next term; returns the result where there is a reason to end before the store answers."""
    while True:
        result = terms.run.pause(work.failures, terms.reason_to_end)
        if result is not None:
            return result
        try:
            work.reopen()
            return None
        except StoreUnavailableError as error:
            if not work.tolerates("the stream's reopening", error):
                raise


class CollectorThread:
    """Runs a collector pass at intervals, the first at once if none was made lately. Retries a failed pass.

    It never raises into the writer's work and never stops it.
    """

    def __init__(self, collector: Collector, clock: Clock, term: Callable[[], Term]) -> None:
        """`collector` is the stream's; `term` returns its writer's current term."""
        self._collector = collector
        grace_ms = collector.grace_ms
        self._pause_ms = min(max(grace_ms // _PASSES_PER_GRACE, _PAUSE_MS_MIN), _PAUSE_MS_MAX)
        self._term = term
        self._clock = clock
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="garbage-collector", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Start no further pass. Waits up to 5 s for one in progress; one that goes on, or dies, is harmless."""
        self._ended.set()
        self._thread.join(_END_S_MAX)

    def _run(self) -> None:
        pause_ms = self._until_due_ms()
        while not self._ended.wait(pause_ms / 1000):
            self._collect()
            pause_ms = self._pause_ms

    def _collect(self) -> None:
        try:
            collected = self._collector.collect(self._term())
        except Exception as error:  # noqa: BLE001  (the next pass may succeed, and the stream needs none)
            _LOG.warning(
                "garbage was not collected; the stream goes on, and a later pass tries again. store=%s, reason=%s",
                self._collector.chain.store.url,
                error,
            )
            return
        for message, subscribers in ((_CUT_OFF, collected.cut_off), (_GONE, collected.gone)):
            if subscribers:
                _LOG.warning("%s store=%s, subscribers=%s", message, self._collector.chain.store.url, [*subscribers])
        if collected != Collected():
            _LOG.info("garbage was collected. store=%s, removed=%s", self._collector.chain.store.url, collected)

    def _until_due_ms(self) -> int:
        """How long until the next pass is due, counted from the last one by any process. Only saves requests."""
        try:
            last_ms = self._collector.chain.store.modified_ms(COLLECTOR)
        except (ObjectMissingError, CheckpointError):
            return 0
        return min(max(0, last_ms + self._pause_ms - self._clock.now_ms()), self._pause_ms)
