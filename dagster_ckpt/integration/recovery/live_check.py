"""The check that every streaming asset has beside `no_crash_loop`: `is_live`, whether what should run does run.

A run passes it when it has opened its stream, and again, as ended, with its result. The recovery sensor reports every
other change, as an event without a run: a writer that died, a canceled run, a live stream for which Dagster shows
another result. It writes only where Dagster shows something else, so a live stream costs no row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import dagster as dg

from dagster_ckpt.ids import EMPTY, Epoch, Term
from dagster_ckpt.integration.recovery.crash_loop_check import CHECK as CRASH_LOOP
from dagster_ckpt.integration.recovery.decision import Verdict
from dagster_ckpt.integration.recovery.sensor_check import to_evaluation
from dagster_ckpt.integration.recovery.stream_status import StreamStatus
from dagster_ckpt.integration.recovery.stream_view import LeaseView, RunState, RunView, StreamView
from dagster_ckpt.protocol.lease import LeaseHolder, Life
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.runtime.run_mode import Mode

CHECK = "is_live"

_STATE, _TERM, _RUN, _EPOCH, _HOST, _SINCE = "state", "term", "dagster_run", "last_epoch", "host", "since"
_REASON_LENGTH_MAX = 500
_OVER = {RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELED}


class LiveState(StrEnum):
    """Whether a stream runs, and whether it should."""

    LIVE = "live"  # its writer's lease beats
    ENDED = "ended"  # nothing to do until the next run is started
    CANCELED = "canceled"  # by a person, who also starts it again
    DEAD = "dead"  # it should run, and does not


def check_spec(key: dg.AssetKey) -> dg.AssetCheckSpec:
    """The check as an asset declares it."""
    return dg.AssetCheckSpec(
        CHECK,
        asset=key,
        description="Passes while the stream's writer renews its lease, however quiet the stream is, and after a run "
        "that ended as it should. Fails when the stream should run and does not; warns when its run was canceled.",
    )


def live_state(view: StreamView, verdict: Verdict) -> LiveState | None:
    """What a look at the stream shows; None where nothing is known yet, or a run is on its way."""
    run, lease = view.run, view.lease
    if lease is None or run is None:
        return None
    # The lease of a run that Dagster has ended proves nothing: it may be a moment old.
    if lease.lives and not (run.opened and run.state in _OVER):
        return LiveState.LIVE
    launch = verdict.launch
    if launch is not None and not launch.attempt and not launch.unavailable:
        return None  # the next run, after a clean end
    return _over(view, run, lease) if run.state in _OVER else _on_its_way(run, lease, verdict)


def _over(view: StreamView, run: RunView, lease: LeaseView) -> LiveState | None:
    """The state of a stream whose newest Dagster run has ended."""
    if run.state is RunState.CANCELED:
        return LiveState.CANCELED
    step_ended = run.passed_over or (run.opened and lease.finished)
    if run.state is RunState.FAILED and (run.unfit or not step_ended):
        return LiveState.DEAD
    return None if Mode.CONTINUOUS in {view.mode, run.mode} else LiveState.ENDED


def _on_its_way(run: RunView, lease: LeaseView, verdict: Verdict) -> LiveState | None:
    silent = run.opened and lease.life is not Life.CLOSED
    return LiveState.DEAD if silent or verdict.declare_failed or verdict.gave_up is not None else None


@dataclass(frozen=True, slots=True)
class LiveFacts:
    """What the check says. `run_id` is the Dagster run it is about, `since_s` when that run began (Unix seconds).

    `reason` is why it is dead, `what_follows` what the sensor does about it.
    """

    state: LiveState
    term: Term
    epoch: Epoch
    run_id: str
    host: str = ""
    since_s: float | None = None
    reason: str = ""
    what_follows: str = ""

    @property
    def passed(self) -> bool:
        return self.state in {LiveState.LIVE, LiveState.ENDED}

    @property
    def description(self) -> str:
        committed = f"Everything up to epoch {self.epoch} is committed." if self.epoch else "It has no epoch yet."
        match self.state:
            case LiveState.LIVE:
                newest = f"Its newest epoch was {self.epoch} at this time." if self.epoch else "It had no epoch yet."
                return f"Live: the writer on {self.host} renews its lease. {newest}"
            case LiveState.ENDED:
                return f"Not running, as it should be: the last run has ended, with epoch {self.epoch}."
            case LiveState.CANCELED:
                return f"Not running: its run was canceled. {committed} Materialize starts it again."
            case LiveState.DEAD:
                return " ".join(
                    filter(None, [f"Not running, and it should: {self.reason}.", committed, self.what_follows])
                )

    @property
    def metadata(self) -> Mapping[str, dg.MetadataValue | str | int]:
        metadata: dict[str, dg.MetadataValue | str | int] = {
            _STATE: str(self.state),
            _EPOCH: int(self.epoch),
            _TERM: int(self.term),
            _RUN: dg.MetadataValue.dagster_run(self.run_id),
        }
        if self.host:
            metadata[_HOST] = self.host
        if self.since_s is not None:
            metadata[_SINCE] = dg.MetadataValue.timestamp(self.since_s)
        return metadata


def facts_of_writer(state: LiveState, manifest: Manifest, holder: LeaseHolder, since_s: float) -> LiveFacts:
    """What a run itself reports about the term that it has opened."""
    return LiveFacts(
        state, manifest.term, manifest.epoch, holder.dagster_run_id, host=holder.process.host, since_s=since_s
    )


def facts_of_look(
    state: LiveState, status: StreamStatus, record: dg.RunRecord, run: RunView | None, verdict: Verdict
) -> LiveFacts:
    """What the sensor reports about a stream that was opened. `record` and `run` are its newest Dagster run."""
    newest, lease = status.newest, status.lease
    term, epoch = (Term(0), EMPTY) if newest is None else (newest.term, newest.epoch)
    run_id, host, since_s = record.dagster_run.run_id, "", record.start_time
    if state is LiveState.LIVE and lease is not None:
        host = lease.holder.process.host
        if run_id != lease.holder.dagster_run_id:
            run_id, since_s = lease.holder.dagster_run_id, None
    reason = verdict.reason[:_REASON_LENGTH_MAX]
    return LiveFacts(state, term, epoch, run_id, host, since_s, reason, _what_follows(run, verdict))


def _what_follows(run: RunView | None, verdict: Verdict) -> str:
    """What the sensor does about a dead stream; nothing where the reason says it."""
    if verdict.gave_up is not None:
        return f"The sensor no longer restarts it: the check {CRASH_LOOP} says why and what to do."
    return "" if run is not None and run.unfit else "The recovery sensor restarts it."


def result(key: dg.AssetKey, facts: LiveFacts) -> dg.AssetCheckResult:
    """The check in the result of a step."""
    severity = dg.AssetCheckSeverity.WARN if facts.state is LiveState.CANCELED else dg.AssetCheckSeverity.ERROR
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=CHECK,
        passed=facts.passed,
        description=facts.description,
        metadata=facts.metadata,
        severity=severity,
    )


def evaluation(key: dg.AssetKey, facts: LiveFacts) -> dg.AssetCheckEvaluation:
    """The check as an event."""
    return to_evaluation(result(key, facts))


_Mark = tuple[str, int, str]
"""State, term and Dagster run: the check is reported again when one of them changes."""

PLANNED_MS_MAX = 60_000
"""How long Dagster may show a live stream's check as in progress: the run that opened it reports it in a moment."""


@dataclass
class LiveReports:
    """The sensor's reports of the check, in the memory of one process. If it is lost, Dagster is read once a stream."""

    _settled: dict[dg.AssetKey, tuple[_Mark, frozenset[str]]] = field(default_factory=dict, init=False)
    _planned_ms: dict[dg.AssetKey, int] = field(default_factory=dict, init=False)

    def report(
        self, instance: dg.DagsterInstance, key: dg.AssetKey, facts: LiveFacts, unfinished: Sequence[str], now_ms: int
    ) -> None:
        """Report the check where Dagster shows something else.

        `unfinished` are the stream's Dagster runs that have not ended: each of them changes what Dagster shows.
        """
        mark = str(facts.state), int(facts.term), facts.run_id
        look = mark, frozenset(unfinished)
        if self._settled.get(key) == look:
            return
        self._settled.pop(key, None)
        latest = instance.get_latest_asset_check_evaluation_record(dg.AssetCheckKey(key, CHECK))
        shown = None if latest is None else latest.evaluation
        if not isinstance(shown, dg.AssetCheckEvaluation) and latest is not None and latest.run_id in unfinished:
            since_ms = self._planned_ms.setdefault(key, now_ms)
            if facts.passed and now_ms - since_ms < PLANNED_MS_MAX:
                return
        if not isinstance(shown, dg.AssetCheckEvaluation) or _parse_mark(shown) != mark:
            instance.report_runless_asset_event(evaluation(key, facts))
        self._planned_ms.pop(key, None)
        self._settled[key] = look


def _parse_mark(shown: dg.AssetCheckEvaluation) -> _Mark | None:
    state, term, run = (shown.metadata.get(label) for label in (_STATE, _TERM, _RUN))
    return None if state is None or term is None or run is None else (str(state.value), term.value, str(run.value))  # type: ignore[return-value]
