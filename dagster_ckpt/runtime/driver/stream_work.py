"""What a run of a stream does in its terms: a query after another, where epochs fail."""

import logging
from contextlib import suppress
from dataclasses import dataclass, field

from dagster_ckpt.errors import (
    CorruptStateError,
    FencedError,
    IncompatibleStateError,
    InvalidPipelineError,
    StoreUnavailableError,
)
from dagster_ckpt.ids import Epoch
from dagster_ckpt.protocol.coordinator.checkpoint_coordinator import CheckpointCoordinator
from dagster_ckpt.protocol.redaction import redacted_text
from dagster_ckpt.runtime.declared.function_digests import changed_functions
from dagster_ckpt.runtime.driver.open_stream import OpenStream
from dagster_ckpt.runtime.driver.spark_errors import explain_error, jvm_is_gone, reason_text
from dagster_ckpt.runtime.driver.stream_checks import CheckedStream
from dagster_ckpt.runtime.driver.stream_job import JobResult, StreamJob
from dagster_ckpt.runtime.driver.stream_query import StreamQuery
from dagster_ckpt.runtime.driver.streaming_query import did_not_start
from dagster_ckpt.runtime.driver.terms import RETRIED, Terms
from dagster_ckpt.runtime.spark.session import is_alive
from dagster_ckpt.runtime.task.arrow_work import LeftToSparkError
from dagster_ckpt.storage.retention_refs.ancestors import check_ancestors
from dagster_ckpt.storage.stores.object_store import ObjectStore

_LOG = logging.getLogger(__name__)

_CHANGED = (
    "the code of these functions has changed: rows that were there before keep what the old code made of them. To have "
    "them made by the new code, rebuild the stream: dagster-ckpt rebuild. epoch=%s, asset=%s, functions=%s"
)
_FINAL = (AssertionError, CorruptStateError, FencedError, IncompatibleStateError, InvalidPipelineError)
"""What no retry can mend."""


@dataclass
class StreamWork:
    """The `Work` of a stream."""

    _open: OpenStream
    _slow_since: tuple[Epoch, int] | None = field(default=None, init=False)

    @classmethod
    def begin(cls, job: StreamJob, checked: CheckedStream, root: ObjectStore, terms: Terms) -> "StreamWork":
        """The work of a stream that was just opened."""
        before = terms.manifest
        names = changed_functions(before.functions, checked.functions)
        if names:
            _LOG.warning(_CHANGED, before.epoch, job.asset, ", ".join(names))
            terms.run.hooks.on_changed_functions(names)
        opened = OpenStream.of(job, checked, root, terms)
        try:
            opened.topics.on_commit(before)
            check_ancestors(root, terms.run.clock, before)
        except BaseException:
            opened.topics.end()
            raise
        return cls(opened)

    @property
    def failures(self) -> int:
        return max(1, self._coordinator.failures_in_a_row)

    def close(self) -> None:
        self._open.topics.end()

    def reopen(self) -> None:
        terms = self._open.terms
        try:
            terms.writer = terms.writer.reopen()
        except StoreUnavailableError:
            self._reset()
            raise

    def tolerates(self, what: str, error: Exception) -> bool:
        coordinator = self._coordinator
        coordinator.fail_try(str(error))
        if coordinator.may_try_again:
            failures, tolerated = coordinator.failures_in_a_row, coordinator.tolerable_failures
            _LOG.warning(RETRIED, what, self._open.job.asset, failures, tolerated, redacted_text(reason_text(error)))
        return coordinator.may_try_again

    def attempt(self) -> JobResult | None:
        opened = self._open
        manifest, upstreams, topics, session = opened.terms.manifest, opened.upstreams, opened.topics, opened.session
        self._reset()
        opened.terms.run.pulse.sign()
        try:
            upstreams.prepare(manifest)
            return StreamQuery(opened).to_end()
        except _FINAL:
            raise
        except LeftToSparkError as reason:
            opened.by_arrow.leave(reason)
            return None
        except Exception as error:  # noqa: BLE001  (what is not tried again is raised, as itself or explained)
            manifest = opened.terms.manifest
            if not is_alive(session):
                # Without a cause: an error of Spark's asks its JVM for its own text, and would raise another in its
                # place wherever it is shown.
                raise jvm_is_gone(opened.job.asset, error, session) from None
            with suppress(StoreUnavailableError):
                # Of an error in another process Spark keeps only the text.
                upstreams.diagnose(manifest, f"{error} {error.__cause__}")
            topics.diagnose(manifest, has_failed_often=False)
            if self._is_only_slow(error):
                _LOG.warning(
                    "Spark's process that reads the upstream took more than 10 s to start, since this host is busy: "
                    "it is tried again. asset=%s",
                    opened.job.asset,
                )
            elif not self.tolerates("an epoch", error):
                topics.diagnose(manifest, has_failed_often=True)
                better = explain_error(opened.job.asset, opened.checked.sources, error, session)
                topics.check_answers(better)
                raise better from error.__cause__
            return None

    @property
    def _coordinator(self) -> CheckpointCoordinator:
        return self._open.coordinator

    def _reset(self) -> None:
        terms = self._open.terms
        self._coordinator.reset(terms.manifest.shards, terms.run.clock.monotonic_ms())

    def _is_only_slow(self, error: Exception) -> bool:
        """Whether the query's Python process was not up in time, for no longer than an epoch may take."""
        if not did_not_start(error):
            return False
        terms = self._open.terms
        now_ms = terms.run.clock.monotonic_ms()
        if self._slow_since is None or self._slow_since[0] < terms.manifest.epoch:
            self._slow_since = terms.manifest.epoch, now_ms
        return now_ms - self._slow_since[1] < terms.run.options.timeout_ms
