"""A live stream and who comes beside it: a second Materialize, another Dagster instance, a step that is tried again."""

import time
from typing import Any

import dagster as dg
import pandas as pd
import pytest
from pyspark.sql import SparkSession

from dagster_ckpt import Recovery, Stream, agg, streaming_asset
from dagster_ckpt.protocol.lease import Lease
from dagster_ckpt.protocol.manifest.manifest import ManifestKind
from dagster_ckpt.protocol.object_names import folder_of
from dagster_ckpt.storage.leases.heartbeat import NOT_OPEN, read_lease
from dagster_ckpt.storage.leases.process_identity import this_process
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.stores.folder import folder_store
from tests.dagster.loadable_jobs import PLACE, a_stream_of_two_instances, one_stream
from tests.dagster.place import Place, add_up, failure_of, until

CONTINUOUS = {"ops": {"counts": {"config": {"mode": "continuous"}}}}


def test_a_second_materialize_succeeds_with_the_newest_epoch_and_the_live_run_goes_on(place: Place) -> None:
    counts, read = place.counts(), []

    @dg.asset
    def report(counts: pd.DataFrame) -> None:
        read.append(counts.set_index("k")["n"].to_dict())

    place.drop(("a", 1))
    live = place.run_beside(counts, run_config=CONTINUOUS)
    until("the live one works", lambda: place.epochs() == 1)
    [live_run] = place.instance.get_runs()
    epoch = place.history().latest().epoch
    second = place.run(counts, others=(report,))
    assert second.success
    assert read == [{"a": 1}], "what is downstream goes on with that epoch"
    [event] = second.asset_materializations_for_node("counts")
    assert event.metadata["already_live"].value == f"already live, epoch {epoch}, run {live_run.run_id}"
    assert event.metadata["live_run"] == dg.MetadataValue.dagster_run(live_run.run_id)
    assert event.tags["dagster/data_version"].startswith(f"counts@{epoch}-")
    shown = {each.check_name: each for each in second.get_asset_check_evaluations()}
    assert shown["no_crash_loop"].passed
    assert shown["is_live"].passed
    assert shown["is_live"].metadata["dagster_run"].value == live_run.run_id
    place.drop(("a", 2))
    until("the live one goes on", lambda: place.table() == {"a": (2, 3)})
    back = {"ops": {"counts": {"config": {"from_epoch": epoch}}}}
    refused = failure_of(place.run(counts, run_config=back))
    assert "another Dagster run is writing this stream" in refused
    assert f"dagster_run={live_run.run_id}" in refused
    assert "host=" in refused
    assert "instance=" in refused
    place.instance.report_run_canceling(live_run)
    live.end()
    assert place.instance.get_run_by_id(live_run.run_id).status is dg.DagsterRunStatus.CANCELED  # type: ignore[union-attr]
    assert [manifest.kind for manifest in (place.history().manifest(),)] == [ManifestKind.EPOCH]


def test_take_over_fences_the_live_one_which_ends_with_a_clear_error_although_nothing_comes(place: Place) -> None:
    counts = place.counts()
    place.drop(("a", 1))
    live = place.run_beside(counts, run_config=CONTINUOUS)
    until("the live one works", lambda: place.epochs() == 1)
    assert place.run(counts, run_config={"ops": {"counts": {"config": {"take_over": True}}}}).success
    fenced = live.end()
    assert "another writer took over" in failure_of(fenced)
    place.drop(("a", 2))
    assert place.table() == {"a": (1, 1)}
    assert place.run(counts).success
    assert place.table() == {"a": (2, 3)}


def test_a_fenced_writer_that_took_over_itself_does_not_fence_the_newer_one_at_its_retry(place: Place) -> None:
    insists = {"ops": {"counts": {"config": {"mode": "continuous", "take_over": True}}}}
    place.drop(("a", 1))
    older = place.run_beside(place.counts(retry_policy=dg.RetryPolicy(max_retries=1)), run_config=insists)
    until("the older one works", lambda: place.epochs() == 1)
    term = place.history().manifest().term
    newer = place.run_beside(place.counts(), run_config=insists)
    until("the newer one has taken over", lambda: place.history().manifest().term > term)
    newest_term = place.history().manifest().term
    [newer_run] = [run for run in place.instance.get_runs() if not run.is_finished][:1]
    place.drop(("a", 2))
    fenced = older.end()
    assert [event.event_type_value for event in fenced.all_events].count("STEP_RESTARTED") == 1
    assert fenced.success, "its retry leaves the stream to the newer one"
    [left] = fenced.asset_materializations_for_node("counts")[-1:]
    assert f"run {newer_run.run_id}" in left.metadata["already_live"].value
    place.drop(("a", 3))
    until("the newer one goes on", lambda: place.table() == {"a": (3, 6)})
    assert place.history().manifest().term == newest_term
    place.instance.report_run_canceling(newer_run)
    newer.end()


def test_a_re_executed_run_does_not_take_over_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLACE, str(place.folder))
    insists: dict[str, Any] = {"ops": {"counts": {"config": {"take_over": True}}}}
    job = dg.reconstructable(a_stream_of_two_instances)
    place.drop(("a", 1))
    with dg.instance_for_test() as theirs:
        with dg.execute_job(job, instance=theirs, run_config=insists) as first:
            assert first.success
        assert place.run(place.counts(), run_config=insists).success
        again = dg.ReexecutionOptions(parent_run_id=first.run_id)
        with dg.execute_job(job, instance=theirs, run_config=insists, reexecution_options=again) as refused:
            assert "belongs to another Dagster instance" in failure_of(refused)


def test_two_dagster_instances_on_one_store_do_not_share_a_stream(place: Place) -> None:
    counts = place.counts()
    place.drop(("a", 1))
    assert place.run(counts).success
    ours, place.instance = place.instance, dg.DagsterInstance.ephemeral(tempdir=str(place.folder))
    place.drop(("a", 2))
    refused = place.run(counts)
    assert "belongs to another Dagster instance" in failure_of(refused)
    assert place.table() == {"a": (1, 1)}
    assert place.run(counts, run_config={"ops": {"counts": {"config": {"take_over": True}}}}).success
    assert place.table() == {"a": (2, 3)}
    place.instance = ours
    assert "belongs to another Dagster instance" in failure_of(place.run(counts))


def test_from_epoch_rolls_back_once_although_the_step_is_tried_again(place: Place) -> None:
    broken = place.folder / "broken"

    def breaks(batches):  # type: ignore[no-untyped-def]
        for batch in batches:
            if broken.exists() and 13 in batch.column("v").to_pylist():
                broken.unlink()
                raise RuntimeError("this epoch fails once")
            yield batch

    @streaming_asset(shards=2, retry_policy=dg.RetryPolicy(max_retries=1), recovery=Recovery(lease_timeout="300s"))
    def counts(spark: SparkSession) -> Stream:
        frame = place.read(spark)
        return (
            Stream(frame.mapInArrow(breaks, "k string, v long"))
            .key_by("k")
            .aggregate(total=agg.sum("v"), n=agg.count())
        )

    place.options = {"tolerable_failures": 0}
    place.drop(("a", 1))
    assert place.run(counts).success
    good = place.history().latest().epoch
    place.drop(("a", 100))
    assert place.run(counts).success
    wrong = place.history().latest().epoch
    place.drop(("a", 13))
    broken.touch()
    began_s = time.monotonic()
    result = place.run(counts, run_config={"ops": {"counts": {"config": {"from_epoch": good}}}})
    assert result.success, failure_of(result)
    assert time.monotonic() - began_s < 200, "a step that is tried again does not wait for its own lease"
    assert [event.event_type_value for event in result.all_events].count("STEP_RESTARTED") == 1
    assert place.table() == {"a": (3, 114)}
    newest = place.history().manifest()
    assert newest.rollbacks == (result.run_id,)
    assert add_up(place.events(), newest)
    [left_behind] = newest.abandoned
    assert left_behind.first <= wrong <= left_behind.last
    # Another Dagster run that asks for the same is another wish.
    again = place.run(counts, run_config={"ops": {"counts": {"config": {"from_epoch": good}}}})
    assert place.history().manifest().rollbacks == (result.run_id, again.run_id)


def test_a_retried_dagster_run_rolls_back_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLACE, str(place.folder))
    config: dict[str, Any] = {"ops": {"counts": {"config": {}}}}
    job = dg.reconstructable(one_stream)
    with dg.instance_for_test() as instance:

        def run(**fields: Any) -> dg.JobExecutionResult:
            with dg.execute_job(job, instance=instance, run_config=config, **fields) as result:
                assert result.success
                return result

        place.drop(("a", 1))
        run()
        config["ops"]["counts"]["config"] = {"from_epoch": place.history().latest().epoch}
        place.drop(("a", 10))
        first = run()
        place.drop(("a", 100))
        # What "Re-execute" in Dagster's UI does, and what its run retries do: the same config, the same root run.
        again = run(reexecution_options=dg.ReexecutionOptions(parent_run_id=first.run_id))
        retried = instance.get_run_by_id(again.run_id)
        assert retried is not None
        assert (retried.root_run_id, retried.run_config) == (first.run_id, config)
        newest = place.history().manifest()
        assert newest.rollbacks == (first.run_id,)
        assert place.table() == {"a": (3, 111)}
        assert newest.abandoned == (), "the epoch of the first try was kept"


def test_a_run_beats_while_its_stream_is_not_open_yet_and_not_after(place: Place) -> None:
    folder = folder_store(StoreAddress(place.url).open(), folder_of(["counts"]))
    beats: list[Lease | None] = []

    @streaming_asset(shards=2)
    def counts(spark: SparkSession) -> Stream:
        beats.append(read_lease(folder, NOT_OPEN))
        return Stream(place.read(spark)).key_by("k").aggregate(total=agg.sum("v"), n=agg.count())

    place.drop(("a", 1))
    assert place.run(counts).success
    place.drop(("a", 2))
    second = place.run(counts)
    assert second.success
    first_beat, beat = beats
    assert first_beat is None, "there was no stream yet, and a run that is refused leaves nothing behind"
    assert beat is not None
    assert (beat.holder.dagster_run_id, beat.holder.process, beat.closed) == (second.run_id, this_process(), None)
    ended = read_lease(folder, NOT_OPEN)
    assert ended is not None
    assert ended.closed == "opened"
