"""A stream in YAML is the streaming asset that Python declares, with its checks, job, sensor and resources."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster_pyspark import LazyPySparkResource

from dagster_ckpt import InvalidPipelineError, Recovery, Stream, StreamingComponent
from dagster_ckpt.integration.asset_options import OwnOptions
from dagster_ckpt.integration.component.shared_resources import Checkpoints, State
from dagster_ckpt.integration.component.streaming_component import RecoveryAttributes
from dagster_ckpt.integration.declared.resources import CheckpointCoordinatorResource, LsmStateBackendResource
from dagster_ckpt.integration.declared.stream_options import stream_options
from dagster_ckpt.integration.declared.streaming_function import of_asset
from dagster_ckpt.integration.recovery.sensor_check import is_watched
from tests.unit.integration.component.defs_folder import STORE, WARNINGS_OF_DAGSTER, loaded

pytestmark = WARNINGS_OF_DAGSTER

TYPE = "type: dagster_ckpt.StreamingComponent\nattributes:\n"
DELAYS = f"""{TYPE}
  asset: {{key: delay_by_carrier}}
  source: {{format: rate}}
  steps: [{{aggregate: {{n: count()}}}}]
"""
LATE = f"""{TYPE}
  asset: {{key: shop/late}}
  upstream: delay_by_carrier
  steps: [{{where: n > 1}}]
"""
BOTH = {"delays/defs.yaml": DELAYS + STORE, "late/defs.yaml": LATE + STORE}


def asset_of(attributes: Mapping[str, Any]) -> dg.AssetsDefinition:
    component = StreamingComponent.from_attributes_dict(attributes=dict(attributes))
    return dg.component_defs(component=component).get_assets_def(
        dg.AssetKey.from_user_string(attributes["asset"]["key"])
    )


def attributes(**more: Any) -> dict[str, Any]:
    return {"asset": {"key": "a"}, "source": {"format": "rate"}, **more}


def test_components_of_a_project_share_its_resources_and_each_has_a_job_and_a_sensor(tmp_path: Path) -> None:
    with loaded(tmp_path, BOTH) as defs:
        repository = defs.get_repository_def()
        assert {sensor.name for sensor in repository.sensor_defs} == {
            "streaming_recovery",
            "shop__late_streaming_recovery",
        }
        assert {"delay_by_carrier_job", "shop__late_job"} <= {job.name for job in repository.get_all_jobs()}
        for key in (dg.AssetKey("delay_by_carrier"), dg.AssetKey(["shop", "late"])):
            assert is_watched(key, repository.sensor_defs)
        [late] = [key for key in repository.asset_graph.get_all_asset_keys() if key.path[-1] == "late"]
        assert repository.asset_graph.get(late).parent_keys == {dg.AssetKey("delay_by_carrier")}
        assert isinstance((defs.resources or {})["checkpoints"], CheckpointCoordinatorResource)
        assert (defs.resources or {})["spark"].spark_config == {"spark.master": "local[1]"}


def test_several_streams_in_one_file_and_the_projects_resources(tmp_path: Path) -> None:
    resources = """
        import dagster as dg
        from dagster_pyspark import LazyPySparkResource
        from dagster_ckpt import CheckpointCoordinatorResource

        defs = dg.Definitions(resources={
            "checkpoints": CheckpointCoordinatorResource(url="file:///nowhere/checkpoints"),
            "spark": LazyPySparkResource(spark_config={}),
        })
    """
    with loaded(tmp_path, {"streams/defs.yaml": f"{DELAYS}---\n{LATE}", "resources.py": resources}) as defs:
        keys = {key.to_user_string() for key in defs.get_repository_def().asset_graph.executable_asset_keys}
        assert keys == {"delay_by_carrier", "shop/late"}


def test_post_processing_applies_to_a_stream(tmp_path: Path) -> None:
    more = "\npost_processing:\n  assets:\n    - attributes: {owners: ['team:shop'], code_version: v2}\n"
    with loaded(tmp_path, {"delays/defs.yaml": DELAYS + STORE + more}) as defs:
        [spec] = defs.resolve_all_asset_specs()
        assert (spec.owners, spec.code_version) == (["team:shop"], "v2")
        asset = defs.get_assets_def("delay_by_carrier")
        assert of_asset(asset) is not None


def test_a_second_store_in_a_project_is_refused(tmp_path: Path) -> None:
    other = {**BOTH, "late/defs.yaml": LATE + STORE.replace("nowhere", "elsewhere")}
    with pytest.raises(Exception, match="late") as raised, loaded(tmp_path, other):
        pass
    shown = str(raised.value.__cause__ or raised.value)
    assert "share the resource 'checkpoints': give it equal attributes in each component" in shown
    assert "component=a_project_with_components/defs/late, other=a_project_with_components/defs/delays" in shown


def test_a_project_that_is_loaded_again_may_have_another_store(tmp_path: Path) -> None:
    for store in ("nowhere", "elsewhere"):
        files = {file: text.replace("nowhere", store) for file, text in BOTH.items()}
        with loaded(tmp_path / store, files) as defs:
            assert (defs.resources or {})["checkpoints"].url == f"file:///{store}/checkpoints"


def test_each_option_of_a_streaming_asset_is_an_attribute() -> None:
    given = {
        "mode": "continuous",
        "checkpoint_interval": "2s",
        "autostart": True,
        "run_for": "1 hour",
        "shards": 16,
        "tasks": 3,
        "max_epochs_per_batch": 7,
        "moved": {"/old": "/new"},
        "renamed": {"carrier": "airline"},
        "primary_key": ["airline", "day"],
        "run_tags": {"team": "shop"},
    }
    recovery = {"max_attempts": 2, "same_error_max": 2, "backoff": "1s", "backoff_max": "1min", "lease_timeout": "9s"}
    options = {*given, "recovery", "sources"}
    assert options == set(OwnOptions.__annotations__), "give the component the new option, and try it here"
    asset = asset_of(attributes(**given, recovery=recovery, sources=[{"key": "topic", "kinds": ["kafka"]}]))
    streaming = of_asset(asset)
    assert streaming is not None
    topic = dg.AssetSpec("topic", kinds={"kafka"})
    assert streaming.options == stream_options(**given, recovery=Recovery(**recovery), sources=[topic])  # type: ignore[arg-type]
    assert asset.asset_deps[dg.AssetKey("a")] == {topic.key}


def test_what_is_left_out_is_as_in_python() -> None:
    streaming = of_asset(asset_of(attributes()))
    assert streaming is not None
    assert streaming.options == stream_options()
    component = StreamingComponent.from_attributes_dict(attributes=attributes())
    shown = {
        name: getattr(component, name) for name in OwnOptions.__annotations__ if name not in {"recovery", "sources"}
    }
    assert stream_options(**shown) == stream_options()
    assert RecoveryAttributes().model_dump() == asdict(Recovery())


def test_the_asset_is_as_its_attributes_say() -> None:
    described = {
        "key": "shop/delays",
        "description": "How late each carrier leaves.",
        "group_name": "delays",
        "owners": ["team:shop"],
        "tags": {"tier": "gold"},
        "kinds": ["kafka"],
        "deps": ["departures"],
        "code_version": "v3",
        "metadata": {"rows": 5},
    }
    asset = asset_of({**attributes(pool="spark", op_tags={"cpus": 2}), "asset": described})
    [spec] = asset.specs
    assert (spec.key.path, spec.description, spec.group_name) == (
        ["shop", "delays"],
        "How late each carrier leaves.",
        "delays",
    )
    assert spec.kinds == {"kafka", "spark", "streaming"}
    assert (spec.owners, spec.tags["tier"], spec.code_version, spec.metadata["rows"]) == (
        ["team:shop"],
        "gold",
        "v3",
        5,
    )
    assert asset.asset_deps[spec.key] == {dg.AssetKey("departures")}
    assert (asset.op.pool, asset.op.tags["cpus"]) == ("spark", "2")


def test_a_stream_without_a_description_has_none() -> None:
    assert asset_of(attributes()).specs_by_key[dg.AssetKey("a")].description is None


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"source": None}, r"one of source, upstream and function.*given=\[\], asset=a"),
        ({"upstream": "b"}, r"one of source, upstream and function.*given=\['source', 'upstream'\]"),
        ({"ins": {"b": "c"}}, r"ins names the parameters of a function.*ins=\['b'\]"),
        ({"source": None, "function": "json.dumps", "steps": [{"where": "a"}]}, "move the steps into the function"),
        ({"source": {"format": "csv", "path": "/data"}}, "files need a path and a schema.*path=/data, schema=None"),
        ({"source": {"format": "parquet", "schema": "a int"}}, "files need a path and a schema"),
        (
            {"source": {"format": "json", "path": "data/in", "schema": "a int"}},
            r"relative path.*write \{\{ context.project_root \}\}/data/in.*path=data/in, asset=a",
        ),
        ({"steps": [{"key_by": ["a"]}]}, "keys alone do nothing.*asset=a"),
        ({"autostart": True}, "autostart keeps a continuous stream running.*asset=a"),
        ({"shards": 3}, "shards must be a power of two.*asset=a"),
        ({"asset": {"key": "a", "skippable": True}}, "a streaming asset takes no output_required"),
        (
            {"asset": {"key": "a", "partitions_def": {"type": "static", "partition_keys": ["x"]}}},
            "a streaming asset takes no partitions_def: a stream needs no partitions",
        ),
    ],
)
def test_attributes_that_cannot_work_are_refused_when_the_project_loads(given: dict[str, Any], error: str) -> None:
    wanted = {name: value for name, value in {**attributes(), **given}.items() if value is not None}
    with pytest.raises(InvalidPipelineError, match=error):
        asset_of(wanted)


def test_an_asset_is_no_function() -> None:
    component = StreamingComponent(asset=dg.AssetSpec("b"), function=asset_of(attributes()))
    with pytest.raises(InvalidPipelineError, match=r"without @streaming_asset: the component makes the asset.*asset=b"):
        dg.component_defs(component=component)
    with pytest.raises(ValueError, match="Input should be callable"):
        asset_of({"asset": {"key": "a"}, "function": "json.__name__"})


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="Input should be 'available_now' or 'continuous'"):
        asset_of(attributes(mode="continous"))


STREAMS = """
    import pandas as pd
    from pyspark.sql import SparkSession
    from dagster_ckpt import Stream

    def late(spark: SparkSession, delays: Stream, airlines: pd.DataFrame) -> Stream:
        '''The late ones.'''
        return delays
"""

AIRLINES = """
    import dagster as dg

    @dg.asset
    def airlines() -> None: ...
"""


def test_a_function_beside_the_file_declares_what_steps_cannot(tmp_path: Path) -> None:
    own = f"{TYPE}  asset: {{key: late}}\n  function: .streams.late\n  ins: {{delays: delay_by_carrier}}\n"
    with loaded(
        tmp_path,
        {
            "delays/defs.yaml": DELAYS + STORE,
            "late/defs.yaml": own,
            "late/streams.py": STREAMS,
            "airlines.py": AIRLINES,
        },
    ) as defs:
        node = defs.get_repository_def().asset_graph.get(dg.AssetKey("late"))
        assert node.parent_keys == {dg.AssetKey("delay_by_carrier"), dg.AssetKey("airlines")}
        assert node.description == "The late ones."


CHECKS = """
    import dagster as dg

    @dg.asset_check(asset="delay_by_carrier")
    def plain() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    @dg.asset_check(asset="delay_by_carrier")
    def often() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    @dg.asset_check(asset="delay_by_carrier")
    def often_too() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    @dg.asset_check(asset="delay_by_carrier")
    def daily() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)
"""


def test_checks_run_by_epochs_and_schedules(tmp_path: Path) -> None:
    wanted = """
  mode: continuous
  checks:
    - .checks.plain
    - {check: .checks.often, every_epochs: 3}
    - {check: .checks.often_too, every_epochs: 3}
    - {check: .checks.daily, cron: 0 6 * * *}
"""
    with loaded(tmp_path, {"delays/defs.yaml": DELAYS + wanted + STORE, "delays/checks.py": CHECKS}) as defs:
        repository = defs.get_repository_def()
        descriptions = {sensor.name: sensor.description or "" for sensor in repository.sensor_defs}
        assert "after every 10 epochs" in descriptions["delay_by_carrier_checks_sensor"]
        assert "after every 3 epochs" in descriptions["delay_by_carrier_checks_2_sensor"]
        [schedule] = repository.schedule_defs
        assert (schedule.cron_schedule, schedule.job_name) == ("0 6 * * *", "delay_by_carrier_checks_3_job")
        both = repository.get_job("delay_by_carrier_checks_2_job").asset_layer.asset_graph.asset_check_keys
        assert {key.name for key in both} >= {"often", "often_too"}


def test_a_check_that_is_none_is_refused() -> None:
    with pytest.raises(Exception, match=r"checks names asset checks.*check=json.dumps, found=function"):
        asset_of(attributes(checks=["json.dumps"]))


def test_resources_have_the_attributes_of_their_classes() -> None:
    for annotated, resource in ((Checkpoints, CheckpointCoordinatorResource), (State, LsmStateBackendResource)):
        [_, resolver] = [annotated, annotated.__metadata__[0]]
        fields = resolver.model_field_type.model_fields
        assert set(fields) == set(resource.model_fields)
        own = {name: field.description for name, field in resource.model_fields.items() if field.description}
        assert {name: fields[name].description for name in own} == own


def test_resources_take_their_attributes_and_environment_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELAYS_BUCKET", "delays")
    monkeypatch.setenv("DELAYS_KEY", "12345")
    wanted = """
  checkpoints:
    url: "s3://{{ env.DELAYS_BUCKET }}/checkpoints"
    retained: "{{ env('DELAYS_RETAINED', '7') }}"
    storage_options: {key: "{{ env.DELAYS_KEY }}", use_ssl: true}
  state: {memory_limit: 1 GiB}
  spark: {spark.master: "local[2]", spark.sql.shuffle.partitions: 4}
"""
    with loaded(tmp_path, {"delays/defs.yaml": DELAYS + wanted}) as defs:
        resources = defs.resources or {}
        checkpoints, state, spark = (resources[key] for key in ("checkpoints", "state", "spark"))
        assert (checkpoints.url, checkpoints.retained) == ("s3://delays/checkpoints", 7)
        assert checkpoints.storage_options == {"key": "12345", "use_ssl": True}
        assert (state.memory_limit, isinstance(spark, LazyPySparkResource)) == ("1 GiB", True)
        assert spark.spark_config == {"spark.master": "local[2]", "spark.sql.shuffle.partitions": 4}


def test_a_components_text_has_no_secret_of_its_resources_and_source() -> None:
    secret = "a-secret-of-the-source"
    component = StreamingComponent.from_attributes_dict(
        attributes=attributes(
            source={"format": "kafka", "options": {"kafka.sasl.jaas.config": secret}},
            spark={"spark.hadoop.fs.s3a.secret.key": secret},
            checkpoints={"url": "s3://bucket/folder", "storage_options": {"secret": secret}},
        )
    )
    assert component.source is not None
    assert component.source.options["kafka.sasl.jaas.config"] == secret
    assert secret not in repr(component)


def test_in_python_a_component_is_made_of_the_same_attributes() -> None:
    def delays() -> Stream:
        raise NotImplementedError

    component = StreamingComponent(asset=dg.AssetSpec("a"), function=delays, mode="continuous", autostart=True)
    asset = dg.component_defs(component=component).get_assets_def("a")
    streaming = of_asset(asset)
    assert streaming is not None
    assert (streaming.function, streaming.options.autostart) == (delays, True)
