"""A continuous stream in a Dagster run of its own: what is heard of it meanwhile, and every way it ends."""

from typing import Any

import dagster as dg
from pyspark.sql import SparkSession

from dagster_ckpt import Stream, streaming_asset
from dagster_ckpt.protocol.object_names import lease_name
from dagster_ckpt.storage.leases.heartbeat import read_lease
from dagster_ckpt.storage.stores.address import open_store
from dagster_ckpt.storage.stores.folder import folder_store
from tests.dagster.place import Place, add_up, failure_of, until


def closed_because(place: Place) -> str | None:
    """Why the newest term's lease was closed; None where it was left to lapse."""
    folder = folder_store(open_store(place.url), "counts")
    term = place.history().manifest().term
    lease = read_lease(folder, term)
    assert lease is not None, lease_name(term)
    return lease.closed


def status_of(place: Place, result: Any) -> dg.DagsterRunStatus:
    run = place.instance.get_run_by_id(result.run_id)
    assert run is not None
    return run.status


def is_live(place: Place) -> dg.AssetCheckEvaluation:
    """What the check of that name shows."""
    key = dg.AssetCheckKey(dg.AssetKey("counts"), "is_live")
    record = place.instance.get_latest_asset_check_evaluation_record(key)
    assert record is not None
    assert isinstance(record.evaluation, dg.AssetCheckEvaluation)
    return record.evaluation


def test_events_are_logged_while_it_runs_and_its_end_reports_the_newest_epoch(place: Place) -> None:
    counts = place.counts(mode="continuous", code_version="7")
    place.drop(("a", 1))
    live = place.run_beside(counts)
    until("the first epoch", lambda: place.epochs() == 1)
    until("a quiet stream tells its newest epoch", lambda: len(place.events()) == 1)
    lag = {name: value.value for name, value in place.events()[0].metadata.items() if name.startswith("lag")}
    assert lag == {"lag_seconds": 0, "lag/files": 0, "lag/bytes": 0}
    place.drop(("a", 2))
    until("the second epoch", lambda: place.epochs() == 2)
    [run] = place.instance.get_runs()
    live_check = is_live(place)
    assert (live_check.passed, live_check.metadata["state"].value) == (True, "live")
    assert live_check.metadata["dagster_run"].value == run.run_id
    assert live_check.metadata["term"].value == place.history().manifest().term
    assert run.tags["dagster_ckpt/code_version"] == "7"
    assert run.tags["dagster_ckpt/stream"] == "counts"
    place.instance.add_run_tags(run.run_id, {"dagster_ckpt/drain": "a new deploy"})
    result = live.end()
    assert result.success
    assert closed_because(place) == "it was asked to end at the next epoch"
    assert is_live(place).metadata["state"].value == "ended"
    versions = [(event.tags or {})["dagster/data_version"] for event in place.events()]
    newest = place.history().latest().epoch
    assert versions[-1].startswith(f"counts@{newest}-")
    assert len(versions) in {2, 3}
    assert versions[0] != versions[-1]
    assert add_up(place.events(), place.history().manifest())


def test_run_for_ends_it_cleanly(place: Place) -> None:
    place.drop(("a", 1))
    config = {"ops": {"counts": {"config": {"run_for": "3s"}}}}
    result = place.run(place.counts(mode="continuous"), run_config=config)
    assert result.success
    assert place.epochs() == 1
    assert closed_because(place) == "run_for"


def test_a_run_canceled_where_the_interruption_was_lost_reports_its_newest_epoch_and_ends_canceled(
    place: Place,
) -> None:
    place.options = {"event_interval": "1h"}
    place.drop(("a", 1))
    live = place.run_beside(place.counts(mode="continuous"))
    until("the first epoch", lambda: place.epochs() == 1)
    [run] = place.instance.get_runs()
    place.instance.report_run_canceling(run)
    result = live.end()
    assert status_of(place, result) is dg.DagsterRunStatus.CANCELED
    assert len(place.events()) == 1
    assert closed_because(place) == "its Dagster run was canceled"


def test_a_run_that_dagster_declared_failed_stops_and_leaves_its_lease_to_lapse(place: Place) -> None:
    place.drop(("a", 1))
    live = place.run_beside(place.counts(mode="continuous"))
    until("the first epoch", lambda: place.epochs() == 1)
    [run] = place.instance.get_runs()
    place.instance.report_run_failed(run, "the sensor took it for dead")
    result = live.end()
    assert "declared this run failed" in failure_of(result)
    assert closed_because(place) is None


def test_a_stream_that_fails_reports_its_committed_epoch_and_leaves_its_lease_to_lapse(place: Place) -> None:
    def breaks(batches):  # type: ignore[no-untyped-def]
        for batch in batches:
            if 13 in batch.column("v").to_pylist():
                raise RuntimeError("an unlucky number")
            yield batch

    @streaming_asset(shards=2)
    def counts(spark: SparkSession) -> Stream:
        return Stream(place.read(spark).mapInArrow(breaks, "k string, v long"))

    place.options = {"tolerable_failures": 0, "event_interval": "1h"}
    place.drop(("a", 1))
    place.drop(("a", 13))
    result = place.run(counts)
    assert not result.success
    assert [event.metadata["epoch"].value for event in place.events()] == [place.history().latest().epoch]
    assert closed_because(place) is None
