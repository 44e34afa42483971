"""A Dagster instance in memory: as much of it as the recovery sensor asks for, and nothing that costs a database.

`tests/dagster/test_simulated_instance.py` compares it with Dagster's own.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import dagster as dg

INSTANCE = "instance-1"
_EPOCH = datetime.fromtimestamp(0, UTC)
_FINISHED = {dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED}


@dataclass
class SimulatedInstance:
    """Runs by id, the oldest first, each of one step. `now_ms` is set by the world before each change."""

    records: dict[str, dg.RunRecord] = field(default_factory=dict)
    last_runs: dict[dg.AssetKey, str] = field(default_factory=dict)
    errors: dict[str, tuple[str, Any]] = field(default_factory=dict)
    evaluations: dict[dg.AssetCheckKey, dg.AssetCheckEvaluation] = field(default_factory=dict)
    now_ms: int = 0
    event_log_storage: Any = field(default_factory=lambda: SimpleNamespace(supports_global_concurrency_limits=False))
    run_storage: Any = field(default_factory=lambda: SimpleNamespace(get_run_storage_id=lambda: INSTANCE))

    # ---- what the glue asks for

    def get_run_records(self, filters: dg.RunsFilter, limit: int) -> Sequence[dg.RunRecord]:
        found = [each for each in self.records.values() if each.dagster_run.status in filters.statuses]
        return found[::-1][:limit]

    def get_run_record_by_id(self, run_id: str) -> dg.RunRecord | None:
        return self.records.get(run_id)

    def get_run_by_id(self, run_id: str) -> dg.DagsterRun | None:
        record = self.records.get(run_id)
        return None if record is None else record.dagster_run

    def get_asset_records(self, keys: Sequence[dg.AssetKey]) -> Sequence[Any]:
        return [
            SimpleNamespace(asset_entry=SimpleNamespace(asset_key=key, last_run_id=self.last_runs[key]))
            for key in keys
            if key in self.last_runs
        ]

    def get_records_for_run(self, run_id: str, of_type: Collection[dg.DagsterEventType]) -> Any:
        """The success of its step, or the failure where it has reported one. No other event of a run is kept."""
        run = self.records[run_id].dagster_run
        if run.status is dg.DagsterRunStatus.SUCCESS and dg.DagsterEventType.STEP_SUCCESS in of_type:
            entry = SimpleNamespace(dagster_event=None, step_key=run.execution_plan_snapshot_id)
            return SimpleNamespace(records=[SimpleNamespace(event_log_entry=entry)])
        step, error = self.errors.get(run_id, (None, None))
        if step is None or dg.DagsterEventType.STEP_FAILURE not in of_type:
            return SimpleNamespace(records=[])
        event = SimpleNamespace(
            event_type=dg.DagsterEventType.STEP_FAILURE,
            step_key=step,
            event_specific_data=SimpleNamespace(error=error),
        )
        entry = SimpleNamespace(dagster_event=event, step_key=step)
        return SimpleNamespace(records=[SimpleNamespace(event_log_entry=entry)])

    def get_execution_plan_snapshot(self, snapshot_id: str) -> Any:
        """Each run has one step, that of its stream; here its snapshot's id is the step's key."""
        return SimpleNamespace(step_keys_to_execute=[snapshot_id])

    def get_latest_asset_check_evaluation_record(self, key: dg.AssetCheckKey) -> Any:
        evaluation = self.evaluations.get(key)
        return None if evaluation is None else SimpleNamespace(evaluation=evaluation)

    def report_runless_asset_event(self, event: dg.AssetCheckEvaluation) -> None:
        self.evaluations[event.asset_check_key] = event

    def report_run_failed(self, run: dg.DagsterRun, message: str | None = None) -> None:
        self.set_status(run.run_id, dg.DagsterRunStatus.FAILURE)

    def add_run_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        record = self.records[run_id]
        run = record.dagster_run
        self.records[run_id] = copy(record, dagster_run=run.with_tags({**run.tags, **tags}))

    # ---- what the world does to it

    def create(self, run: dg.DagsterRun, key: dg.AssetKey) -> None:
        """A new run. Dagster plans its materialization at once, which makes it the asset's last."""
        self.records[run.run_id] = dg.RunRecord(
            storage_id=len(self.records) + 1,
            dagster_run=run,
            create_timestamp=_EPOCH,
            update_timestamp=_EPOCH,
        )
        self.last_runs[key] = run.run_id

    def set_status(self, run_id: str, status: dg.DagsterRunStatus) -> None:
        """Where Dagster has it from now on. What has ended stays so."""
        record = self.records[run_id]
        if record.dagster_run.status in _FINISHED:
            return
        end_time = self.now_ms / 1_000 if status in _FINISHED else None
        self.records[run_id] = copy(record, dagster_run=record.dagster_run.with_status(status), end_time=end_time)


def copy(record: dg.RunRecord, *, dagster_run: dg.DagsterRun, end_time: float | None = None) -> dg.RunRecord:
    return dg.RunRecord(
        storage_id=record.storage_id,
        dagster_run=dagster_run,
        create_timestamp=_EPOCH,
        update_timestamp=_EPOCH,
        end_time=record.end_time if end_time is None else end_time,
    )
