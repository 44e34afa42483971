"""A delivery's run: open it, take the destination's fence, then one transaction after another.

A delivery is a kind of stream: it has a chain of manifests with terms and a lease, so it is recovered, drained and
fenced like any stream. Its manifests hold no rows. They record how far it has come, which makes the stream keep its
change log, but the truth is in the destination: see `judgement`.

    a kill before the destination's commit      the next run reads the same rows again
    between that and the manifest               the next run finds the newer position, and records it first
    a lost reply                                the destination is opened again, and its position read
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from dagster_ckpt.clock import Clock
from dagster_ckpt.delivery.delivery_rows import ColumnsChangedError, DeliveryRows, NextRows, delivered_table
from dagster_ckpt.delivery.destination import (
    DeliveredTable,
    DeliveryMode,
    Destination,
    DestinationMismatchError,
    DestinationUnavailableError,
    SchemaChanges,
    Session,
    Transaction,
    delivery_name,
    start_over,
)
from dagster_ckpt.delivery.judgement import Move, PositionFinding, judge
from dagster_ckpt.errors import (
    CorruptStateError,
    IncompatibleStateError,
    InvalidPipelineError,
    OutsideCodeError,
    StoreUnavailableError,
)
from dagster_ckpt.ids import EMPTY, Epoch, Shard
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.epochs.upstream import FORMAT, Reader, UpstreamPosition, decode
from dagster_ckpt.protocol.manifest.manifest import DELIVERY, InputSpec, Pipeline, SourceIdentity, SourcePosition
from dagster_ckpt.protocol.transitions.edits import EpochEdit
from dagster_ckpt.runtime.declared.sources import StreamSource
from dagster_ckpt.runtime.driver.stream_job import Ending, JobHooks, JobOptions, JobResult
from dagster_ckpt.runtime.driver.terms import RETRIED, TICK_MS, RunContext, Terms, run_terms
from dagster_ckpt.runtime.lag.lag import Lag, LagGauge
from dagster_ckpt.runtime.lag.source_lags import UpstreamWatch
from dagster_ckpt.runtime.micro_batch.epoch_driver import CommittedEpoch
from dagster_ckpt.runtime.run_mode import Mode
from dagster_ckpt.runtime.upstreams.upstreams import Upstreams
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.leases.heartbeat import Pulse
from dagster_ckpt.storage.operations.collector import Collector
from dagster_ckpt.storage.retention_refs.upstream_log import OPEN_WAIT_MS, NothingFollowsError, UpstreamLog, snapshot_at
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.stores.folder import folder_store, stream_folder
from dagster_ckpt.storage.writer.opening import Opening
from dagster_ckpt.storage.writer.stream_writer import StreamWriter, open_stream

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DeliveryJob:
    """What to run. `asset` is the delivery's display name, `folder` its folder in the store; `stream` is delivered.

    `opening` makes the writer's opening from the pipeline. A transaction has at most `epochs_max` epochs; of `options`
    the time between two transactions is the checkpoint interval. `schema_changes` is what may be done to its columns.
    """

    asset: str
    stream: str
    destination: Destination
    mode: DeliveryMode
    address: StoreAddress
    folder: str
    opening: Callable[[Pipeline], Opening]
    options: JobOptions
    epochs_max: int = 100
    schema_changes: SchemaChanges = SchemaChanges.ADD


def run_delivery(job: DeliveryJob, hooks: JobHooks, clock: Clock) -> JobResult:
    """Deliver until everything is delivered, the time is up or `stop_reason` returns a reason. Blocks.

    In mode `AVAILABLE_NOW` everything is what the stream had committed when the run began. Raises
    `IncompatibleStateError` if it cannot continue from the destination's position, `DestinationUnavailableError` if
    more transactions in a row fail than are tolerated, and what `run_stream` raises.
    """
    root = job.address.open()
    store = folder_store(root, job.folder)
    upstream = ManifestChain(stream_folder(root, job.stream), clock)
    log = UpstreamLog(upstream, job.stream)
    newest = log.await_open(OPEN_WAIT_MS if job.options.mode is Mode.CONTINUOUS else 0)
    table = delivered_table(job.stream, newest.pipeline, job.mode, job.schema_changes)
    job.destination.check(table)
    run = RunContext.begin(job.asset, job.options, hooks, clock)
    opening = job.opening(_pipeline(job, table))
    rows = DeliveryRows(root, upstream, log, table, job.epochs_max)
    own = ManifestChain(store, clock)
    collector = Collector(own, root, job.options.grace_ms, job.options.max_lag)
    open_writer = partial(open_stream, store, opening, clock, run.pulse)
    return run_terms(run, open_writer, collector, partial(_DeliveryWork, job, rows, own))


class _DeliveryWork:
    """What a delivery does in its terms: one session of the destination after another."""

    def __init__(self, job: DeliveryJob, rows: DeliveryRows, own: ManifestChain, terms: Terms) -> None:
        self._job = job
        self._rows = rows
        self._terms = terms
        self._hooks, self._clock, self._pulse = terms.run.hooks, terms.run.clock, terms.run.pulse
        self.failures = 0
        self._watch = UpstreamWatch(rows.root, job.stream, self._clock)
        # What the run delivers at most; None: all that comes.
        self._until = rows.log.newest().epoch if job.options.mode is Mode.AVAILABLE_NOW else None
        self._there: str | None = None  # the destination's position
        source = StreamSource(_identity(job.stream), 0, (0,), reads_files=False)
        self._upstreams = Upstreams(job.asset, [source], rows.root, own)
        self._gauge = LagGauge(job.asset, self._lag, self._hooks.on_lag, job.options.lag_interval_ms)
        self._gauge.begin()

    def close(self) -> None:
        self._gauge.end()

    def _lag(self) -> Lag:
        return Lag(self._clock.now_ms(), self._watch.lag(self._position().current))

    def attempt(self) -> JobResult | None:
        """Deliver in one session; None if it failed and may be retried."""
        try:
            with _fit_errors(), self._job.destination.open(self._name, self._rows.table) as session:
                result = self._deliver(session)
            self._gauge.measure()
            return result
        except ColumnsChangedError:
            _log.info("the stream's columns have changed. asset=%s, stream=%s", self._job.asset, self._job.stream)
            return None
        except StoreUnavailableError as error:
            if not self.tolerates("a transaction", error):
                raise
            return None

    def tolerates(self, what: str, error: Exception) -> bool:
        self.failures += 1
        tolerated = self._job.options.tolerable_failures
        if self.failures <= tolerated:
            _log.warning(RETRIED, what, self._job.asset, self.failures, tolerated, error)
        return self.failures <= tolerated

    def reopen(self) -> None:
        """Begin the next term, with the columns that the stream has now."""
        job = self._job
        table = delivered_table(job.stream, self._rows.log.newest().pipeline, job.mode, job.schema_changes)
        job.destination.check(table)
        self._rows = replace(self._rows, table=table)
        self._terms.writer = self._terms.writer.reopen(_pipeline(job, table))

    @property
    def _writer(self) -> StreamWriter:
        return self._terms.writer

    @property
    def _name(self) -> str:
        return delivery_name(self._job.asset, self._writer.manifest.uuid)

    def _deliver(self, session: Session) -> JobResult:
        at = self._resume(session)
        began_ms = self._clock.monotonic_ms()
        while True:
            end = self._terms.reason_to_end()
            if end is not None:
                return end
            step = self._next(at)
            if step is not None:
                at = self._apply(session, at, step)
                self.failures = 0
            elif self._job.options.mode is Mode.AVAILABLE_NOW:
                return JobResult(Ending.INPUT_DONE, self._writer.manifest)
            began_ms = self._wait(began_ms)

    def _next(self, at: UpstreamPosition) -> NextRows | None:
        try:
            return self._rows.following(at, Reader.of(self._writer.manifest), self._until)
        except NothingFollowsError as error:
            # `_resume` of the next session judges why.
            raise self._not_followed(error) from None

    def _not_followed(self, reason: Exception) -> DestinationUnavailableError:
        return DestinationUnavailableError(
            f"the stream cannot be followed from the delivered position any more: the delivery opens again. "
            f"asset={self._job.asset}, stream={self._job.stream}, reason={reason}"
        )

    def _resume(self, session: Session) -> UpstreamPosition:
        """Where to go on from the destination's position, recorded in this delivery's manifest and kept for it."""
        newest, known, self._there = self._rows.log.newest(), self._delivered_epoch(), session.position
        there = None if session.position is None else self._decode(session.position)
        of_this_stream = there is not None and there.uuid == newest.uuid
        if there is not None and of_this_stream and there.encode() != self._position().current:
            self._commit(there, rows=0, milliseconds=0, table_rows=None)
        if there is None or of_this_stream:
            self._upstreams.hold(self._writer.manifest)
        reason = None if there is None else self._why_not(there)
        is_rekeyed = there is not None and reason is None and self._is_rekeyed(there)
        trouble, instead = (None, None) if reason is None else (reason.trouble, reason.instead)
        judgement = judge(self._job.mode, there, known, trouble, is_rekeyed=is_rekeyed)
        if judgement.found is not None:
            self._writer.check_term()  # a successor has moved the position, and released what follows this one
            text = "%s. asset=%s, position=%s%s"
            _log.warning(text, judgement.found, self._job.asset, session.position, _position_text("there", instead))
        match judgement.move:
            case Move.STOP:
                assert judgement.found is not None, "a delivery stops for a reason"
                raise self._stop_error(judgement.found, there, instead)
            case Move.REPLACE:
                assert there is not None, "only what was delivered is replaced"
                with self._upstreams.snapshot(self._writer.manifest) as shown:
                    return self._apply(session, there, self._rows.whole(shown))
            case _:
                return UpstreamPosition(newest.uuid) if there is None else there

    def _apply(self, session: Session, at: UpstreamPosition, step: NextRows) -> UpstreamPosition:
        """One transaction at that position, then the manifest that records it."""
        began_ms, counted = self._clock.monotonic_ms(), _Counted(step.rows, self._pulse)
        self._writer.check_term()  # a delivery that was overtaken must not write, though the destination would refuse
        try:
            session.apply(Transaction(self._there, step.until.encode(), counted, step.replaces))
        except CorruptStateError as error:
            self._writer.check_term()  # a successor has released the snapshot that this delivery still read
            if self._rows.is_kept(step, at, Reader.of(self._writer.manifest)):
                raise
            raise self._not_followed(error) from error  # it took so long that the stream has gone on without it
        self._there = step.until.encode()
        milliseconds = self._clock.monotonic_ms() - began_ms
        commit_ms = self._commit(step.until, counted.count, milliseconds, step.table_rows)
        self._pulse.sign()
        epoch = CommittedEpoch(self._writer.manifest, commit_ms, milliseconds + commit_ms, {"epochs": step.epochs})
        self._hooks.on_commit(epoch)
        self._upstreams.on_commit(self._writer.manifest)
        return step.until

    def _commit(self, position: UpstreamPosition, rows: int, milliseconds: int, table_rows: int | None) -> int:
        """Record the destination's position; returns how long that took, in milliseconds."""
        began_ms, before = self._clock.monotonic_ms(), self._position()
        moved = replace(before, previous=before.current, current=position.encode())
        more_rows = (table_rows or 0) - (self._writer.manifest.table_rows or 0)
        ack = ShardAck(Shard(0), rows_in=rows, rows_out=rows, milliseconds=milliseconds, table_rows=more_rows)
        interval_ms = None if self._job.options.mode is Mode.AVAILABLE_NOW else self._job.options.checkpoint_interval_ms
        batch_id = (self._writer.manifest.batch_id or 0) + 1
        self._writer.commit(EpochEdit((ack,), (moved,), batch_id, milliseconds, (None,), interval_ms=interval_ms))
        return self._clock.monotonic_ms() - began_ms

    def _is_rekeyed(self, there: UpstreamPosition) -> bool:
        """Whether the rows in the destination may have another key than the stream's have now.

        By what the stream had at the destination's position, which a backup takes back too. Between a rename and the
        next epoch a delivery that opens twice replaces the table twice.
        """
        try:
            key = self._rows.key_at(there, Reader.of(self._writer.manifest))
        except NothingFollowsError as error:
            raise self._not_followed(error) from None  # the snapshot was released after the check
        return key is not None and key != self._rows.table.key

    def _position(self) -> SourcePosition:
        found = self._writer.manifest.sources
        return found[0] if found else SourcePosition(_identity(self._job.stream))

    def _delivered_epoch(self) -> Epoch:
        """The newest epoch that this delivery has recorded as delivered."""
        current = self._position().current
        return EMPTY if current is None else decode(current).epoch

    def _decode(self, text: str) -> UpstreamPosition:
        try:
            return decode(text)
        except ValueError as error:
            raise IncompatibleStateError(
                f"the destination's position was not written by a delivery: restore it. "
                f"asset={self._job.asset}, position={text!r}"
            ) from error

    def _why_not(self, there: UpstreamPosition) -> NothingFollowsError | None:
        """Why the stream cannot be followed from this position; None if it can."""
        try:
            self._rows.log.check(there)
            snapshot_at(self._rows.chain, there, Reader.of(self._writer.manifest))
        except NothingFollowsError as error:
            return error
        return None

    def _stop_error(
        self, found: PositionFinding, there: UpstreamPosition | None, instead: UpstreamPosition | None
    ) -> IncompatibleStateError:
        return IncompatibleStateError(
            f"{found}: nothing was written. Restore the destination, or {start_over(self._name, self._rows.table)}. "
            f"asset={self._job.asset}, stream={self._job.stream}, destination={self._job.destination.address}, "
            f"position={None if there is None else there.encode()}{_position_text('there', instead)}"
        )

    def _wait(self, began_ms: int) -> int:
        """Wait for the next transaction's time; returns when that began."""
        options = self._job.options
        interval_ms = 0 if options.mode is Mode.AVAILABLE_NOW else options.checkpoint_interval_ms
        while self._clock.monotonic_ms() - began_ms < interval_ms and self._terms.reason_to_end() is None:
            self._terms.look_for_takeover()
            self._pulse.sign()
            self._hooks.on_idle()
            self._clock.sleep_ms(min(TICK_MS, max(1, began_ms + interval_ms - self._clock.monotonic_ms())))
        return self._clock.monotonic_ms()


@contextmanager
def _fit_errors() -> Iterator[None]:
    """Within it what does not fit in the destination is an error that is mended there, and not in the code."""
    try:
        yield
    except OutsideCodeError:
        raise
    except (IncompatibleStateError, InvalidPipelineError) as error:
        raise DestinationMismatchError(str(error)).with_traceback(error.__traceback__) from error.__cause__


class _Counted(Iterator[pa.RecordBatch]):
    """Counts the rows that pass, and gives a sign of life with each batch."""

    def __init__(self, rows: Iterator[pa.RecordBatch], pulse: Pulse) -> None:
        self._rows = rows
        self._pulse = pulse
        self.count = 0

    def __next__(self) -> pa.RecordBatch:
        batch = next(self._rows)
        self._pulse.sign()
        self.count += batch.num_rows
        return batch


def _position_text(name: str, position: UpstreamPosition | None) -> str:
    """A position for an error; nothing where there is none."""
    return "" if position is None else f", {name}={position.encode()}"


def _identity(stream: str) -> SourceIdentity:
    return SourceIdentity(FORMAT, stream)


def _pipeline(job: DeliveryJob, table: DeliveredTable) -> Pipeline:
    parameters: dict[str, object] = {
        "kind": job.destination.kind,
        "address": job.destination.address,
        "mode": str(job.mode),
        "key": list(table.key),
    }
    source = InputSpec((_identity(job.stream),), table.columns)
    return Pipeline(DELIVERY, parameters, (source,), keys=(), tables=(), output=table.columns, appends=True)
