"""A delivery in YAML is the asset that `deliver` makes, with its checks, job, sensor and resource."""

import inspect
from dataclasses import fields
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from jsonschema import Draft202012Validator

from dagster_ckpt import DeliveryComponent, InvalidPipelineError, Recovery, deliver, destinations
from dagster_ckpt.destinations import Kafka, ParquetFolder, Postgres
from dagster_ckpt.integration.component.destinations import BY_NAME
from dagster_ckpt.integration.declared.streaming_function import StreamingFunction, of_asset
from dagster_ckpt.integration.recovery.sensor_check import is_watched
from tests.unit.integration.component.defs_folder import STORE, WARNINGS_OF_DAGSTER, loaded

pytestmark = WARNINGS_OF_DAGSTER

DELAYS = f"""type: dagster_ckpt.StreamingComponent
attributes:
  asset: {{key: delays}}
  source: {{format: rate}}
  steps: [{{aggregate: {{n: count()}}}}]
{STORE}"""
IN_SHOP = """type: dagster_ckpt.DeliveryComponent
attributes:
  stream: delays
  name: delays_in_shop
  to: {postgres: {url: "{{ env.SHOP_URL }}", table: delays, lock_timeout_s: "{{ env('PATIENCE', '7') }}"}}
  interval: 1s
  continuous: true
"""
FOLDER = {"parquet_folder": {"url": "file:///shop/delays"}}


def asset_of(**attributes: Any) -> dg.AssetsDefinition:
    component = DeliveryComponent.from_attributes_dict(attributes={"stream": "delays", **attributes})
    [asset] = [
        each for each in dg.component_defs(component=component).assets or () if isinstance(each, dg.AssetsDefinition)
    ]
    return asset


def streaming_of(asset: dg.AssetsDefinition) -> StreamingFunction:
    found = of_asset(asset)
    assert found is not None
    return found


def test_a_delivery_beside_its_stream_has_a_job_and_a_sensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_URL", "postgresql://shop:secret@db/shop")
    with loaded(tmp_path, {"delays/defs.yaml": f"{DELAYS}---\n{IN_SHOP}"}) as defs:
        repository = defs.get_repository_def()
        key = dg.AssetKey("delays_in_shop")
        assert repository.asset_graph.get(key).parent_keys == {dg.AssetKey("delays")}
        assert is_watched(key, repository.sensor_defs)
        assert "delays_in_shop_job" in {job.name for job in repository.get_all_jobs()}
        asset = defs.get_assets_def(key)
        to = Postgres("postgresql://shop:secret@db/shop", "delays", lock_timeout_s=7)
        assert streaming_of(asset).delivery == streaming_of(deliver("delays", to=to, name="x")).delivery
        assert asset.get_asset_spec().metadata["dagster/uri"].value == "postgresql://db/shop/public.delays"


def test_each_option_of_deliver_is_an_attribute() -> None:
    given: dict[str, Any] = {
        "mode": "append",
        "interval": "5s",
        "max_epochs": 7,
        "schema_changes": "replace",
        "continuous": True,
        "autostart": True,
        "run_for": "1 hour",
        "run_tags": {"team": "shop"},
        "description": "Each delay.",
        "group_name": "shop",
        "tags": {"tier": "gold"},
        "owners": ["team:shop"],
        "kinds": ["s3"],
    }
    named = {"stream", "to", "name", "key", "recovery"}
    assert {*given, *named} == set(inspect.signature(deliver).parameters)
    assert {*given, *named, "checkpoints"} == set(DeliveryComponent.model_fields)
    asset = asset_of(to=FOLDER, key="shop/late", recovery={"max_attempts": 2}, **given)
    folder = ParquetFolder("file:///shop/delays")
    expected = deliver(
        "delays", to=folder, key=["shop", "late"], recovery=Recovery(max_attempts=2), **{**given, "kinds": {"s3"}}
    )
    assert streaming_of(asset) == streaming_of(expected)
    assert asset.get_asset_spec() == expected.get_asset_spec()


def test_what_is_left_out_is_as_in_python() -> None:
    assert streaming_of(asset_of(to=FOLDER, mode="append")) == streaming_of(
        deliver("delays", to=ParquetFolder("file:///shop/delays"), mode="append")
    )
    component = DeliveryComponent.from_attributes_dict(attributes={"stream": "delays", "to": FOLDER, "mode": "append"})
    options = {name: getattr(component, name) for name in DeliveryComponent.model_fields if name != "checkpoints"}
    expected = streaming_of(deliver("delays", to=ParquetFolder("file:///shop/delays"), mode="append"))
    assert streaming_of(deliver(**options)) == expected


def test_each_destination_is_given_by_its_fields() -> None:
    assert {kind.__name__ for kind in BY_NAME.values()} == set(destinations.__all__)
    validator = Draft202012Validator(DeliveryComponent.model().model_json_schema())
    for name, kind in BY_NAME.items():
        values = {each.name: "file:///shop/delays" for each in fields(kind) if each.default is each.default_factory}
        assert list(validator.iter_errors({"stream": "delays", "to": {name: values}})) == []
        [error] = validator.iter_errors({"stream": "delays", "to": {name: {**values, "tabel": "delays"}}})
        assert (list(error.path), "'tabel' was unexpected" in error.message) == (["to", name], True)
    kafka = {"bootstrap_servers": "broker:9092", "topic": "delays", "config": {"sasl.password": "secret"}}
    delivery = streaming_of(asset_of(to={"kafka": kafka})).delivery
    assert delivery is not None
    assert delivery.destination == Kafka("broker:9092", "delays", config={"sasl.password": "secret"})


def test_a_text_of_the_component_has_no_secret() -> None:
    to = {"postgres": {"url": "postgresql://shop:secret@db/shop", "table": "delays"}}
    component = DeliveryComponent.from_attributes_dict(attributes={"stream": "delays", "to": to})
    assert component.to.url == "postgresql://shop:secret@db/shop"
    assert "secret" not in repr(component)


OWN = """
    from dagster_ckpt.destinations import ParquetFolder

    shop = ParquetFolder("file:///shop/delays")
    other = "file:///shop/delays"
"""


def test_a_destination_of_the_project_is_named_by_its_path(tmp_path: Path) -> None:
    own = "type: dagster_ckpt.DeliveryComponent\nattributes: {stream: delays, to: .own.shop, mode: append}\n"
    files = {"delays/defs.yaml": DELAYS, "shop/own.py": OWN}
    with loaded(tmp_path / "project", {**files, "shop/defs.yaml": own}) as defs:
        delivery = streaming_of(defs.get_assets_def(dg.AssetKey("delays_in_parquet"))).delivery
        assert delivery is not None
        assert delivery.destination == ParquetFolder("file:///shop/delays")
    wrong = {**files, "shop/defs.yaml": own.replace("shop,", "other,")}
    with (
        pytest.raises(Exception, match="shop") as raised,
        loaded(tmp_path / "wrong", wrong, "a_project_with_another_object"),
    ):
        pass
    assert "to names a destination" in str(raised.value.__cause__ or raised.value)
    assert "to=.own.other, found=str" in str(raised.value.__cause__ or raised.value)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"to": {}}, r"goes to one destination: give one of .*parquet_folder.*given=\[\]"),
        (
            {"to": {**FOLDER, "kafka": {"bootstrap_servers": "broker:9092", "topic": "delays"}}},
            r"given=\['kafka', 'parquet_folder'\]",
        ),
        ({"to": FOLDER}, "files cannot be updated.*asset=delays_in_parquet"),
        ({"to": FOLDER, "mode": "append", "autostart": True}, "autostart keeps a continuous stream running"),
        ({"to": FOLDER, "mode": "append", "name": "a", "key": "b"}, "a name or a key"),
        ({"to": {"postgres": {"url": "host=db", "table": "delays"}}}, "no URL of PostgreSQL"),
    ],
)
def test_attributes_that_cannot_work_are_refused_when_the_project_loads(given: dict[str, Any], error: str) -> None:
    with pytest.raises(Exception, match=error) as raised:
        asset_of(**given)
    causes = [raised.value, raised.value.__cause__, raised.value.__context__]
    assert any(isinstance(each, InvalidPipelineError) for each in causes)
