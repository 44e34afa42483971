"""A stream is built anew beside the live one, and takes over in one epoch: what Dagster's user sees."""

import shutil
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from dagster_ckpt import Recovery, Stream, agg, streaming_asset
from dagster_ckpt.integration.dagster_names import REBUILD_TAG
from dagster_ckpt.runtime.driver import rebuild as rebuild_module
from tests.dagster.place import Place, failure_of, until

AT_ONCE = Recovery(lease_timeout="2s")
REBUILD: dict[str, Any] = {"ops": {"counts": {"config": {"rebuild": True}}}}


def with_the_greatest(place: Place, **options: Any) -> dg.AssetsDefinition:
    """The stream `counts` of the place, with the greatest value in the place of the sum."""

    @streaming_asset(name="counts", shards=2, recovery=AT_ONCE, checkpoint_interval="200ms", **options)
    def counts(spark: SparkSession) -> Stream:
        return Stream(place.read(spark)).key_by("k").aggregate(n=agg.count(), greatest=agg.max("v"))

    return counts


def rows(place: Place, epoch: int | None = None, name: str = "counts") -> list[tuple[object, ...]]:
    table = place.history(name).read(epoch)
    return sorted(tuple(row.values()) for row in table.to_pylist())


def test_a_new_aggregate_is_built_from_the_beginning_and_takes_over_in_one_epoch(place: Place) -> None:
    place.drop(("a", 1), ("a", 5), ("b", 3))
    place.drop(("b", 2))
    assert place.run(place.counts()).success
    before = place.history().manifest().epoch
    assert "needs all rows from the beginning" in failure_of(place.run(with_the_greatest(place)))
    place.drop(("c", 7))
    assert place.run(with_the_greatest(place), run_config=REBUILD).success
    assert rows(place) == [("a", 2, 5), ("b", 2, 3), ("c", 1, 7)]
    assert rows(place, before) == [("a", 2, 6), ("b", 2, 5)]
    [swap] = [info for info in place.history().epochs() if info.epoch > before]
    assert swap.rows_out == 2 + 2 + 1
    place.drop(("a", 9))
    assert place.run(with_the_greatest(place)).success
    assert rows(place) == [("a", 3, 9), ("b", 2, 3), ("c", 1, 7)]
    assert place.history().verify().findings == ()


@pytest.mark.long
def test_a_stream_and_a_reader_of_it_go_on_behind_a_rebuild_and_go_back_over_it(place: Place) -> None:
    @streaming_asset(shards=2, recovery=AT_ONCE)
    def few(counts: Stream) -> Stream:
        return counts.key_by("n").aggregate(keys=agg.count())

    @streaming_asset(shards=2, recovery=AT_ONCE)
    def largest(counts: Stream) -> Stream:
        return counts.top(1, by="greatest desc")

    place.drop(("a", 1), ("b", 3), ("b", 1), ("b", 1))
    assert place.run(place.counts(), few).success
    before = place.history().manifest().epoch
    place.drop(("c", 7))
    assert place.run(with_the_greatest(place), run_config=REBUILD).success
    assert place.run(with_the_greatest(place), few).success
    newest = place.history("few").manifest()
    assert newest.consumed[0].epoch == place.history().manifest().epoch
    assert rows(place, name="few") == [(1, 2), (3, 1)]
    assert place.run(with_the_greatest(place), largest).success, (
        "one that begins with the table, whose files are beside"
    )
    assert rows(place, name="largest") == [("c", 1, 7)]
    place.history().rollback(before)
    assert rows(place) == [("a", 1, 1), ("b", 3, 5)]
    assert place.run(place.counts()).success
    assert rows(place) == [("a", 1, 1), ("b", 3, 5), ("c", 1, 7)]


@pytest.mark.long
def test_the_live_stream_goes_on_until_the_other_has_caught_up(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.drop(("a", 1), ("a", 5))
    live = place.run_beside(place.counts(mode="continuous"))
    until("the first epoch", lambda: place.epochs() >= 1)
    passes: list[int] = []
    one_pass = rebuild_module._Rebuild._pass

    def counted(self: Any, **how: Any) -> int:
        if len(passes) == 1:  # the live one works on meanwhile
            place.drop(("b", 2))
            until("the live stream has it", lambda: len(rows(place)) == 2)
        passes.append(one_pass(self, **how))
        return rebuild_module.SHORT_PASS_MS + 1 if len(passes) == 1 else passes[-1]

    monkeypatch.setattr(rebuild_module._Rebuild, "_pass", counted)
    config = {"ops": {"counts": {"config": {"rebuild": True, "rebuild_pace": 0.5, "mode": "available_now"}}}}
    result = place.run(with_the_greatest(place, mode="continuous"), run_config=config)
    assert result.success
    assert live.end().success, "it was asked to end"
    assert rows(place) == [("a", 2, 5), ("b", 1, 2)]
    assert len(passes) == 3, "two, and one behind the end of the live one"
    observed = place.instance.fetch_observations(dg.AssetKey("counts"), limit=100).records
    texts = [str(record.asset_observation.description) for record in observed if record.asset_observation]
    assert any(text.startswith("Rebuilding as counts/~rebuild-1: epoch 3, 2 rows read") for text in texts)


@pytest.mark.long
def test_a_rebuild_that_died_goes_on_and_one_that_is_done_is_not_done_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at_least(least: int) -> dg.AssetsDefinition:
        """The fingerprint does not show which rows are left out."""

        @streaming_asset(name="counts", shards=2, recovery=AT_ONCE, checkpoint_interval="200ms")
        def counts(spark: SparkSession) -> Stream:
            rows = place.read(spark).where(f"v >= {least}")
            return Stream(rows).key_by("k").aggregate(n=agg.count(), greatest=agg.max("v"))

        return counts

    def asked(request: str) -> dict[str, Any]:
        return {"run_config": REBUILD, "tags": {REBUILD_TAG: request}}

    place.drop(("a", 1), ("b", 2))
    assert place.run(place.counts()).success
    before = place.history().manifest().version

    class DiedError(Exception): ...

    def dies(*_: object) -> None:
        raise DiedError

    with monkeypatch.context() as patched:
        patched.setattr(rebuild_module, "swap", dies)
        assert not place.run(at_least(0), **asked("first")).success
        assert place.history().manifest().version == before
        beside = place.history("counts/~rebuild-1").manifest()
        assert not place.run(at_least(0), **asked("first")).success
        assert place.history("counts/~rebuild-1").manifest().epoch == beside.epoch, "its relaunch reads nothing again"
        assert not place.run(at_least(2), **asked("second")).success
        assert rows(place, name="counts/~rebuild-1") == [("b", 1, 2)], "another may have other code, and begins again"
    assert place.run(at_least(0), **asked("first")).success
    assert rows(place) == [("a", 1, 1), ("b", 1, 2)], "and so does the first one after it"
    assert place.run(at_least(0), **asked("first")).success
    assert len(place.history().manifest().ancestors) == 1
    # Another request: it is built once more, alongside, under the next name.
    assert place.run(at_least(2), **asked("third")).success
    assert place.history("counts/~rebuild-2").manifest().statistics.total_epochs == 1
    assert rows(place) == [("b", 1, 2)]


def test_a_stream_that_was_created_again_is_rebuilt_in_a_stream_of_its_own(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.drop(("a", 1))
    assert place.run(place.counts()).success

    class DiedError(Exception): ...

    def dies(*_: object) -> None:
        raise DiedError

    with monkeypatch.context() as patched:
        patched.setattr(rebuild_module, "swap", dies)
        assert not place.run(with_the_greatest(place), run_config=REBUILD).success
    shutil.rmtree(place.folder / "store" / "counts")
    for each in place.inbox.iterdir():
        each.unlink()
    place.files = 0
    place.drop(("b", 2))  # a file of the same name
    assert place.run(place.counts()).success
    assert place.run(with_the_greatest(place), run_config=REBUILD).success
    assert rows(place) == [("b", 1, 2)]
    assert place.history("counts/~rebuild-2").manifest().epoch >= 1


def test_the_code_reads_all_that_the_stream_has_read(place: Place) -> None:
    @streaming_asset(name="counts", shards=2, recovery=AT_ONCE)
    def elsewhere(spark: SparkSession) -> Stream:
        other = place.folder / "other"
        other.mkdir(exist_ok=True)
        rows = spark.readStream.schema("k string, v long").parquet(str(other))
        return Stream(rows).key_by("k").aggregate(n=agg.count(), greatest=agg.max("v"))

    place.drop(("a", 1))
    assert place.run(place.counts()).success
    told = failure_of(place.run(elsewhere, run_config=REBUILD))
    assert "the stream has read sources that the code does not read" in told
    assert f"gone=['parquet file:{place.inbox}']" in told


def test_files_that_the_source_no_longer_has_stop_it_before_the_live_stream_ends(place: Place) -> None:
    place.drop(("a", 1))
    place.drop(("b", 1))
    assert place.run(place.counts()).success
    version = place.history().manifest().version
    gone = min(place.inbox.iterdir())
    gone.unlink()
    told = failure_of(place.run(with_the_greatest(place), run_config=REBUILD))
    assert "restore what the source no longer has" in told
    assert f"/inbox (1 files, the first is {gone.as_uri()})" in told
    assert place.history().manifest().version == version


@pytest.mark.long
def test_a_stream_that_began_with_a_table_is_rebuilt_with_it_or_not_at_all(place: Place) -> None:
    def counts_of(*, past: bool, **aggregates: agg.Aggregation) -> dg.AssetsDefinition:
        @streaming_asset(name="counts", shards=2, recovery=AT_ONCE)
        def counts(spark: SparkSession) -> Stream:
            table = spark.createDataFrame([("a", 100), ("z", 5)], "k string, v long") if past else None
            return Stream(place.read(spark), initial=table).key_by("k").aggregate(n=agg.count(), **aggregates)

        return counts

    place.drop(("a", 1))
    assert place.run(counts_of(past=True)).success
    place.drop(("b", 2))
    assert place.run(counts_of(past=False)).success, "the table is not read again"
    before = place.history().manifest()
    without = counts_of(past=False, greatest=agg.max("v"))
    told = failure_of(place.run(without, run_config=REBUILD))
    assert "the stream began with a table, whose rows the rebuilt one would lack" in told
    assert f"sources=['parquet file:{place.inbox}']" in told
    assert place.history().manifest() == before
    assert place.run(counts_of(past=True, greatest=agg.max("v", since="now")), run_config=REBUILD).success
    assert rows(place) == [("a", 2, 100), ("b", 1, 2), ("z", 1, 5)], "of all rows, since it begins with its stream"
    assert place.history().read().schema.field("greatest").metadata == {b"dagster_ckpt.since": b"0"}
    told = failure_of(place.run(counts_of(past=False, least=agg.min("v")), run_config=REBUILD))
    assert "the stream began with a table" in told, "so did what took its place"


def test_another_key_is_refused_before_anything_is_read(place: Place) -> None:
    @streaming_asset(name="counts", shards=2, recovery=AT_ONCE)
    def by_value(spark: SparkSession) -> Stream:
        return Stream(place.read(spark)).key_by("v").aggregate(n=agg.count())

    place.drop(("a", 1))
    assert place.run(place.counts()).success
    told = failure_of(place.run(by_value, run_config=REBUILD))
    assert "its rows have another key: 'k' before, 'v' now" in told
    assert "fork(..., epoch=0)" in told


def test_the_config_is_checked(place: Place) -> None:
    place.drop(("a", 1))
    for config, told in (
        ({"rebuild": True, "from_epoch": 0}, "roll back first, or rebuild"),
        ({"rebuild": True, "rebuild_pace": 0.0}, "above 0 and at most 1"),
    ):
        result = place.run(place.counts(), run_config={"ops": {"counts": {"config": config}}})
        assert told in failure_of(result)
