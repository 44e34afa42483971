"""The settings of a stream on the page on Kubernetes: the job that Dagster's launcher makes of them, by its schema."""

import json
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
from dagster_k8s.job import DagsterK8sJobConfig, UserDefinedDagsterK8sConfig, construct_dagster_k8s_job
from dagster_pyspark import LazyPySparkResource
from kubernetes.client import ApiClient

from dagster_ckpt import build_streaming_definitions

PAGE = Path(__file__).parents[2] / "docs/how-to/deploy/kubernetes.md"
VERSION = "1.32"
SPARK = LazyPySparkResource(spark_config={"spark.master": "local[*]"})


def names_of_the_page() -> dict[str, Any]:
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE):
        exec(block, names)
    return names


def test_the_job_of_a_stream_is_valid_and_is_left_to_the_sensor_when_it_fails() -> None:
    names = names_of_the_page()
    stream = names["delay_by_carrier"]
    location = build_streaming_definitions([stream], checkpoints=names["checkpoints"], spark=SPARK)
    tags = location.get_repository_def().get_job("delay_by_carrier_job").tags
    config = UserDefinedDagsterK8sConfig.from_dict(json.loads(tags["dagster-k8s/config"]))
    instance = DagsterK8sJobConfig(
        dagster_home="/opt/dagster/dagster_home",
        job_image="registry.example.org/shop-streams:1",
        image_pull_policy="IfNotPresent",
        instance_config_map="dagster-instance",
        postgres_password_secret="dagster-postgresql-secret",
    )
    run = construct_dagster_k8s_job(instance, ["dagster", "api", "execute_run"], "dagster-run-1", config)
    job = ApiClient().sanitize_for_serialization(run)
    kubernetes_validate.validate(job, VERSION, strict=True)
    assert job["spec"]["backoffLimit"] == 0
    pod = job["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    assert pod["containers"][0]["resources"] == names["POD"]["container_config"]["resources"]
    assert pod["volumes"] == [{"name": "scratch", "emptyDir": {"sizeLimit": "10Gi"}}]
