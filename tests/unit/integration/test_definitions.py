"""`build_streaming_definitions` and the resources."""

from typing import Any

import dagster as dg
import pytest
from dagster_pyspark import LazyPySparkResource, PySparkResource
from pyspark.sql import SparkSession

from dagster_ckpt import (
    CheckpointCoordinatorResource,
    EpochIOManager,
    InvalidPipelineError,
    LsmStateBackendResource,
    Stream,
    build_streaming_definitions,
    streaming_asset,
)
from dagster_ckpt.integration.declared.resources import spark_session


def a_stream(name: str, **options: Any) -> dg.AssetsDefinition:
    def never_called(spark: SparkSession) -> Stream:
        raise NotImplementedError

    decorate: Any = streaming_asset
    asset: dg.AssetsDefinition = decorate(name=name, **options)(never_called)
    return asset


def checkpoints(**options: Any) -> CheckpointCoordinatorResource:
    return CheckpointCoordinatorResource(**{"url": "file:///tmp/nowhere", **options})


SPARK = LazyPySparkResource(spark_config={"spark.master": "local[1]"})


def test_everything_is_wired_and_the_locations_executor_is_left_alone() -> None:
    defs = build_streaming_definitions(
        [a_stream("a"), a_stream("b", run_tags={"team": "ops"})], checkpoints=checkpoints(), spark=SPARK
    )
    dg.Definitions.validate_loadable(defs)
    assert defs.executor is None
    assert set(defs.resources or {}) == {"checkpoints", "spark", "epochs"}
    assert [sensor.name for sensor in defs.sensors or []] == ["streaming_recovery"]
    checks = defs.resolve_asset_graph().asset_check_keys
    names = ("no_crash_loop", "is_live", "applies_changes", "has_recovery_sensor")
    assert checks == {dg.AssetCheckKey(dg.AssetKey(asset), name) for asset in ("a", "b") for name in names}
    job = defs.resolve_job_def("b_job")
    assert job.executor_def == dg.in_process_executor
    assert job.tags["team"] == "ops"
    assert defs.resolve_implicit_global_asset_job_def().executor_def == dg.multi_or_in_process_executor


def test_an_assets_page_has_the_address_of_its_folder_in_the_store() -> None:
    streams = [a_stream("a", key_prefix="eu"), a_stream("b", metadata={"dagster/uri": "mine"})]
    defs = build_streaming_definitions(streams, checkpoints=checkpoints(), spark=SPARK)
    uris = {
        key.path[-1]: defs.resolve_assets_def(key).get_asset_spec(key).metadata["dagster/uri"]
        for key in (streams[0].key, streams[1].key)
    }
    assert uris == {"a": "file:///tmp/nowhere/eu.a", "b": "mine"}


def test_an_asset_declared_for_two_stores_has_the_address_of_each_and_stays_one_object_for_the_first() -> None:
    stream = a_stream("a")
    here, there = (checkpoints(url=f"file:///tmp/{name}") for name in ("here", "there"))
    parts = [build_streaming_definitions([stream], checkpoints=each, spark=SPARK) for each in (here, there, here)]
    uris = [part.resolve_assets_def("a").get_asset_spec().metadata["dagster/uri"] for part in parts]
    assert uris == ["file:///tmp/here/a", "file:///tmp/there/a", "file:///tmp/here/a"]
    assert [stream in (part.assets or ()) for part in parts] == [True, False, True]


def test_an_address_from_an_environment_variable_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE", "file:///tmp/nowhere")
    defs = build_streaming_definitions([a_stream("a")], checkpoints=checkpoints(url=dg.EnvVar("STORE")), spark=SPARK)
    assert "dagster/uri" not in defs.resolve_assets_def("a").get_asset_spec().metadata


def a_topic() -> dg.AssetSpec:
    return dg.AssetSpec("departures_topic", kinds={"kafka"}, metadata={"dagster/uri": "kafka://broker/departures"})


def test_sources_are_external_assets_upstream_of_the_streams_that_read_them() -> None:
    shared = checkpoints()
    first = build_streaming_definitions([a_stream("a", sources=[a_topic()], deps=["airports"])], checkpoints=shared)
    second = build_streaming_definitions([a_stream("b", sources=[a_topic()])], name="eu")
    defs = dg.Definitions.merge(first, second, dg.Definitions(resources={"spark": SPARK}))
    dg.Definitions.validate_loadable(defs)
    graph = defs.resolve_asset_graph()
    topic = graph.get(dg.AssetKey("departures_topic"))
    assert topic.is_external
    assert topic.child_keys == {dg.AssetKey("a"), dg.AssetKey("b")}
    assert topic.metadata["dagster/uri"] == "kafka://broker/departures"
    assert topic.tags["dagster/kind/kafka"] == ""
    assert graph.get(dg.AssetKey("a")).parent_keys == {dg.AssetKey("airports"), topic.key}


def test_assets_that_dagster_spells_alike_are_at_home_in_one_location() -> None:
    flat, nested = a_stream("a__b"), a_stream("b", key_prefix="a")
    defs = build_streaming_definitions([flat, nested], checkpoints=checkpoints(), spark=SPARK)
    dg.Definitions.validate_loadable(defs)
    jobs = [defs.resolve_job_def(name) for name in ("a__b_job", "a__b_59b271ae_job")]
    assert [job.asset_layer.executable_asset_keys for job in jobs] == [{flat.key}, {nested.key}]


def test_it_can_be_called_twice_in_one_location() -> None:
    shared = checkpoints()
    first = build_streaming_definitions([a_stream("a")], checkpoints=shared, spark=SPARK)
    second = build_streaming_definitions([a_stream("b")], checkpoints=shared, spark=SPARK, name="eu")
    third = build_streaming_definitions([a_stream("c")], name="us", state=None)
    defs = dg.Definitions.merge(first, second, third)
    dg.Definitions.validate_loadable(defs)
    for job in ("a_job", "eu_b_job", "us_c_job"):
        assert defs.resolve_job_def(job).name == job
    assert {sensor.name for sensor in defs.sensors or []} == {
        "streaming_recovery",
        "eu_streaming_recovery",
        "us_streaming_recovery",
    }


def test_what_is_none_is_taken_from_the_locations_own_resources() -> None:
    own = {"checkpoints": checkpoints(), "state": LsmStateBackendResource(memory_limit="1GB"), "spark": SPARK}
    defs = dg.Definitions.merge(build_streaming_definitions([a_stream("a")], state=None), dg.Definitions(resources=own))
    dg.Definitions.validate_loadable(defs)


def test_a_missing_resource_is_dagsters_own_clear_error() -> None:
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="checkpoints"):
        dg.Definitions.validate_loadable(build_streaming_definitions([a_stream("a")], spark=SPARK))


def test_only_streams_are_taken() -> None:
    @dg.asset
    def ordinary() -> None: ...

    with pytest.raises(InvalidPipelineError, match="asset=ordinary"):
        build_streaming_definitions([ordinary], checkpoints=checkpoints(), spark=SPARK)


@pytest.mark.parametrize(
    "options",
    [{"checkpoint_interval": "-1s"}, {"event_interval": "often"}, {"timeout": "0s"}],
    ids=lambda options: next(iter(options)),
)
def test_a_length_of_time_that_makes_no_sense_is_refused_when_the_resource_is_made(options: dict[str, str]) -> None:
    [name] = options
    with pytest.raises(InvalidPipelineError, match=f"{name}="):
        checkpoints(**options)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ftp://bucket/checkpoints", "scheme=ftp"),
        ("gs:///checkpoints", "gs://bucket/folder"),
        ("s3a://bucket/checkpoints", "write s3://"),
        ("s3:///checkpoints", "s3://bucket/folder"),
        ("file://relative/folder", "absolute folder"),
        ("/data/checkpoints", "named by a URL"),
        ("data/checkpoints", "named by a URL"),
        ("file:data/checkpoints", "absolute folder"),
        ("", "named by a URL"),
        ("file:///", "absolute folder"),
        ("file:///data/..", "root of the disk"),
    ],
)
def test_a_url_that_names_no_store_is_refused_when_the_resource_is_made(url: str, reason: str) -> None:
    with pytest.raises(InvalidPipelineError, match=reason):
        CheckpointCoordinatorResource(url=url)


@pytest.mark.parametrize(
    ("url", "options", "reason"),
    [
        ("file:///data/checkpoints", {"key": "id"}, r"takes no storage options.*options=\['key'\]"),
        ("s3://bucket/checkpoints", {"timeout": 3}, r"no such options.*options=\['timeout'\]"),
        ("s3://bucket/checkpoints", {"secret": dg.EnvVar("SECRET"), "endpoint_url": "host:9000"}, "endpoint_url"),
    ],
)
def test_storage_options_that_the_store_does_not_take_are_refused_when_the_resource_is_made(
    url: str, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidPipelineError, match=reason):
        CheckpointCoordinatorResource(url=url, storage_options=options)


def test_storage_options_in_environment_variables_are_checked_where_they_are_used() -> None:
    given = {"endpoint_url": dg.EnvVar("ENDPOINT"), "client_kwargs": {"region_name": dg.EnvVar("REGION")}}
    assert CheckpointCoordinatorResource(url="s3://bucket/checkpoints", storage_options=given).url


@pytest.mark.parametrize(
    ("url", "master", "reason"),
    [
        ("memory://streams", "local[2]", "memory: store"),
        ("file:///data/checkpoints", "spark://host:7077", r"master=spark://host:7077"),
        ("file:///data/checkpoints", "yarn", r"master=yarn"),
    ],
)
def test_a_store_that_sparks_workers_cannot_reach_is_refused_when_the_location_loads(
    url: str, master: str, reason: str
) -> None:
    spark = LazyPySparkResource(spark_config={"spark.master": master})
    with pytest.raises(InvalidPipelineError, match=reason):
        build_streaming_definitions([a_stream("a")], checkpoints=checkpoints(url=url), spark=spark)


def test_a_driver_away_from_the_dagster_run_is_refused_when_the_location_loads() -> None:
    config = {"spark.master": "k8s://https://kubernetes.default.svc", "spark.submit.deployMode": "cluster"}
    spark = LazyPySparkResource(spark_config=config)
    with pytest.raises(InvalidPipelineError, match=r"client mode.*run launcher.*spark\.submit\.deployMode=cluster"):
        build_streaming_definitions(
            [a_stream("a")], checkpoints=checkpoints(url="s3://bucket/checkpoints"), spark=spark
        )
    there = LazyPySparkResource(spark_config={**config, "spark.submit.deployMode": "client"})
    build_streaming_definitions([a_stream("a")], checkpoints=checkpoints(url="s3://bucket/checkpoints"), spark=there)


def test_two_streams_of_one_key_are_refused_when_the_location_loads() -> None:
    with pytest.raises(InvalidPipelineError, match=r"keys=\['a'\]"):
        build_streaming_definitions([a_stream("a"), a_stream("a")], checkpoints=checkpoints(), spark=SPARK)


def test_a_url_in_an_environment_variable_is_refused_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    given = CheckpointCoordinatorResource(url=dg.EnvVar("STORE_URL"))
    monkeypatch.setenv("STORE_URL", "ftp://bucket/checkpoints")
    with pytest.raises(dg.DagsterError) as refused, dg.build_resources({"checkpoints": given}):
        pass
    assert "scheme=ftp" in str(refused.value.__cause__)


@pytest.mark.parametrize("options", [{"retained": 0}, {"tolerable_failures": -1}, {"max_lag": 0}])
def test_a_count_that_makes_no_sense_is_refused_when_the_resource_is_made(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        checkpoints(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"memory_limit": "much"},
        {"memory_limit": 2**20 - 1},
        {"memory_limit": "9" * 400 + " TiB"},
        {"cache_limit": "-1 GiB"},
        {"cache_dir": "here"},
        {"cache_dir": "/a/\0/b"},
        {"cache_dir": 7},
    ],
    ids=str,
)
def test_an_option_of_the_state_that_makes_no_sense_is_refused_when_the_resource_is_made(
    options: dict[str, Any],
) -> None:
    with pytest.raises(InvalidPipelineError, match=f"{next(iter(options))}="):
        LsmStateBackendResource(**options)


@pytest.mark.parametrize("threads", [0, 65])
def test_state_needs_a_thread_and_not_too_many(threads: int) -> None:
    with pytest.raises(ValueError, match="io_threads must be a number from 1 to 64"):
        LsmStateBackendResource(io_threads=threads)


@pytest.mark.parametrize(("written", "meant"), [(4 * 2**20, 2**22), ("4194304", 2**22), ("4 MiB", 2**22)])
def test_memory_is_a_number_of_bytes_or_a_text(written: Any, meant: int) -> None:
    state = LsmStateBackendResource(memory_limit=written, cache_limit=written)
    assert state.memory_limit_bytes == state.cache_limit_bytes == meant


def test_the_cache_can_be_switched_off() -> None:
    assert LsmStateBackendResource(cache_limit="0").cache_limit_bytes == 0


@pytest.mark.parametrize(
    ("kind", "given"),
    [(LsmStateBackendResource, {"memory_limt": "1 GiB"}), (checkpoints, {"retain": 3})],
    ids=["state", "checkpoints"],
)
def test_an_unknown_option_is_refused(kind: Any, given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(given))):
        kind(**given)


@pytest.mark.parametrize(
    ("kind", "option", "least"),
    [(LsmStateBackendResource, "io_threads", 1), (checkpoints, "retained", 1), (checkpoints, "tolerable_failures", 0)],
    ids=lambda each: each if isinstance(each, str) else "",
)
@pytest.mark.parametrize("is_legal", [True, False])
def test_a_number_may_be_an_environment_variable_and_is_checked_where_it_is_used(
    kind: Any, option: str, least: int, is_legal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = kind(**{option: dg.EnvVar.int("NUMBER")})
    monkeypatch.setenv("NUMBER", str(least if is_legal else least - 1))
    seen = []

    @dg.op(required_resource_keys={"given"})
    def use(context: dg.OpExecutionContext) -> None:
        seen.append(getattr(context.resources.given, option))

    @dg.job(resource_defs={"given": given})
    def job() -> None:
        use()

    assert job.execute_in_process(raise_on_error=False).success == is_legal
    assert seen == ([least] if is_legal else [])


@pytest.mark.parametrize(("limit", "meant"), [("1 GiB", 2**30), ("no limit", None)])
def test_what_an_environment_variable_holds_is_looked_at_where_it_is_used(
    monkeypatch: pytest.MonkeyPatch, limit: str, meant: int | None
) -> None:
    monkeypatch.setenv("LIMIT", limit)
    seen = []

    @dg.op
    def use(state: LsmStateBackendResource) -> None:
        seen.append(state.cache_limit_bytes)

    @dg.job(resource_defs={"state": LsmStateBackendResource(cache_limit=dg.EnvVar("LIMIT"))})
    def job() -> None:
        use()

    done = job.execute_in_process(raise_on_error=False)
    assert done.success == (meant is not None)
    assert seen == ([] if meant is None else [meant])


def test_defaults_are_those_of_the_documentation() -> None:
    given = checkpoints()
    assert (given.checkpoint_interval_ms, given.event_interval_ms, given.timeout_ms) == (10_000, 30_000, 600_000)
    assert (given.tolerable_failures, given.retained) == (3, 20)
    state = LsmStateBackendResource()
    assert (state.memory_limit_bytes, state.cache_limit_bytes) == (256 * 2**20, 4 * 2**30)
    assert (state.io_threads, state.cache_dir) == (4, None)


def test_secrets_are_neither_in_a_repr_nor_in_dagsters_ui(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE_SECRET", "from the environment")
    options = {"key": "plain secret", "secret": dg.EnvVar("STORE_SECRET")}
    given = checkpoints(url="s3://bucket/checkpoints", storage_options=options)
    assert given.address.options == {"key": "plain secret", "secret": "from the environment"}
    field = given.get_resource_definition().config_field
    assert field is not None
    told = field.default_value_as_json_str
    assert "s3://bucket/checkpoints" in told
    for text in (told, repr(given), str(given), repr(given.address)):
        assert "plain secret" not in text
        assert "from the environment" not in text


def test_a_secret_may_be_nested_and_must_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    deeper = {"client_kwargs": {"aws_session_token": dg.EnvVar("STORE_TOKEN"), "verify": False}}
    given = checkpoints(url="s3://bucket/checkpoints", storage_options=deeper)
    monkeypatch.delenv("STORE_TOKEN", raising=False)
    with pytest.raises(InvalidPipelineError, match=r"option=client_kwargs\.aws_session_token, variable=STORE_TOKEN"):
        _ = given.address
    monkeypatch.setenv("STORE_TOKEN", "from the environment")
    assert given.address.options == {"client_kwargs": {"aws_session_token": "from the environment", "verify": False}}


def test_an_environment_variable_is_checked_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    given = checkpoints(checkpoint_interval=dg.EnvVar("INTERVAL"))
    monkeypatch.setenv("INTERVAL", "7s")
    with dg.build_resources({"checkpoints": given}) as resources:
        assert resources.checkpoints.checkpoint_interval_ms == 7_000


def test_both_resources_of_dagster_pyspark_have_a_session_and_others_are_refused() -> None:
    class Session:
        spark_session = "a session"

    found: object = spark_session(Session())
    assert found == "a session"
    for kind in (PySparkResource, LazyPySparkResource):
        assert hasattr(kind, "spark_session")
    with pytest.raises(InvalidPipelineError, match="spark=int"):
        spark_session(1)


def test_an_asset_cannot_be_written_through_the_io_manager_of_streams() -> None:
    manager = EpochIOManager(checkpoints=checkpoints())
    with pytest.raises(InvalidPipelineError, match="asset=report"):
        manager.handle_output(dg.build_output_context(asset_key=dg.AssetKey("report")), 1)
