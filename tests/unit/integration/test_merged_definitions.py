"""Several `build_streaming_definitions` in one location: merged by hand, and by Dagster from a `defs` folder."""

import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import dagster as dg
import pytest
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from dagster_ckpt import (
    CheckpointCoordinatorResource,
    LsmStateBackendResource,
    Stream,
    build_recovery_sensor,
    build_streaming_definitions,
    streaming_asset,
)

SPARK = LazyPySparkResource(spark_config={"spark.master": "local[1]"})


def a_stream(name: str) -> dg.AssetsDefinition:
    def never_called(spark: SparkSession) -> Stream:
        raise NotImplementedError

    decorate: Any = streaming_asset
    asset: dg.AssetsDefinition = decorate(name=name)(never_called)
    return asset


def checkpoints() -> CheckpointCoordinatorResource:
    return CheckpointCoordinatorResource(url="file:///tmp/nowhere")


def sensors_of(*parts: dg.Definitions) -> set[str]:
    """The names of the sensors of a location with these definitions; it must load."""
    merged = dg.Definitions.merge(*parts)
    dg.Definitions.validate_loadable(merged)
    return {sensor.name for sensor in merged.get_repository_def().sensor_defs}


def test_calls_that_share_resources_merge_without_a_name() -> None:
    shared = checkpoints()
    parts = [build_streaming_definitions([a_stream(name)], checkpoints=shared, spark=SPARK) for name in ("a", "b")]
    parts.append(build_streaming_definitions([a_stream("c"), a_stream("d")]))
    assert sensors_of(*parts) == {"streaming_recovery", "b_streaming_recovery", "c_streaming_recovery"}
    jobs = dg.Definitions.merge(*parts).get_repository_def().get_all_jobs()
    assert {"a_job", "b_job", "c_job", "d_job"} <= {job.name for job in jobs}


def test_the_sensor_of_a_location_with_one_call_keeps_its_name() -> None:
    shared, report = checkpoints(), dg.Definitions(assets=[dg.AssetSpec("report")])
    for _ in range(2):  # the second time, the module is executed again
        own = build_streaming_definitions([a_stream("a"), a_stream("b")], checkpoints=shared, spark=SPARK)
        assert sensors_of(own, report) == {"streaming_recovery"}
    elsewhere = dg.Definitions(resources={"checkpoints": shared, "spark": SPARK})
    assert sensors_of(build_streaming_definitions([a_stream("a")], name=""), elsewhere) == {"streaming_recovery"}


def test_resources_of_the_location_serve_all_calls() -> None:
    own = {"checkpoints": checkpoints(), "state": LsmStateBackendResource(memory_limit="1 GiB"), "spark": SPARK}
    parts = [build_streaming_definitions([a_stream(name)]) for name in ("a", "b")]
    assert sensors_of(*parts, dg.Definitions(resources=own)) == {"a_streaming_recovery", "b_streaming_recovery"}


A_STREAM = """
    from pyspark.sql import SparkSession
    from dagster_ckpt import Stream, build_streaming_definitions, streaming_asset

    @streaming_asset
    def {name}(spark: SparkSession) -> Stream:
        raise NotImplementedError
"""
RESOURCES = """
    import dagster as dg
    from dagster_pyspark import LazyPySparkResource
    from dagster_ckpt import CheckpointCoordinatorResource, build_streaming_definitions

    resources = {
        "checkpoints": CheckpointCoordinatorResource(url="file:///tmp/nowhere"),
        "spark": LazyPySparkResource(spark_config={}),
    }
"""


@pytest.mark.parametrize(
    ("project", "end_of_a_stream", "end_of_resources", "sensors"),
    [
        (
            "each_file_declares_its_stream",
            "    defs = build_streaming_definitions([{name}])",
            "    defs = dg.Definitions(resources=resources)",
            {"a_streaming_recovery", "b_streaming_recovery"},
        ),
        (
            "one_file_declares_all_streams",
            "",
            """
    from one_file_declares_all_streams.a import a
    from one_file_declares_all_streams.b import b
    defs = build_streaming_definitions([a, b], **resources)""",
            {"streaming_recovery"},
        ),
        (
            "one_file_declares_the_streams_of_the_others",
            "\n",
            """
    from one_file_declares_the_streams_of_the_others.defs.a import a
    from one_file_declares_the_streams_of_the_others.defs.b import b
    defs = build_streaming_definitions([a, b], **resources)""",
            {"streaming_recovery"},
        ),
    ],
    ids=lambda each: each if isinstance(each, str) and each.isidentifier() else "",
)
def test_a_defs_folder_with_a_file_for_each_stream_loads(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    project: str,
    end_of_a_stream: str,
    end_of_resources: str,
    sensors: set[str],
) -> None:
    root = f'[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "{project}"\n'
    (tmp_path / "pyproject.toml").write_text(root)
    folder = tmp_path / project / "defs"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent):
        (package / "__init__.py").touch()
    for name in ("a", "b"):
        ((folder if end_of_a_stream else folder.parent) / f"{name}.py").write_text(
            dedent((A_STREAM + end_of_a_stream).format(name=name))
        )
    (folder / "resources.py").write_text(dedent(RESOURCES + end_of_resources))
    monkeypatch.syspath_prepend(str(tmp_path))
    known = set(sys.modules)
    try:
        assert sensors_of(dg.load_from_defs_folder(path_within_project=folder.parent)) == sensors
    finally:
        for module in set(sys.modules) - known:
            if module.split(".")[0] == project:
                del sys.modules[module]


def test_two_calls_with_stores_of_their_own_stay_dagsters_clear_error() -> None:
    parts = [build_streaming_definitions([a_stream(name)], checkpoints=checkpoints()) for name in ("a", "b")]
    with pytest.raises(dg.DagsterInvariantViolationError, match="'checkpoints'"):
        dg.Definitions.merge(*parts)


def test_a_sensor_made_alone_keeps_its_name() -> None:
    assert build_recovery_sensor([a_stream("a")]).name == "streaming_recovery"
    assert build_recovery_sensor([a_stream("a")], name="eu").name == "eu_streaming_recovery"
