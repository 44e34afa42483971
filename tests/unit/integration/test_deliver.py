"""`deliver` in Dagster, without Spark: the stream's epochs are there, and SQLite is where they go."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_ckpt import (
    CheckpointCoordinatorResource,
    Stream,
    build_streaming_definitions,
    deliver,
    streaming_asset,
)
from dagster_ckpt.destinations import Kafka, ParquetFolder, Postgres
from dagster_ckpt.errors import InvalidPipelineError, OutsideCodeError
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
    table = {label: event.metadata[label].value for label in ("dagster/row_count", "dagster/table_name")}
    assert table == {"dagster/row_count": len(delivering.table()), "dagster/table_name": "delays"}
    schema = event.metadata["dagster/column_schema"].value
    assert isinstance(schema, dg.TableSchema)
    keys = {column.name for column in schema.columns if column.constraints.other}
    assert (schema.columns[1].name, keys) == ("flights", {"carrier"})
    lineage = event.metadata["dagster/column_lineage"].value
    assert isinstance(lineage, dg.TableColumnLineage)
    assert lineage.deps_by_column["flights"] == [dg.TableColumnDep(asset_key="delays", column_name="flights")]
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
    spec = asset.get_asset_spec()
    assert "sqlite" in spec.kinds
    place = {"dagster/uri": "sqlite:shop.db?table=delays", "dagster/table_name": "delays"}
    assert place.items() <= {label: getattr(value, "value", value) for label, value in spec.metadata.items()}.items()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"mode": "merge"}, "use 'upsert' or 'append'"),
        ({"max_epochs": 0}, "1 or more"),
        ({"schema_changes": "drop"}, "use 'add' or 'replace'"),
        ({"interval": "soon"}, "interval"),
        ({"autostart": True, "continuous": False}, "autostart keeps a continuous stream running"),
        ({"name": "delays"}, "a delivery is an asset beside its stream: give it another name"),
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


def test_a_mode_that_a_destination_does_not_have_is_refused_where_it_is_declared() -> None:
    folder = ParquetFolder("file:///shop/delays")
    with pytest.raises(InvalidPipelineError, match=r"cannot be updated.*mode='append'.*destination=parquet.*asset="):
        deliver(delays, to=folder)
    assert deliver(delays, to=folder, mode="append").key == dg.AssetKey("delays_in_parquet")
    topic = Kafka("broker:9092", "delays", key=["carrier"])
    with pytest.raises(InvalidPipelineError, match=r"remove key=.*key=carrier, asset=delays_in_kafka"):
        deliver(delays, to=topic)
    assert deliver(delays, to=topic, mode="append").get_asset_spec().metadata["dagster/table_name"].value == "delays"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Postgres("host=db password=secret", "delays"), "no URL of PostgreSQL"),
        (lambda: Postgres("postgresql://db/shop", "public.delays"), "give a schema by schema="),
        (lambda: Postgres("postgresql://db/shop", "delays", lock_timeout_s=0), "1 second or more"),
        (lambda: ParquetFolder("shop/delays"), "url"),
        (lambda: ParquetFolder("file:///shop", file_rows=0), "1 or more"),
    ],
)
def test_a_destination_that_cannot_work_is_refused_where_it_is_declared(make: Any, reason: str) -> None:
    with pytest.raises(InvalidPipelineError, match=reason) as raised:
        make()
    assert "secret" not in str(raised.value)


def test_the_place_of_a_delivery_is_shown_without_password() -> None:
    url = "postgresql://shop:secret@one:5432,two:5432/shop?sslmode=require"
    spec = deliver(delays, to=Postgres(url, "delays", "late")).get_asset_spec()
    place = {label: value.value for label, value in spec.metadata.items() if hasattr(value, "value")}
    assert place["dagster/uri"] == "postgresql://one:5432,two:5432/shop/late.delays"
    assert place["dagster/table_name"] == "shop.late.delays"
    assert "secret" not in repr(spec)


def test_a_variable_that_is_not_set_where_the_location_loads_hides_the_place_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SHOP_URL", raising=False)
    to = Postgres(dg.EnvVar("SHOP_URL"), "delays")
    asset = deliver(delays, to=to)
    assert "dagster/uri" not in asset.get_asset_spec().metadata
    with pytest.raises(OutsideCodeError, match=r"set it where the delivery runs\. variable=SHOP_URL"):
        _ = to.address
