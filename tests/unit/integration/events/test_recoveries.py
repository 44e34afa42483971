"""A recovered run names the run that it replaces, and its stream counts the recoveries of the last day."""

from datetime import UTC, datetime
from typing import Any

import dagster as dg
import pytest

from dagster_ckpt.integration.events.recoveries import Recoveries
from tests.worlds.clock import StillClock

KEY = dg.AssetKey("s")


@dg.job
def s_job() -> None: ...


def a_run(instance: dg.DagsterInstance, replaces: str | None = None, stream: str = "s", **fields: Any) -> dg.DagsterRun:
    tags = {"dagster_ckpt/stream": stream}
    if replaces is not None:
        tags |= {"dagster_ckpt/replaces": replaces, "dagster_ckpt/reason": "its lease has lapsed"}
    return instance.create_run_for_job(s_job, tags=tags, **fields)


def a_clock_that_is_right() -> StillClock:
    """Dagster's records have the time of this host."""
    clock = StillClock()
    clock.sleep_ms(round(datetime.now(UTC).timestamp() * 1000) - clock.now_ms())
    return clock


def test_a_recovered_run_links_to_the_run_that_it_replaces_and_says_why() -> None:
    instance = dg.DagsterInstance.ephemeral()
    first = a_run(instance)
    second = a_run(instance, replaces=first.run_id)
    third = a_run(instance, replaces=second.run_id)
    recoveries = Recoveries.of_stream(instance, "s", a_clock_that_is_right())
    assert recoveries.observation(KEY, first) is None
    event = recoveries.observation(KEY, third)
    assert event is not None
    assert (
        event.description == f"Recovered: this Dagster run replaces run {second.run_id[:8]}. Why: its lease has lapsed."
    )
    assert event.metadata["replaces"] == dg.MetadataValue.dagster_run(second.run_id)
    assert event.metadata["reason"].value == "its lease has lapsed"
    table = event.metadata["recoveries"]
    assert isinstance(table, dg.TableMetadataValue)
    assert [(row.data["dagster_run"], row.data["replaces"]) for row in table.records] == [
        (third.run_id[:8], second.run_id[:8]),
        (second.run_id[:8], first.run_id[:8]),
    ], "the newest first, with ids as Dagster's pages show them"
    assert str(table.records[0].data["recovered_at"]).endswith(" UTC")


def test_recoveries_are_counted_for_a_day_and_for_their_stream_alone() -> None:
    instance, clock = dg.DagsterInstance.ephemeral(), a_clock_that_is_right()
    first = a_run(instance)
    a_run(instance, replaces=first.run_id, stream="other")
    for _ in range(2):
        a_run(instance, replaces=first.run_id)
    recoveries = Recoveries.of_stream(instance, "s", clock)
    assert recoveries.metadata()["recoveries_last_day"].value == 2
    clock.sleep_ms(86_400_000 + 1_000)  # while the run lasts
    assert recoveries.metadata()["recoveries_last_day"].value == 0


def test_a_retry_has_copied_the_tags_and_is_no_recovery_of_the_sensors() -> None:
    instance = dg.DagsterInstance.ephemeral()
    first = a_run(instance)
    second = a_run(instance, replaces=first.run_id)
    again = a_run(instance, replaces=first.run_id, parent_run_id=second.run_id, root_run_id=second.run_id)
    recoveries = Recoveries.of_stream(instance, "s", a_clock_that_is_right())
    assert recoveries.observation(KEY, again) is None
    assert recoveries.metadata()["recoveries_last_day"].value == 1


def test_a_dagster_that_does_not_answer_leaves_the_figure_out(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = dg.DagsterInstance.ephemeral()

    def locked(*_: object, **__: object) -> None:
        raise OSError("database is locked")

    monkeypatch.setattr(instance, "get_run_records", locked)
    assert Recoveries.of_stream(instance, "s", StillClock()).metadata() == {}
