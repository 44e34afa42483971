"""Passwords of Kafka are planted, then everything that anybody may look at is searched for them."""

import gzip
import logging
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from dagster_ckpt import (
    CheckpointCoordinatorResource,
    CheckpointStore,
    Recovery,
    Stream,
    agg,
    build_streaming_definitions,
    streaming_asset,
)
from dagster_ckpt.cli import main
from tests.kafka.cluster import Cluster, parsed
from tests.servers.kafka import Broker
from tests.servers.processes import HOST, free_port

pytestmark = pytest.mark.timeout(300)

PASSWORD, STORE_PASSWORD = "planted-sasl-password", "planted-tls-password"
PLANTED = (PASSWORD, STORE_PASSWORD, "planted-wrong")
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def key_and_trust(folder: Path) -> tuple[Path, Path]:
    """A key for the broker, and a store of certificates in which its clients trust it."""
    keys, certificate, trusted = folder / "keys.p12", folder / "broker.pem", folder / "trusted.p12"
    tool = ["keytool", "-storepass", STORE_PASSWORD, "-storetype", "PKCS12", "-alias", "broker"]
    name = ["-dname", "CN=broker", "-ext", f"SAN=IP:{HOST}", "-keyalg", "RSA", "-validity", "2"]
    subprocess.run([*tool, "-genkeypair", "-keystore", str(keys), *name], check=True, capture_output=True)
    export = [*tool, "-exportcert", "-rfc", "-keystore", str(keys), "-file", str(certificate)]
    subprocess.run(export, check=True, capture_output=True)
    trust = [*tool, "-importcert", "-noprompt", "-keystore", str(trusted), "-file", str(certificate)]
    subprocess.run(trust, check=True, capture_output=True)
    return keys, trusted


@pytest.fixture(scope="module")
def guarded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker with a listener that wants TLS and a password."""
    folder = tmp_path_factory.mktemp("kafka")
    keys, trusted = key_and_trust(folder)
    broker, port = Broker(folder), free_port()
    settings = folder / "server.properties"
    lines = dict(line.split("=", 1) for line in settings.read_text().splitlines())
    name = "listener.name.guarded"
    lines |= {
        "listeners": f"{lines['listeners']},GUARDED://{HOST}:{port}",
        "advertised.listeners": f"{lines['advertised.listeners']},GUARDED://{HOST}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,GUARDED:SASL_SSL",
        f"{name}.sasl.enabled.mechanisms": "PLAIN",
        f"{name}.plain.sasl.jaas.config": f'{LOGIN} user_reader="{PASSWORD}";',
        f"{name}.ssl.keystore.location": str(keys),
        f"{name}.ssl.keystore.type": "PKCS12",
        f"{name}.ssl.keystore.password": STORE_PASSWORD,
    }
    settings.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    try:
        broker.start()
        cluster = Cluster(spark, broker, credentials(f"{HOST}:{port}", trusted))
        cluster.create("guarded", partitions=1)
        cluster.produce("guarded", 0, 100)
        yield cluster
        cluster.close()
    finally:
        broker.kill()


def credentials(address: str, trusted: Path) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": address,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{LOGIN} username="reader" password="{PASSWORD}";',
        "kafka.ssl.truststore.location": str(trusted),
        "kafka.ssl.truststore.type": "PKCS12",
        "kafka.ssl.truststore.password": STORE_PASSWORD,
        "kafka.ssl.key.password": STORE_PASSWORD,
    }


@pytest.fixture
def shown(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Iterator[list[str]]:
    """What was shown; all that was logged or printed is added at the end, and then searched."""
    texts: list[str] = []
    for name in ("dagster_ckpt", "dagster", "pyspark"):
        caplog.set_level(logging.DEBUG, name)
    yield texts
    texts += [caplog.text, *capfd.readouterr()]
    for secret in PLANTED:
        for text in texts:
            at = text.find(secret)
            assert at < 0, text[max(0, at - 300) : at + 100]


def asset(cluster: Cluster, **options: str) -> dg.AssetsDefinition:
    @streaming_asset(shards=2, recovery=Recovery(lease_timeout="2s"))
    def totals(spark: SparkSession) -> Stream:
        rows = cluster.read(spark, **{"subscribe": "guarded", "startingOffsets": "earliest", **options})
        return Stream(rows.select(parsed()).select("d.*")).key_by("k").aggregate(rows=agg.count())

    return totals


def run(folder: Path, totals: dg.AssetsDefinition, instance: dg.DagsterInstance) -> tuple[Any, list[str]]:
    """One Dagster run; what Dagster keeps of it."""
    checkpoints = CheckpointCoordinatorResource(
        url=(folder / "store").as_uri(), event_interval="1s", tolerable_failures=1
    )
    definitions = build_streaming_definitions(
        [totals], checkpoints=checkpoints, spark=LazyPySparkResource(spark_config={})
    )
    job = definitions.resolve_implicit_global_asset_job_def()
    result = job.execute_in_process(instance=instance, raise_on_error=False)
    found = instance.get_run_by_id(result.run_id)
    assert found is not None
    snapshot = instance.get_job_snapshot(found.job_snapshot_id or "")
    events = [dg.serialize_value(entry) for entry in instance.all_logs(result.run_id)]
    return result, [*events, repr(found), dg.serialize_value(found), dg.serialize_value(snapshot), repr(definitions)]


def objects(folder: Path) -> list[str]:
    found = []
    for path in sorted(each for each in (folder / "store").rglob("*") if each.is_file()):
        data = path.read_bytes()
        found += [str(path), (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("latin-1")]
    return found


@pytest.fixture
def instance(tmp_path_factory: pytest.TempPathFactory) -> dg.DagsterInstance:
    return dg.DagsterInstance.local_temp(str(tmp_path_factory.mktemp("dagster")))


def test_a_stream_that_works_shows_no_password(
    guarded: Cluster, spark: SparkSession, tmp_path: Path, instance: dg.DagsterInstance, shown: list[str]
) -> None:
    result, kept = run(tmp_path, asset(guarded, commitGroupId="reader"), instance)
    assert result.success
    url = (tmp_path / "store").as_uri()
    assert CheckpointStore(url).stream("totals").read().num_rows == 10
    shown += [*kept, *objects(tmp_path)]
    assert any('"subscribe"' in text and "guarded" in text for text in shown), "the manifest is among what is searched"
    for words in (["show", "totals"], ["--json", "show", "totals"], ["epochs", "totals"]):
        shown.append(CliRunner().invoke(main, ["--store", url, *words]).output)
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    shown += [executions.apply(number).physicalPlanDescription() for number in range(executions.size())]
    assert guarded.group("reader") == {("guarded", 0): 100}


WRONG: Mapping[str, dict[str, str]] = {
    "password": {"kafka.sasl.jaas.config": f'{LOGIN} username="reader" password="planted-wrong";'},
    "syntax": {"kafka.sasl.jaas.config": f'{LOGIN} username="reader" password="planted-wrong'},
    "module": {"kafka.sasl.jaas.config": 'planted-wrong required password="planted-wrong";'},
    "store": {"kafka.ssl.truststore.password": "planted-wrong"},
}


@pytest.mark.parametrize("what", sorted(WRONG))
def test_a_stream_that_fails_shows_no_password(
    guarded: Cluster, tmp_path: Path, instance: dg.DagsterInstance, shown: list[str], what: str
) -> None:
    result, kept = run(tmp_path, asset(guarded, **WRONG[what]), instance)
    assert not result.success
    shown += [*kept, *objects(tmp_path)]


def test_a_stream_whose_records_are_lost_shows_no_password(
    guarded: Cluster, tmp_path: Path, instance: dg.DagsterInstance, shown: list[str]
) -> None:
    guarded.create("lost", partitions=1)
    guarded.produce("lost", 0, 100)
    result, kept = run(tmp_path, asset(guarded, subscribe="lost", maxOffsetsPerTrigger="50"), instance)
    assert result.success
    guarded.produce("lost", 100, 150)
    guarded.delete_records("lost", 0, before=120)
    result, more = run(tmp_path, asset(guarded, subscribe="lost"), instance)
    assert not result.success
    assert any("lost-0 offsets 100 to 119" in text for text in more)
    result, last = run(tmp_path, asset(guarded, subscribe="lost", failOnDataLoss="false"), instance)
    assert result.success
    events = [each.asset_observation for each in instance.fetch_observations(dg.AssetKey("totals"), limit=99).records]
    [skipped] = [each.metadata["skipped_rows_max"] for each in events if each and "skipped_rows_max" in each.metadata]
    assert skipped.value == 20
    shown += [*kept, *more, *last, *objects(tmp_path)]
