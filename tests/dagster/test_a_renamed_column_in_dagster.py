"""A renamed column: the option of an asset, and a rollback over the rename by the run config."""

from typing import Any

import dagster as dg
from pyspark.sql import SparkSession

from dagster_ckpt import Recovery, Stream, streaming_asset
from tests.dagster.place import Place, failure_of

REBUILD: dict[str, Any] = {"ops": {"counts": {"config": {"rebuild": True}}}}
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


def test_a_stream_is_rebuilt_behind_a_rename(place: Place) -> None:
    def counts_of(key: str, *columns: str, **options: Any) -> dg.AssetsDefinition:
        @streaming_asset(**OPTIONS, **options)
        def counts(spark: SparkSession) -> Stream:
            rows = place.read(spark).selectExpr(f"k AS {key}", *columns)
            return Stream(rows).key_by(key).deduplicate("last", by="w")

        return counts

    place.drop(("a", 1), ("b", 2))
    assert place.run(counts_of("k", "v AS w")).success
    place.drop(("a", 3))
    assert place.run(counts_of("key", "v AS w", renamed={"k": "key"})).success
    told = failure_of(place.run(counts_of("k", "v AS w", "v * 10 AS key"), run_config=REBUILD))
    assert "another key: 'key' before, 'k' now" in told
    assert "start the stream once with renamed=" in told
    before = place.history().latest().epoch
    # Inside, the state had the key as `k`: now that is the name of another column.
    assert place.run(counts_of("key", "v AS w", "concat(k, '!') AS k"), run_config=REBUILD).success
    assert place.history().read().sort_by("key").to_pylist() == [
        {"key": "a", "w": 3, "k": "a!"},
        {"key": "b", "w": 2, "k": "b!"},
    ]
    log = place.history().changes(after=before - 1, columns=["key", "w", "k"]).to_pylist()
    shown = [(row["_change_type"], row["key"], row["w"], row["k"]) for row in log]
    assert shown[:2] == [("update_preimage", "a", 1, None), ("update_postimage", "a", 3, None)], "as it was shown then"
    assert sorted(shown[2:]) == [
        ("update_postimage", "a", 3, "a!"),
        ("update_postimage", "b", 2, "b!"),
        ("update_preimage", "a", 3, None),
        ("update_preimage", "b", 2, None),
    ]
    place.drop(("b", 5))
    assert place.run(counts_of("key", "v AS w", "concat(k, '!') AS k")).success
    assert place.history().get({"key": ["b"]}).to_pylist() == [{"key": "b", "w": 5, "k": "b!"}]
    place.history().rollback(before)
    assert place.run(counts_of("key", "v AS w")).success, "the old code, which the restored manifest remembers"
    assert place.history().read().sort_by("key").to_pylist() == [{"key": "a", "w": 3}, {"key": "b", "w": 5}]
