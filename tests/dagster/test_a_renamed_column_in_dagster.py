"""A renamed column: the option of an asset, and a rollback over the rename by the run config."""

from typing import Any

import dagster as dg
from pyspark.sql import SparkSession

from dagster_ckpt import Recovery, Stream, streaming_asset
from tests.dagster.place import Place, failure_of

OPTIONS: dict[str, Any] = {"name": "counts", "shards": 2, "recovery": Recovery(lease_timeout="2s")}


def greatest(place: Place, key: str, **options: Any) -> dg.AssetsDefinition:
    @streaming_asset(**OPTIONS, **options)
    def counts(spark: SparkSession) -> Stream:
        rows = place.read(spark).withColumnRenamed("k", key)
        return Stream(rows).key_by(key).deduplicate("last", by="v")

    return counts


def test_the_option_is_needed_once(place: Place) -> None:
    place.drop(("a", 1), ("b", 2))
    assert place.run(greatest(place, "k")).success
    before = place.history().latest().epoch
    place.drop(("a", 3), ("b", 1))
    assert 'set renamed={"old": "new"}' in failure_of(place.run(greatest(place, "key")))
    mistaken = failure_of(place.run(greatest(place, "key", renamed={"k": "keys"})))
    assert "code's table has no column 'keys': rename the column in the code too. Did you mean 'key'?" in mistaken
    assert place.run(greatest(place, "key", renamed={"k": "key"})).success
    assert place.history().get({"key": ["a", "b"]}).to_pylist() == [{"key": "a", "v": 3}, {"key": "b", "v": 2}]
    back = {"ops": {"counts": {"config": {"from_epoch": before}}}}
    assert place.run(greatest(place, "key"), run_config=back).success
    assert place.history().get({"key": ["a", "b"]}).to_pylist() == [{"key": "a", "v": 3}, {"key": "b", "v": 2}]
    assert place.history().manifest(before).pipeline.output.names == ["k", "v"]
