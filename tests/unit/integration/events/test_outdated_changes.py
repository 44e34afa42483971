"""The check `applies_changes`: whether a stream has dropped outdated changes for long, also over several runs."""

from dataclasses import replace
from typing import Any

import dagster as dg
import pytest

from dagster_ckpt.ids import Epoch
from dagster_ckpt.integration.events.outdated_changes import (
    NONE_OUTDATED,
    OutdatedChanges,
    OutdatedWatch,
    check_spec,
    latest,
)
from dagster_ckpt.operators.registry import counters_of
from dagster_ckpt.operators.rows.changes_from import COUNTERS, NAME, OUTDATED
from dagster_ckpt.protocol.manifest.manifest import Manifest, Statistics
from dagster_ckpt.runtime.micro_batch.epoch_driver import CommittedEpoch
from tests.worlds.clock import StillClock
from tests.worlds.manifests import PIPELINE, a_manifest

KEY = dg.AssetKey("customers")
MINUTE_MS = 60_000
Epochs = list[tuple[int, int, int]]
"""Rows read, outdated changes, and the minutes until the next epoch."""


def committed(rows: int, outdated: int) -> CommittedEpoch:
    return CommittedEpoch(a_manifest(epoch=Epoch(1), statistics=Statistics(rows, 0)), 1, 1, {OUTDATED: outdated})


@pytest.mark.parametrize(
    ("epochs", "shown"),
    [
        ([(10, 0, 5), (10, 0, 20)], []),
        ([(10, 3, 5), (10, 1, 4), (10, 0, 9)], [True, True]),  # a connector that sends changes again
        ([(10, 3, 30), (10, 0, 1)], [True, True]),  # a quiet stream is not judged by the clock
        ([(10, 3, 5), (0, 0, 5), (10, 10, 1)], [True, False]),
        ([(10, 3, 5), (10, 1, 5), (10, 1, 60), (10, 9, 5), (10, 0, 5)], [True, False, True]),
    ],
)
def test_the_check_fails_while_each_epoch_with_rows_drops_some_for_ten_minutes(
    epochs: Epochs, shown: list[bool]
) -> None:
    clock, reports = StillClock(), list[dg.AssetCheckEvaluation]()
    watch = OutdatedWatch(KEY, NONE_OUTDATED, lambda _, event: reports.append(event), clock)
    for rows, outdated, minutes in epochs:
        watch.on_commit(committed(rows, outdated))
        clock.sleep_ms(minutes * MINUTE_MS)
    assert [event.passed for event in reports] == shown
    if not all(shown):
        failed = next(event for event in reports if not event.passed)
        assert "sequence=" in (failed.description or "")
        assert failed.metadata[OUTDATED].value == sum(outdated for _, outdated, _ in epochs[:3])


def test_a_run_goes_on_from_what_the_one_before_it_has_reported() -> None:
    clock = StillClock()
    epochs = iter([[(10, 4)], [(10, 4)], [(10, 4), (10, 0)], [(10, 0)]])

    @dg.asset(key=KEY, check_specs=[check_spec(KEY)])
    def customers(context: dg.AssetExecutionContext) -> dg.MaterializeResult:  # type: ignore[type-arg]
        def report(_: Manifest, event: dg.AssetCheckEvaluation) -> None:
            context.log_event(event)

        watch = OutdatedWatch(KEY, latest(context.instance, KEY), report, clock)
        watch.on_open(a_manifest())
        for rows, outdated in next(epochs):
            watch.on_commit(committed(rows, outdated))
        return dg.MaterializeResult(check_results=[watch.result])

    with dg.DagsterInstance.ephemeral() as instance:
        found: list[OutdatedChanges] = []
        for _ in range(4):
            assert dg.materialize([customers], instance=instance).success
            found.append(latest(instance, KEY))
            clock.sleep_ms(10 * MINUTE_MS)
    assert [(each.changes, each.is_long) for each in found] == [(4, False), (8, True), (0, False), (0, False)]


def test_changes_that_an_earlier_step_drops_are_counted_too() -> None:
    earlier: Any = replace(PIPELINE, operator=NAME)
    assert set(COUNTERS) <= set(counters_of(replace(PIPELINE, before=(earlier,))))
    assert not set(COUNTERS) & set(counters_of(PIPELINE))
