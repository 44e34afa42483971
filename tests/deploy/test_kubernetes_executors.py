"""The files in deploy/kubernetes/: objects that Kubernetes' schema allows, with the names that the page has."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/kubernetes"
PAGE = ROOT / "docs/how-to/clusters/yarn-and-kubernetes.md"
VERSION = "1.32"


def objects(file: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all((FOLDER / file).read_text()) if each is not None]


def only(file: str, kind: str, name: str) -> dict[str, Any]:
    (found,) = [each for each in objects(file) if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def template() -> dict[str, Any]:
    text = only("executor-template.yaml", "ConfigMap", "executor-template")["data"]["executor.yaml"]
    pod: dict[str, Any] = yaml.safe_load(text)
    return pod


def run_config() -> dict[str, Any]:
    """What the chart gives to the run launcher."""
    (values,) = objects("values.yaml")
    config: dict[str, Any] = values["runLauncher"]["config"]["k8sRunLauncher"]["runK8sConfig"]
    return config


def settings_of_the_page(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Those of Spark, in a pod."""
    for variable in run_config()["containerConfig"]["env"]:
        monkeypatch.setenv(variable["name"], variable["valueFrom"]["fieldRef"]["fieldPath"])
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (block,) = [each for each in blocks if "k8s://" in each]
    names: dict[str, Any] = {}
    exec(block, names)
    settings: dict[str, str] = names["kubernetes"].spark_config
    return settings


@pytest.mark.parametrize("file", ["rbac.yaml", "executor-template.yaml"])
def test_every_object_is_valid(file: str) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="make test-deploy installs it")
    for each in objects(file):
        kubernetes_validate.validate(each, VERSION, strict=True)


def test_the_template_is_a_pod_without_root_rights() -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="make test-deploy installs it")
    kubernetes_validate.validate(template(), VERSION, strict=True)
    assert template()["spec"]["securityContext"]["runAsNonRoot"]


def test_the_job_of_a_run_is_valid_and_has_what_the_driver_needs() -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="make test-deploy installs it")
    job_module = pytest.importorskip("dagster_k8s.job", reason="make test-deploy installs it")
    from kubernetes.client import ApiClient

    config = run_config()
    own = job_module.UserDefinedDagsterK8sConfig.from_dict(
        {"container_config": config["containerConfig"], "pod_spec_config": config["podSpecConfig"]}
    )
    instance = job_module.DagsterK8sJobConfig(
        dagster_home="/opt/dagster/dagster_home",
        job_image="registry.example.org/shop-streams:1",
        image_pull_policy="IfNotPresent",
        instance_config_map="dagster-instance",
        postgres_password_secret="dagster-postgresql-secret",
    )
    run = job_module.construct_dagster_k8s_job(instance, ["dagster", "api", "execute_run"], "dagster-run-1", own)
    job = ApiClient().sanitize_for_serialization(run)
    kubernetes_validate.validate(job, VERSION, strict=True)
    pod = job["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "streams-driver"
    (container,) = pod["containers"]
    for variable in config["containerConfig"]["env"]:
        assert variable in container["env"]
    assert {"name": "executor-template", "mountPath": "/opt/dagster/kubernetes"} in container["volumeMounts"]


def test_the_names_on_the_page_are_those_of_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, config = settings_of_the_page(monkeypatch), run_config()
    account = settings["spark.kubernetes.authenticate.executor.serviceAccountName"]
    assert only("rbac.yaml", "ServiceAccount", account)["automountServiceAccountToken"] is False
    (binding,) = [each for each in objects("rbac.yaml") if each["kind"] == "RoleBinding"]
    (subject,) = binding["subjects"]
    assert subject["namespace"] == settings["spark.kubernetes.namespace"]
    assert subject["name"] == config["podSpecConfig"]["serviceAccountName"]
    only("rbac.yaml", "ServiceAccount", subject["name"])
    role = only("rbac.yaml", "Role", binding["roleRef"]["name"])
    assert "pods" in role["rules"][0]["resources"]
    file = Path(settings["spark.kubernetes.executor.podTemplateFile"])
    (mounted,) = [each for each in config["containerConfig"]["volumeMounts"] if each["mountPath"] == str(file.parent)]
    (volume,) = [each for each in config["podSpecConfig"]["volumes"] if each["name"] == mounted["name"]]
    held = only("executor-template.yaml", "ConfigMap", volume["configMap"]["name"])
    assert file.name in held["data"]
    assert settings["spark.kubernetes.driver.pod.name"] == "metadata.name"
    assert settings["spark.driver.host"] == "status.podIP"


def test_the_executors_spark_is_the_drivers() -> None:
    (pinned,) = re.findall(r"^pyspark==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert f"FROM apache/spark:{pinned} AS spark" in (FOLDER / "executor.Dockerfile").read_text()


def test_every_file_is_on_the_page() -> None:
    listed = re.findall(r"^\| `([\w.-]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(each.name for each in FOLDER.iterdir())
