from dataclasses import replace

import dagster as dg
import pytest

from dagster_ckpt.integration.events.epoch_metadata import epoch_metadata
from dagster_ckpt.integration.events.event_totals import NO_WORK, Totals
from dagster_ckpt.protocol.manifest.manifest import Statistics
from tests.chaos.stored_events import Counts, StoredEvent, Sum, added_up, events_of, newest_event
from tests.worlds.manifests import a_manifest

FIRST = StoredEvent(3, Counts(10, 5, 0, 3), Counts(10, 5, 0, 3))
SECOND = StoredEvent(7, Counts(20, 5, 1, 2), Counts(30, 10, 1, 5))
ROLLED_BACK = StoredEvent(9, Counts(-15, -4, -1, -1), Counts(15, 6, 0, 4))


def test_events_that_add_up_are_the_totals_of_the_newest_also_after_a_rollback() -> None:
    assert added_up([FIRST, SECOND, ROLLED_BACK]) == Sum(3, ROLLED_BACK.totals, 9)
    assert added_up([]) == Sum(0, Counts(), 0)


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([FIRST, SECOND, SECOND], id="one twice"),
        pytest.param([SECOND], id="one lost"),
        pytest.param([FIRST, replace(SECOND, since=SECOND.totals)], id="totals as a difference"),
        pytest.param([FIRST, SECOND, replace(FIRST, since=Counts(10, 5, 0, 3))], id="one of a fenced writer"),
    ],
)
def test_an_event_too_many_or_too_few_is_named(events: list[StoredEvent]) -> None:
    assert f"event {len(events) - 1} of {len(events)}" in str(added_up(events).wrong)


def test_only_the_first_wrong_event_is_named() -> None:
    assert "event 1 of 3" in str(added_up([FIRST, FIRST, SECOND]).wrong)


def test_they_are_read_from_dagsters_database_as_a_stream_logs_them() -> None:
    instance, key = dg.DagsterInstance.ephemeral(), dg.AssetKey("delays")
    assert newest_event(instance, "delays") is None
    before, manifest = Totals(), a_manifest()
    for number in range(1, 4):
        counts = Statistics(total_rows_in=10 * number, total_rows_out=number, total_late_rows=1, total_epochs=number)
        manifest = a_manifest(statistics=counts)
        event = dg.AssetMaterialization(key, metadata=epoch_metadata(manifest, NO_WORK, before))
        instance.report_runless_asset_event(event)
        before = Totals.of(manifest)
    events = events_of(instance, "delays")
    assert added_up(events) == Sum(3, Counts.of(manifest), manifest.epoch)
    assert [event.since.late_rows for event in events] == [1, 0, 0]
    assert newest_event(instance, "delays") == events[-1]
