"""`deliver` in Dagster, without Spark: the stream's epochs are there, and SQLite is where they go."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from dagster_ckpt import (
    CheckpointCoordinatorResource,
    Stream,
    build_streaming_definitions,
    deliver,
    streaming_asset,
)
from dagster_ckpt.errors import InvalidPipelineError
from examples.destinations.sqlite_destination import SQLite
from tests.unit.delivery.delivering import Delivering
from tests.unit.history.made_streams import departures


@streaming_asset(mode="continuous", autostart=True)
def delays() -> Stream:
    raise AssertionError("only what it has committed is delivered")


SHOP = SQLite("shop.db", "delays")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def materialize(delivering: Delivering, instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    defs = build_streaming_definitions(
        [delays, deliver(delays, to=delivering.destination, continuous=False)],
        checkpoints=CheckpointCoordinatorResource(url=delivering.url),
    )
    return dg.materialize(
        [each for each in defs.assets or () if isinstance(each, dg.AssetsDefinition)],
        selection="delays_in_sqlite",
        resources=dict(defs.resources or {}) | {"spark": object()},
        instance=instance,
    )


def test_a_delivery_is_an_asset_downstream_of_its_stream(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    delivering = Delivering(tmp_path)
    for carrier in ("UA", "AA"):
        delivering.stream.commit(departures({carrier: [1.0]}))
    assert materialize(delivering, instance).success
    assert delivering.delivered() == delivering.table()
    delivering.stream.commit(departures({"UA": [2.0], "DL": [2.0]}))
    result = materialize(delivering, instance)
    assert delivering.delivered() == delivering.table()
    [event] = result.asset_materializations_for_node("delays_in_sqlite")
    shown = {label: event.metadata[label].value for label in ("rows_in", "consumed_epoch/delays", "dagster/uri")}
    newest = delivering.store.stream("delays").latest().epoch
    assert shown == {"rows_in": 3, "consumed_epoch/delays": newest, "dagster/uri": delivering.destination.address}
    assert "dagster/row_count" not in event.metadata
    assert event.metadata["lag/epochs"].value == 0


def test_a_delivery_runs_as_its_stream_does() -> None:
    made = build_streaming_definitions(
        [delays, deliver(delays, to=SHOP)],
        checkpoints=CheckpointCoordinatorResource(url="file:///shop/checkpoints"),
        spark=dg.ResourceDefinition.none_resource(),
    )
    job = made.get_repository_def().get_job("delays_in_sqlite_job")
    assert job.tags["dagster_ckpt/stream"] == "delays_in_sqlite"
    [asset] = [each for each in made.assets or () if getattr(each, "key", None) == dg.AssetKey("delays_in_sqlite")]
    assert isinstance(asset, dg.AssetsDefinition)
    assert asset.asset_deps[asset.key] == {dg.AssetKey("delays")}
    assert "sqlite" in asset.get_asset_spec().kinds


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"mode": "merge"}, "use 'upsert' or 'append'"),
        ({"max_epochs": 0}, "1 or more"),
        ({"name": "a", "key": "b"}, "a name or a key"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, object], reason: str) -> None:
    with pytest.raises(InvalidPipelineError, match=f"{reason}.*asset=" if "key" not in options else reason):
        deliver(delays, to=SHOP, **options)  # type: ignore[arg-type]


def test_only_a_stream_can_be_delivered() -> None:
    @dg.asset
    def ordinary() -> None: ...

    with pytest.raises(InvalidPipelineError, match="made by @streaming_asset"):
        deliver(ordinary, to=SHOP)
    with pytest.raises(InvalidPipelineError, match="made by @streaming_asset"):
        deliver(deliver(delays, to=SHOP), to=SHOP)
