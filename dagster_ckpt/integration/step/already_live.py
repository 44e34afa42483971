"""A Dagster run beside a live one of the same stream: it has nothing to do, so it succeeds with the newest epoch.

Only what beats is live: the lease's counter must change while this run looks. If the writer dies meanwhile, the stream
is opened as usual. The sensor never takes such a run for the stream's: see `newest_run`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dagster as dg

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import CorruptStateError, StoreUnavailableError
from dagster_ckpt.ids import Term
from dagster_ckpt.integration.events import outdated_changes
from dagster_ckpt.integration.events.epoch_metadata import data_version
from dagster_ckpt.integration.events.table_metadata import COLUMN_SCHEMA, TableMetadata, column_schema
from dagster_ckpt.integration.recovery import live_check
from dagster_ckpt.integration.recovery.crash_loop_check import result_as_before
from dagster_ckpt.integration.recovery.dagster_runs import instance_id, may_fence_tag
from dagster_ckpt.integration.recovery.live_check import LiveFacts, LiveState
from dagster_ckpt.integration.recovery.stream_status import StreamStatus
from dagster_ckpt.integration.step.run_watch import goes_on
from dagster_ckpt.integration.step.stream_step import StreamStep
from dagster_ckpt.protocol.lease import Lease, LeaseHolder, Life, Watch, judge, next_watch
from dagster_ckpt.protocol.manifest.manifest import Manifest, Owner
from dagster_ckpt.storage.leases.heartbeat import BEATS_PER_TIMEOUT
from dagster_ckpt.storage.leases.process_identity import is_gone

_LOOKS_PER_BEAT = 5


@dataclass(frozen=True)
class LiveRun:
    """The writer of the stream, and the stream's newest manifest."""

    holder: LeaseHolder
    manifest: Manifest

    @property
    def run_id(self) -> str:
        return self.holder.dagster_run_id

    def __str__(self) -> str:
        return f"already live, epoch {self.manifest.epoch}, run {self.run_id}"


@dataclass(frozen=True)
class Beside:
    """The run that looks: its id, the owner that it would open the stream as, and the term that it may fence."""

    run_id: str
    owner: Owner
    may_fence: Term | None
    lease_timeout_ms: int

    def is_beside(self, newest: Manifest, lease: Lease) -> bool:
        """Whether the writer is another run of the same Dagster instance and asset, which this one may not fence."""
        mine, theirs = self.owner, newest.owner
        same = (theirs.instance, theirs.asset_key) == (mine.instance, mine.asset_key)
        other = lease.holder.dagster_run_id != self.run_id and newest.term != self.may_fence
        return same and other and lease.holder.instance == mine.instance


def live_run(
    look: Callable[[], StreamStatus],
    beside: Beside,
    root_run: str | None,
    goes_on: Callable[[str], bool],
    clock: Clock,
) -> LiveRun | None:
    """The live run of the stream; None where it must be opened as usual: to begin, to wait, to fence or to be refused.

    Takes up to a third of a lease's time-out, and a whole one where the writer has died. `look` reads the stream's
    status. A run that must roll the stream back gives its `root_run`: until that is done, it is not left to another.
    `goes_on` is whether Dagster has a run unfinished and wanted.
    """
    watch: Watch | None = None
    while True:
        try:
            status = look()
        except (StoreUnavailableError, CorruptStateError):
            return None  # opening tries again, or reports it in detail
        newest, lease = status.newest, status.lease
        if newest is None or lease is None or not beside.is_beside(newest, lease):
            return None
        run_id, now_ms = lease.holder.dagster_run_id, clock.monotonic_ms()
        must_roll_back = root_run is not None and not status.has_rolled_back_for(root_run)
        if must_roll_back or not goes_on(run_id):
            return None
        before, watch = watch, next_watch(watch, newest.term, lease, now_ms)
        gone = is_gone(lease.holder.process)
        if judge(watch, lease, now_ms, beside.lease_timeout_ms, process_is_gone=gone) is not Life.BEATING:
            return None
        if before is not None and before.term == watch.term and before.counter != watch.counter:
            return LiveRun(lease.holder, newest)
        clock.sleep_ms(max(1, lease.timeout_ms // BEATS_PER_TIMEOUT // _LOOKS_PER_BEAT))


def result_beside(
    instance: dg.DagsterInstance, key: dg.AssetKey, stream: str, live: LiveRun, table: TableMetadata
) -> dg.MaterializeResult[Any]:
    """The stream's newest epoch, without what happened since the last event: the live run reports that.

    Dagster's page shows the newest event's row count, columns and place, so this one has them too.
    """
    rows = live.manifest.table_rows
    record = instance.get_run_record_by_id(live.run_id)
    facts = LiveFacts(
        LiveState.LIVE,
        live.manifest.term,
        live.manifest.epoch,
        live.run_id,
        host=live.holder.process.host,
        since_s=None if record is None else record.start_time,
    )
    return dg.MaterializeResult(
        asset_key=key,
        metadata={
            "already_live": dg.MetadataValue.text(str(live)),
            "live_run": dg.MetadataValue.dagster_run(live.run_id),
            "epoch": dg.MetadataValue.int(live.manifest.epoch),
            **({} if rows is None else {"dagster/row_count": dg.MetadataValue.int(rows)}),
            **table.place.metadata(),
            COLUMN_SCHEMA: column_schema(live.manifest.pipeline, table.descriptions),
        },
        data_version=dg.DataVersion(data_version(stream, live.manifest)),
        check_results=[
            result_as_before(instance, key, live.manifest.epoch),
            live_check.result(key, facts),
            outdated_changes.result(key, outdated_changes.latest(instance, key)),
        ],
    )


def live_run_beside(step: StreamStep) -> LiveRun | None:
    """The live run that this one leaves the stream to; None where this one must open it, or be refused."""
    run, choice = step.context.run, step.choice
    if choice.rebuild or (choice.take_over and step.is_first_try):
        return None
    instance = step.context.instance
    owner = Owner(instance_id(instance), step.stream_name)
    beside = Beside(run.run_id, owner, may_fence_tag(run), step.streaming.options.recovery.lease_timeout_ms)
    root_run = None if choice.from_epoch is None else run.root_run_id or run.run_id
    return live_run(
        step.read_status, beside, root_run, lambda run_id: goes_on(instance.get_run_by_id(run_id)), step.clock
    )


def leave_to(live: LiveRun, step: StreamStep) -> dg.MaterializeResult[Any]:
    """The result of a run that has nothing to do."""
    text = (
        "%s: this run has nothing to do. To replace the live one, terminate it first, or fence it (take_over in the "
        "run config). stream=%s"
    )
    step.context.log.info(text, live, step.stream_name)
    return result_beside(step.context.instance, step.key, step.stream_name, live, step.table)
