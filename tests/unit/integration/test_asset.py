"""`@streaming_asset` as Dagster sees it, without running anything."""

import importlib.util
import inspect
from pathlib import Path
from typing import Any, get_type_hints

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt import InvalidPipelineError, Recovery, Stream, agg, streaming_asset
from dagster_ckpt.integration.asset_options import AssetOptions, OwnOptions
from dagster_ckpt.integration.declared import streaming_function
from dagster_ckpt.integration.declared.run_config import RESERVED
from dagster_ckpt.integration.declared.stream_options import stream_options
from dagster_ckpt.runtime.run_mode import Mode


class Clicks(dg.ConfigurableResource):  # type: ignore[type-arg]
    topic: str = "clicks"


class Threshold(dg.Config):
    minutes: int = 15


@streaming_asset
def departures(spark: SparkSession) -> Stream:
    """Every departure once."""
    raise NotImplementedError


def declared(**options: object) -> dg.AssetsDefinition:
    def delays(spark: SparkSession) -> Stream:
        raise NotImplementedError

    decorate: Any = streaming_asset
    asset: dg.AssetsDefinition = decorate(**options)(delays)
    return asset


def config_fields(asset: dg.AssetsDefinition) -> set[str]:
    config_type: Any = asset.op.config_schema.config_type
    return set(config_type.fields)


def test_a_bare_decorator_makes_an_ordinary_asset() -> None:
    assert isinstance(departures, dg.AssetsDefinition)
    spec = departures.get_asset_spec()
    assert departures.key == dg.AssetKey("departures")
    assert spec.description == "Every departure once."
    assert spec.kinds == {"spark", "streaming"}
    # Dagster gives the output of every asset check its default IO manager, which nothing ever uses.
    assert departures.required_resource_keys == {"spark", "checkpoints", "state", "epochs", "io_manager"}
    assert departures.op.name == "departures"
    assert departures.op.pool is None, "a slot of an op leaks with its worker: no pool that the user has not asked for"


def test_help_and_editors_show_every_option_with_its_type_and_default() -> None:
    shown = {
        name: parameter
        for name, parameter in inspect.signature(streaming_asset).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    assert {name: parameter.annotation for name, parameter in shown.items()} == get_type_hints(AssetOptions)
    own = {name: parameter.default for name, parameter in shown.items() if name in get_type_hints(OwnOptions)}
    assert stream_options(**own) == stream_options()
    assert {parameter.default for name, parameter in shown.items() if name not in own} == {None}
    assert [name for name in shown if f"`{name}`" not in (streaming_asset.__doc__ or "")] == []


def test_its_defaults_are_those_of_the_documentation() -> None:
    streaming = streaming_function.of_asset(departures)
    assert streaming is not None
    options = streaming.options
    assert (options.mode, options.shards, options.run_for_ms) == (Mode.AVAILABLE_NOW, 8, 12 * 3_600_000)
    assert (options.checkpoint_interval_ms, options.autostart, options.recovery) == (None, False, Recovery())


def test_what_dagster_knows_of_an_asset_is_passed_on() -> None:
    asset = declared(
        name="late",
        key_prefix=["flights", "eu"],
        group_name="flights",
        owners=["team:ops"],
        tags={"tier": "gold"},
        kinds={"kafka"},
        code_version="7",
        description="Delays.",
        metadata={"sla": "1 minute"},
        deps=["airports"],
        pool="slow",
        op_tags={"size": "big"},
        retry_policy=dg.RetryPolicy(max_retries=1),
        automation_condition=dg.AutomationCondition.eager(),
        mode="available_now",
    )
    spec = asset.get_asset_spec()
    assert asset.key.path == ["flights", "eu", "late"]
    assert (spec.group_name, list(spec.owners), spec.code_version) == ("flights", ["team:ops"], "7")
    assert spec.tags["tier"] == "gold"
    assert spec.kinds == {"kafka", "spark", "streaming"}
    assert spec.description == "Delays."
    assert spec.metadata["sla"] == "1 minute"
    assert [dep.asset_key for dep in spec.deps] == [dg.AssetKey("airports")]
    assert spec.automation_condition == dg.AutomationCondition.eager()
    assert asset.op.pool == "slow"
    assert asset.op.tags["size"] == "big"
    assert asset.op.retry_policy == dg.RetryPolicy(max_retries=1)


def test_the_stream_is_found_again_after_dagster_has_prefixed_its_key() -> None:
    moved = departures.with_attributes(asset_key_replacements={departures.key: dg.AssetKey(["eu", "departures"])})
    assert streaming_function.of_asset(moved) == streaming_function.of_asset(departures)


def test_every_stream_has_its_checks_also_under_a_prefix() -> None:
    moved = departures.with_attributes(asset_key_replacements={departures.key: dg.AssetKey(["eu", "departures"])})
    for asset in (departures, moved, declared(key=["遅れ", "a/b"])):
        names = [spec.name for spec in asset.check_specs]
        assert names == ["no_crash_loop", "is_live", "applies_changes", "has_recovery_sensor"]
        assert all(spec.asset_key == asset.key and not spec.blocking for spec in asset.check_specs)


def test_an_ordinary_asset_is_no_stream() -> None:
    @dg.asset
    def report() -> None: ...

    assert streaming_function.of_asset(report) is None
    assert streaming_function.of_asset(dg.AssetSpec("elsewhere")) is None


@pytest.mark.parametrize("path", [["délai.max"], ["a/b"], ["..", "etc"], ["flights", "遅れ"]], ids=str)
def test_any_asset_key_can_be_streamed(path: list[str]) -> None:
    asset = declared(key=path)
    assert asset.key.path == path
    dg.Definitions.validate_loadable(
        dg.Definitions([asset], resources=dict.fromkeys(asset.required_resource_keys, dg.FilesystemIOManager()))
    )


REFUSED = [
    {"partitions_def": dg.DailyPartitionsDefinition("2013-01-01")},
    {"backfill_policy": dg.BackfillPolicy.single_run()},
    {"io_manager_key": "io_manager"},
    {"io_manager_def": dg.FilesystemIOManager()},
    {"output_required": False},
    {"dagster_type": dg.Int},
    {"required_resource_keys": {"slack"}},
    {"check_specs": [dg.AssetCheckSpec("fresh", asset="delays")]},
]


@pytest.mark.parametrize("options", REFUSED, ids=lambda options: next(iter(options)))
def test_what_a_stream_cannot_have_is_refused_with_the_reason(options: dict[str, object]) -> None:
    [name] = options
    with pytest.raises(InvalidPipelineError, match=f"takes no {name}: .* option={name}"):
        declared(**options)


def test_an_unknown_option_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="colour"):
        declared(colour="red")


WRONG = [
    {"shards": 0},
    {"shards": -8},
    {"shards": 6},
    {"shards": 8.0},
    {"shards": True},
    {"shards": 2**13},
    {"tasks": 0},
    {"tasks": 2.0},
    {"tasks": True},
    {"checkpoint_interval": "-5s"},
    {"checkpoint_interval": "often"},
    {"run_for": "0s"},
    {"mode": "sometimes"},
    {"autostart": True},
    {"recovery": {"max_attempts": 3}},
    {"run_tags": {"dagster/priority": "3"}},
    {"run_tags": {"dagster_ckpt/may_fence": "3"}},
    {"mode": "continuous", "automation_condition": dg.AutomationCondition.eager()},
    {"key": "a", "name": "b"},
    {"sources": ["departures_topic"]},
    {"sources": dg.AssetKey("departures_topic")},
]


@pytest.mark.parametrize("options", WRONG, ids=str)
def test_an_option_that_makes_no_sense_is_refused_by_name_and_asset(options: dict[str, object]) -> None:
    with pytest.raises(InvalidPipelineError, match=next(iter(reversed(options)))) as raised:
        declared(**options)
    if "key" not in options:
        assert str(raised.value).endswith("asset=delays")


def test_a_function_may_ask_for_context_spark_resources_and_config_in_any_order() -> None:
    @streaming_asset(mode="continuous")
    def everything(
        clicks: Clicks,
        config: Threshold,
        anything: dg.ResourceParam[object],
        spark: SparkSession,
        context: dg.AssetExecutionContext,
    ) -> Stream:
        raise NotImplementedError

    assert everything.required_resource_keys == {
        *departures.required_resource_keys,
        "clicks",
        "anything",
    }
    assert config_fields(everything) == {*RESERVED, "minutes"}
    streaming = streaming_function.of_asset(everything)
    assert streaming is not None
    assert streaming.parameters.context == "context"
    assert streaming.parameters.config_type is Threshold


def test_a_config_schema_is_taken_beside_our_own_fields() -> None:
    asset = declared(config_schema={"minutes": dg.Field(int, default_value=15)})
    assert config_fields(asset) == {*RESERVED, "minutes"}


def follows(delays: Stream, log: DataFrame) -> Stream:
    raise NotImplementedError


@pytest.mark.reads_streams
def test_an_upstream_stream_is_a_parameter_and_an_edge_of_the_graph() -> None:
    asset = streaming_asset(ins={"log": dg.AssetIn(key=["raw", "delays"])})(follows)
    assert dict(asset.keys_by_input_name) == {
        "delays": dg.AssetKey("delays"),
        "log": dg.AssetKey(["raw", "delays"]),
    }
    assert {dep.asset_key for dep in asset.get_asset_spec().deps} == set(asset.keys_by_input_name.values())


@pytest.mark.reads_streams
def test_a_prefix_given_later_reaches_the_upstreams() -> None:
    renamed = streaming_asset(follows).with_attributes(
        asset_key_replacements={dg.AssetKey("delays"): dg.AssetKey(["x", "delays"])}
    )
    assert renamed.keys_by_input_name["delays"] == dg.AssetKey(["x", "delays"])


@pytest.mark.reads_streams
@pytest.mark.parametrize(
    ("ins", "says"),
    [
        ({"delay": dg.AssetIn("delays")}, r"Did you mean 'delays'\?.*ins=delay"),
        ({"delays": dg.AssetIn("delays", metadata={"epoch": 3})}, "only a key.*ins=delays"),
        ({"delays": dg.AssetIn("delays", input_manager_key="x")}, "only a key.*ins=delays"),
    ],
)
def test_the_asset_in_of_an_upstream_can_have_only_a_key(ins: dict[str, dg.AssetIn], says: str) -> None:
    with pytest.raises(InvalidPipelineError, match=says):
        streaming_asset(ins=ins)(follows)


def joins(spark: SparkSession, airlines: pd.DataFrame, rates: pa.Table, log: DataFrame) -> Stream:
    raise NotImplementedError


@pytest.mark.reads_streams
def test_an_ordinary_asset_is_an_input_that_its_io_manager_loads() -> None:
    ins = {
        "rates": dg.AssetIn(key=["eu", "rates"], input_manager_key="files"),
        "log": dg.AssetIn(metadata={"static": True}),
    }
    asset = streaming_asset(ins=ins)(joins)
    assert dict(asset.keys_by_input_name) == {
        "airlines": dg.AssetKey("airlines"),
        "rates": dg.AssetKey(["eu", "rates"]),
        "log": dg.AssetKey("log"),
    }
    types = {name: asset.op.input_def_named(name).dagster_type.typing_type for name in asset.keys_by_input_name}
    assert types == {"airlines": pd.DataFrame, "rates": pa.Table, "log": DataFrame}
    assert "files" in asset.required_resource_keys
    assert streaming_asset(joins).op.input_def_named("log").dagster_type.is_nothing, (
        "a change log is read by the stream"
    )


def test_a_number_is_an_input_only_if_it_is_named() -> None:
    asset = streaming_asset(ins={"limit": dg.AssetIn("limits")})(wants_number)
    assert dict(asset.keys_by_input_name) == {"limit": dg.AssetKey("limits")}


class Greedy(dg.Config):
    mode: str = "mine"


def wants_unknown(departures) -> Stream: ...  # type: ignore[no-untyped-def, empty-body]
def wants_number(limit: int) -> Stream: ...  # type: ignore[empty-body]
def wants_all(**things: object) -> Stream: ...  # type: ignore[empty-body]
def wants_some(*things: object) -> Stream: ...  # type: ignore[empty-body]
def wants_two(a: Threshold, b: Threshold) -> Stream: ...  # type: ignore[empty-body]
def wants_reserved(config: Greedy) -> Stream: ...  # type: ignore[empty-body]
def wants_our_key(state: Clicks) -> Stream: ...  # type: ignore[empty-body]
def wants_our_name(checkpoints: pd.DataFrame) -> Stream: ...  # type: ignore[empty-body]
def wants_context(ctx: dg.AssetExecutionContext) -> Stream: ...  # type: ignore[empty-body]
def wants_ghost(spark: "Ghost") -> Stream: ...  # type: ignore[name-defined, empty-body]  # noqa: F821


@pytest.mark.parametrize(
    "function",
    [
        wants_unknown,
        wants_number,
        wants_all,
        wants_some,
        wants_two,
        wants_reserved,
        wants_our_key,
        wants_our_name,
        wants_context,
        wants_ghost,
    ],
)
def test_an_unsupported_parameter_is_refused(function: object) -> None:
    with pytest.raises(InvalidPipelineError, match=f"asset={function.__name__}$"):  # type: ignore[attr-defined]
        streaming_asset(function)  # type: ignore[call-overload]


def keyless(spark: SparkSession) -> Stream:
    readings = Stream(spark.readStream.parquet("readings"))
    return readings.key_by(expire_after="1 day").aggregate(n=agg.count())


def keyed(spark: SparkSession) -> Stream:
    keys = ["a", "b"]
    return Stream(spark.readStream.parquet("readings")).key_by(*keys).aggregate(n=agg.count())


def test_key_by_without_a_column_is_refused_when_decorated() -> None:
    line = inspect.getsourcelines(keyless)[1] + 2
    with pytest.raises(InvalidPipelineError, match=f"at least one column.*test_asset.py, line={line}, asset=keyless"):
        streaming_asset(keyless)
    assert streaming_asset(keyed).key == dg.AssetKey("keyed")


def test_a_function_without_source_is_checked_when_it_is_called() -> None:
    made: dict[str, Any] = {"SparkSession": SparkSession, "Stream": Stream, "__name__": "made"}
    exec("def made_up(spark: SparkSession) -> Stream:\n    return Stream(spark).key_by()", made)
    assert streaming_asset(made["made_up"]).key == dg.AssetKey("made_up")


def test_a_function_that_yields_is_refused() -> None:
    def yields(spark: SparkSession):  # type: ignore[no-untyped-def]
        yield 1

    with pytest.raises(InvalidPipelineError, match="returns its Stream"):
        streaming_asset(yields)


@pytest.mark.parametrize("moved", [{"file:/old": ""}, {"": "file:/new"}, {"file:/old": 3}, ["file:/old"]])
def test_a_move_names_an_old_and_a_new_address(moved: Any) -> None:
    with pytest.raises(InvalidPipelineError, match="maps the old address of a source's folder"):
        stream_options(moved=moved)


def test_moves_are_given_to_the_stream() -> None:
    assert stream_options(moved={"file:/old": "file:/new"}).moved == {"file:/old": "file:/new"}
    assert stream_options().moved == {}


@pytest.mark.parametrize("renamed", [{"carrier": ""}, {"": "airline"}, {"carrier": 3}, ["carrier"]])
def test_a_rename_names_an_old_and_a_new_column(renamed: Any) -> None:
    with pytest.raises(InvalidPipelineError, match="maps the old name of a column to the new one"):
        stream_options(renamed=renamed)


@pytest.mark.parametrize("renamed", [{"a": "c", "b": "c"}, {"a": "b", "b": "a"}, {"a": "b", "b": "c"}, {"a": "a"}])
def test_a_name_is_once_in_renamed(renamed: dict[str, str]) -> None:
    with pytest.raises(InvalidPipelineError, match=r"each name is once in renamed.*names="):
        stream_options(renamed=renamed)


def test_renames_are_given_to_the_stream() -> None:
    assert stream_options(renamed={"carrier": "airline"}).renamed == {"carrier": "airline"}
    assert stream_options().renamed == {}


def version_of(asset: dg.AssetsDefinition) -> str | None:
    [spec] = asset.specs
    version: str | None = spec.code_version
    return version


def test_a_changed_function_is_another_code_version_and_a_users_own_version_stays(tmp_path: Path) -> None:
    def from_file(text: str) -> dg.AssetsDefinition:
        file = tmp_path / f"{len(list(tmp_path.iterdir()))}.py"
        header = "from dagster_ckpt import Stream, streaming_asset\nfrom pyspark.sql import SparkSession\n\n\n"
        file.write_text(header + text)
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        asset: dg.AssetsDefinition = module.delays
        return asset

    query = "@streaming_asset({})\ndef delays(spark: SparkSession) -> Stream:\n    return Stream({})\n"
    first, same, other = (from_file(query.format("", what)) for what in ("spark.one", "spark.one", "spark.two"))
    assert version_of(first) is not None
    assert version_of(first) == version_of(same) != version_of(other)
    own = 'code_version="7"'
    assert version_of(from_file(query.format(own, "spark.one"))) == "7"
