"""A changed step of a stream: what Dagster's user sees, and the option of one run."""

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from dagster_ckpt import Recovery, Stream, agg, streaming_asset
from dagster_ckpt.integration.declared.run_config import ONCE
from tests.dagster.place import Place, failure_of

AT_ONCE = Recovery(lease_timeout="2s")
"""A run that failed leaves its lease to lapse: the next one waits for that."""
RESTART = {"ops": {"counts": {"config": {"restart_steps": True}}}}


def of_two_steps(place: Place, where: str = "n > 0") -> dg.AssetsDefinition:
    @streaming_asset(name="counts", shards=2, recovery=AT_ONCE)
    def counts(spark: SparkSession) -> Stream:
        keys = Stream(place.read(spark)).key_by("k").aggregate(n=agg.count(), total=agg.sum("v"))
        return keys.where(where).key_by("n").aggregate(keys=agg.count(), all=agg.sum("total"))

    return counts


def test_a_run_with_the_option_adds_a_step_that_has_all_rows(place: Place) -> None:
    place.drop(("a", 1), ("a", 2), ("b", 3))
    assert place.run(place.counts()).success
    for path in place.inbox.iterdir():
        path.unlink()
    refused = failure_of(place.run(of_two_steps(place)))
    assert "restart_steps: true in the run config, they start over" in refused
    assert "steps that keep their state: step 1 (aggregate); that start over: step 2 (aggregate)" in refused
    assert place.run(of_two_steps(place), run_config=RESTART).success
    assert sorted(map(tuple, place.history().read().to_pandas().to_numpy().tolist())) == [(1, 1, 3), (2, 1, 3)]
    place.drop(("b", 4))
    assert place.run(of_two_steps(place)).success
    assert place.history().read().to_pylist() == [{"n": 2, "keys": 2, "all": 10}]
    assert "restart_steps" in ONCE, "the sensor does not repeat it"


@pytest.mark.long
def test_a_downstream_stops_and_its_way_back_leads_to_the_new_table(place: Place) -> None:
    @streaming_asset(shards=2, recovery=AT_ONCE)
    def few(counts: Stream) -> Stream:
        return counts.where("keys < 10")

    place.drop(("a", 1), ("a", 2), ("b", 4))
    assert place.run(of_two_steps(place), few).success
    changed = of_two_steps(place, "total > 3")
    assert place.run(changed, run_config=RESTART).success
    stopped = failure_of(place.run(changed, few))
    assert "rolled back to before what was read of it, or its steps were changed" in stopped
    assert "reads the upstream again from its beginning" in stopped
    back = {"ops": {"few": {"config": {"from_epoch": 0}}}}
    assert place.run(changed, few, run_config=back).success
    for name in ("counts", "few"):
        assert place.history(name).read().to_pylist() == [{"n": 1, "keys": 1, "all": 4}]
