"""A selection of assets run as the asset page does: each step in a process of its own, below the run's worker."""

from pathlib import Path

import dagster as dg
import pytest

from tests.dagster.loadable_jobs import PLACE, two_streams_and_a_report
from tests.dagster.place import Place


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_streams_selected_together_take_turns_and_what_is_downstream_of_both_is_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PLACE, str(tmp_path))
    with dg.instance_for_test() as instance:
        place = Place(tmp_path, None, instance)  # type: ignore[arg-type]
        place.drop(("a", 1), ("b", 2))
        place.drop(("a", 10))
        with dg.execute_job(dg.reconstructable(two_streams_and_a_report), instance=instance) as result:
            assert result.success
            pids = {event.pid for event in result.all_events if event.step_key in {"one", "two"} and event.pid}
            turns = [
                event.step_key
                for event in result.all_events
                if event.event_type is dg.DagsterEventType.ASSET_MATERIALIZATION and event.step_key in {"one", "two"}
            ]
        assert len(pids) > 2, "steps were not in processes of their own"
        assert (tmp_path / "report").read_text() == "13 13"
        first, second = dict.fromkeys(turns)
        # The job's repository has no sensor at all.
        found = instance.get_latest_asset_check_evaluation_record(
            dg.AssetCheckKey(dg.AssetKey("one"), "has_recovery_sensor")
        )
        assert found is not None
        assert found.evaluation is not None
        assert (found.evaluation.passed, found.evaluation.severity) == (False, dg.AssetCheckSeverity.WARN)
        assert place.history(first).latest().committed_at <= _began(place, second)
        run = instance.get_run_by_id(result.run_id)
        assert run is not None
        assert run.tags["dagster_ckpt/turn"] == second


def _began(place: Place, stream: str):  # type: ignore[no-untyped-def]
    return min(info.committed_at for info in place.history(stream).epochs() if info.epoch > 0)
