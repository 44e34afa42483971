"""Streaming assets that read streaming assets, run by Dagster on real Spark."""

from typing import Any

import dagster as dg
import pytest

from dagster_ckpt import Stream, agg, streaming_asset
from tests.dagster.place import Place, failure_of, until

pytestmark = pytest.mark.reads_streams


@streaming_asset(shards=2, checkpoint_interval="200ms")
def large(counts: Stream) -> Stream:
    """The keys with a large total."""
    return counts.where("total > 10")


@streaming_asset(shards=2, checkpoint_interval="200ms")
def by_size(counts: Stream) -> Stream:
    """The keys by the class of their total, in two steps."""
    first = counts.with_column("size", "CAST(total / 10 AS INT)").select("size", "k AS name", "n")
    sizes = first.key_by("size").aggregate(names=agg.max("name"), rows=agg.sum("n"), keys=agg.count())
    return sizes.with_columns({"per_key": "rows / keys", "one": "1"}).top(2, by="per_key desc", rank="place")


def totals(place: Place, name: str = "large") -> dict[str, int]:
    return {row["k"]: row["total"] for row in place.history(name).read().to_pylist()}


def test_a_chain_in_one_run_works_in_order_and_reports_consumed_epochs(place: Place) -> None:
    counts = place.counts()
    place.drop(("a", 11), ("b", 1))
    assert place.run(large, counts).success
    assert totals(place) == {"a": 11}
    place.drop(("b", 20))
    assert place.run(large, by_size, counts).success
    assert totals(place) == {"a": 11, "b": 21}
    consumed = [event.metadata["consumed_epoch/counts"].value for event in place.events("large")]
    assert consumed == [info.epoch for info in reversed(place.history().epochs())]
    lineage = place.events("large")[-1].metadata["dagster/column_lineage"].value
    total = dg.TableColumnDep(asset_key=counts.key, column_name="total")
    assert lineage.deps_by_column["total"] == [total]  # type: ignore[union-attr]
    through_steps: Any = place.events("by_size")[-1].metadata["dagster/column_lineage"].value
    assert {name: [each.column_name for each in of] for name, of in through_steps.deps_by_column.items()} == {
        "size": ["total"],
        "names": ["k"],
        "rows": ["n"],
        "per_key": ["n"],
        "place": ["n"],
    }


def test_each_runs_by_itself_and_the_downstream_fails_alone(place: Place) -> None:
    counts = place.counts()
    place.drop(("a", 11))
    never = place.run_job("large_job", large, counts)
    assert "materialize it first" in failure_of(never)
    assert "stream=counts" in failure_of(never)
    place.run_job("counts_job", large, counts)
    place.run_job("large_job", large, counts)
    assert totals(place) == {"a": 11}
    [first] = [info.epoch for info in place.history().epochs()]
    place.drop(("a", 1))
    place.run_job("counts_job", large, counts)
    place.run_job("large_job", large, counts)
    place.history().rollback(first)
    assert "rollback large --epoch" in failure_of(place.run_job("large_job", large, counts))
    place.run_job("counts_job", large, counts)
    assert totals(place) == {"a": 12}
    assert place.table() == {"a": (2, 12)}


def test_a_continuous_downstream_waits_for_its_upstream_and_follows_while_that_goes_on(place: Place) -> None:
    @streaming_asset(shards=2, checkpoint_interval="200ms", mode="continuous", run_for="1 hour")
    def live(counts: Stream) -> Stream:
        return counts

    counts = place.counts()
    beside = place.beside(lambda: place.run_job("live_job", live, counts))
    until("a start", place.instance.get_runs)  # before there is an upstream
    place.drop(("a", 11))
    assert place.run_job("counts_job", counts).success
    until("the snapshot", lambda: place.epochs("live") and totals(place, "live") == {"a": 11})
    for value in (1, 2):
        place.drop(("a", value))
        assert place.run_job("counts_job", counts).success
    until("the log", lambda: totals(place, "live") == {"a": 14})
    [run] = [run for run in place.instance.get_runs() if run.job_name == "live_job"]
    place.instance.add_run_tags(run.run_id, {"dagster_ckpt/drain": "the test is over"})
    assert beside.end().success
