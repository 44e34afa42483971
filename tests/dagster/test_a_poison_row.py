"""A row that no code can take, on real Spark: the sensor stops, the check says why, and passes once it is fixed."""

import time
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pyarrow as pa
from pyspark.sql import SparkSession

from dagster_ckpt import CheckpointCoordinatorResource, Recovery, Stream, agg, build_recovery_sensor, streaming_asset
from tests.dagster.place import Place

NO_LOOP = dg.AssetCheckKey(dg.AssetKey("counts"), "no_crash_loop")


def poisoned(place: Place) -> dg.AssetsDefinition:
    fixed = place.folder / "fixed"

    def breaks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if 13 in batch.column("v").to_pylist() and not fixed.exists():
                raise ValueError("an unlucky number")
            yield batch

    @streaming_asset(shards=2, recovery=Recovery(lease_timeout="2s", backoff="1ms"))
    def counts(spark: SparkSession) -> Stream:
        rows = place.read(spark).mapInArrow(breaks, "k string, v long")
        return Stream(rows).key_by("k").aggregate(n=agg.count(), total=agg.sum("v"))

    return counts


def tick(place: Place, counts: dg.AssetsDefinition) -> list[dg.RunRequest]:
    """What the sensor asks for once it has seen how things are for a moment: its back-off is over then."""
    checkpoints = CheckpointCoordinatorResource(url=place.url)
    sensor: Any = build_recovery_sensor([counts])
    result = dg.SensorResult()
    for _ in range(2):
        with dg.build_sensor_context(
            place.instance,
            cursor=result.cursor,
            definitions=place.definitions(streams=[counts]),
            resources={"checkpoints": checkpoints},
        ) as context:
            result = sensor(context)
        time.sleep(0.01)
    return list(result.run_requests or [])


def shown(place: Place) -> tuple[str, dg.AssetCheckEvaluation | None]:
    """The newest evaluation of the check. PLANNED by a run that has failed: the Checks tab shows it as not executed."""
    record = place.instance.get_latest_asset_check_evaluation_record(NO_LOOP)
    assert record is not None
    found = record.evaluation
    return record.status.value, found if isinstance(found, dg.AssetCheckEvaluation) else None


def test_the_runs_of_a_poison_row_end_in_a_failed_check_which_passes_once_the_row_can_be_taken(place: Place) -> None:
    place.options = {"tolerable_failures": 0}
    counts = poisoned(place)
    place.drop(("a", 1))
    assert place.run(counts).success
    good = place.history().latest().epoch
    assert shown(place)[0] == "SUCCEEDED"
    place.drop(("a", 13))

    tags: list[dict[str, str]] = [{}]
    failed: list[Any] = []
    while tags and len(failed) < 5:
        failed.append(place.run(counts, tags=tags[0]))
        assert not failed[-1].success
        assert shown(place)[0] == "PLANNED"
        tags = [dict(request.tags) for request in tick(place, counts)]
    assert len(failed) == 3, "tasks, terms and epochs differ from run to run: the error is the same all the same"
    status, check = shown(place)
    assert status == "FAILED"
    assert check is not None
    assert "an unlucky number" in str(check.metadata["error"].value)
    assert (check.metadata["failures"].value, check.metadata["last_epoch"].value) == (3, good)
    assert check.metadata["dagster_run"].value == failed[-1].run_id
    assert place.table() == {"a": (1, 1)}

    (place.folder / "fixed").touch()
    assert place.run(counts).success
    assert place.table() == {"a": (2, 14)}
    assert shown(place)[0] == "SUCCEEDED"
    assert tick(place, counts) == []
