"""An event of a stream of several steps: a table with a row for each, and plots of the slowest."""

from dataclasses import replace

import dagster as dg

from dagster_ckpt.ids import Shard
from dagster_ckpt.integration.events.epoch_metadata import epoch_metadata
from dagster_ckpt.integration.events.event_totals import NO_WORK
from dagster_ckpt.protocol.manifest.manifest import Manifest, ShardTime, Statistics, StepWork
from dagster_ckpt.runtime.micro_batch.epoch_driver import CommittedEpoch
from tests.worlds.manifests import a_manifest
from tests.worlds.several_steps import shops_counted, with_runs

LABELS = ("slowest_step", "slowest_step_milliseconds", "slowest_step_rows_in")


def committed(*work: StepWork) -> CommittedEpoch:
    manifest = with_runs(shops_counted())
    manifest = replace(manifest, steps=work, statistics=Statistics(total_epochs=1))
    return CommittedEpoch(manifest, commit_ms=1, epoch_ms=9, counters={})


def rows_of(metadata: dict[str, dg.MetadataValue]) -> list[dict[str, object]]:
    table = metadata["steps"]
    assert isinstance(table, dg.TableMetadataValue)
    assert {column.name for column in table.schema.columns} == set(table.records[0].data)
    return [dict(record.data) for record in table.records]


def test_the_steps_are_one_table_and_the_slowest_has_plots() -> None:
    first = committed(StepWork(100, 90, 2, 40), StepWork(90, 12, 0, 700), StepWork(12, 2, 0, 5))
    second = committed(StepWork(10, 10, 1, 900), StepWork(10, 4, 0, 30), StepWork(4, 2, 0, 6))
    metadata = epoch_metadata(second.manifest, NO_WORK.plus(first).plus(second))
    assert [metadata[label].value for label in LABELS] == [0, 900, 110]
    assert rows_of(metadata) == [
        {
            "step": 0,
            "operator": "deduplicate",
            "key": "order",
            "rows_in": 110,
            "rows_out": 100,
            "late_rows": 3,
            "milliseconds": 900,
            "state_bytes": 2000,
            "bound": "the number of keys",
        },
        {
            "step": 1,
            "operator": "aggregate",
            "key": "shop",
            "rows_in": 100,
            "rows_out": 16,
            "late_rows": 0,
            "milliseconds": 700,
            "state_bytes": 4000,
            "bound": "the number of keys",
        },
        {
            "step": 2,
            "operator": "aggregate",
            "key": "total",
            "rows_in": 16,
            "rows_out": 4,
            "late_rows": 0,
            "milliseconds": 6,
            "state_bytes": 6000,
            "bound": "the keys that have rows now",
        },
    ]


def test_an_event_without_an_epoch_has_the_same_labels() -> None:
    epoch = committed(StepWork(1, 1, 0, 4), StepWork(1, 1, 0, 5), StepWork(1, 1, 0, 6))
    nothing = epoch_metadata(epoch.manifest)
    assert nothing.keys() == epoch_metadata(epoch.manifest, NO_WORK.plus(epoch)).keys()
    assert [nothing[label].value for label in LABELS] == [0, 0, 0]
    assert [row["rows_in"] for row in rows_of(nothing)] == [0, 0, 0]


def test_a_slow_shard_has_its_step_and_one_step_has_neither() -> None:
    def columns(manifest: Manifest) -> list[str]:
        table = epoch_metadata(manifest)["slowest_shards"]
        assert isinstance(table, dg.TableMetadataValue)
        return list(table.records[0].data)

    slowest = (ShardTime(Shard(3), "worker-2", 900, 70, step=1),)
    assert columns(replace(with_runs(shops_counted()), slowest_shards=slowest))[0] == "step"
    alone = a_manifest(slowest_shards=slowest)
    assert "step" not in columns(alone)
    assert not {"steps", *LABELS} & epoch_metadata(alone).keys()
