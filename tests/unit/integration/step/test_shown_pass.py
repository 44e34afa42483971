"""A run passes the check `no_crash_loop`, although the sensor has reported a failure since the run was created."""

from typing import Any

import dagster as dg
import pytest

from dagster_ckpt.ids import Epoch
from dagster_ckpt.integration.recovery.crash_loop_check import CHECK, check_spec, evaluation_passed, result_passed
from dagster_ckpt.integration.step.stream_step import StreamStep

KEY = dg.AssetKey("s")
UNUSED: Any = None


@pytest.mark.parametrize("has_epochs", [True, False])
def test_a_run_that_has_waited_and_works_now_passes_the_check(*, has_epochs: bool) -> None:
    passed = evaluation_passed(KEY, Epoch(2))

    @dg.asset(key=KEY, check_specs=[check_spec(KEY)])
    def stream(context: dg.AssetExecutionContext) -> dg.MaterializeResult:  # type: ignore[type-arg]
        step = StreamStep(context, UNUSED, UNUSED, UNUSED, UNUSED, UNUSED, UNUSED)
        context.instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(asset_key=KEY, check_name=CHECK, passed=False)
        )
        if has_epochs:
            step.log_event(passed)  # with the first epoch
            assert shown(context.instance).passed
        step.show_pass(passed)  # before the result
        return dg.MaterializeResult(check_results=[result_passed(KEY, Epoch(2))])

    with dg.DagsterInstance.ephemeral() as instance:
        for _ in range(2):
            assert dg.materialize([stream], instance=instance).success
            assert shown(instance).passed


def shown(instance: dg.DagsterInstance) -> dg.AssetCheckEvaluation:
    """What the page of the asset shows of the check."""
    record = instance.get_latest_asset_check_evaluation_record(dg.AssetCheckKey(KEY, CHECK))
    assert record is not None
    assert isinstance(record.evaluation, dg.AssetCheckEvaluation)
    return record.evaluation
