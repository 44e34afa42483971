"""Credentials of S3 are planted, then everything that anybody may look at is searched for them."""

import gzip
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from dagster_ckpt import CheckpointCoordinatorResource, CheckpointStore
from dagster_ckpt.cli import main
from dagster_ckpt.runtime.catalyst.trees import each_of
from dagster_ckpt.runtime.spark.jvm import java_class
from dagster_ckpt.storage.stores import probe
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.stores.retry import Patience
from tests.dagster.place import Place
from tests.worlds.broken_s3 import accept, broken_s3, refuse
from tests.worlds.s3_server import S3Server

PLANTED = ("planted-key", "planted-secret", "planted-token", "planted-sse", "planted-password")
OPTIONS: dict[str, Any] = {
    "key": "planted-key",
    "secret": "planted-secret",
    "token": "planted-token",
    "s3_additional_kwargs": {"Metadata": {"note": "planted-sse"}},
    "config_kwargs": {"proxies": {"https": "http://somebody:planted-password@127.0.0.1:9"}},
}


class S3Place(Place):
    """A place whose store is on S3."""

    address: StoreAddress

    @property
    def url(self) -> str:
        return self.address.url


@pytest.fixture
def s3_place(place: Place) -> S3Place:
    return S3Place(place.folder, place.spark, place.instance)


@pytest.fixture
def shown(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Iterator[list[str]]:
    """What was shown; all that was logged or printed is added at the end, and then searched."""
    texts: list[str] = []
    # Ours and Dagster's, at every level. What botocore logs when it is told to log all is not ours to hide.
    for name in ("dagster_ckpt", "dagster", "pyspark"):
        caplog.set_level(logging.DEBUG, name)
    yield texts
    texts += [caplog.text, *capfd.readouterr()]
    _no_secret(*texts)


def _no_secret(*texts: str) -> None:
    for secret in PLANTED:
        for text in texts:
            at = text.find(secret)
            assert at < 0, text[max(0, at - 300) : at + 100]


def _dagster(place: Place, result: Any) -> list[str]:
    """All that Dagster keeps of a run, and of the location that it is of."""
    run = place.instance.get_run_by_id(result.run_id)
    assert run is not None
    events = [dg.serialize_value(entry) for entry in place.instance.all_logs(result.run_id)]
    snapshot = place.instance.get_job_snapshot(run.job_snapshot_id or "")
    return [*events, repr(run), dg.serialize_value(run), dg.serialize_value(snapshot)]


def _objects(address: StoreAddress) -> list[str]:
    store = address.open()
    texts = []
    for name in store.list(""):
        data = store.get(name)
        texts.append(name)
        texts.append((gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("latin-1"))
    return texts


def _spark() -> list[str]:
    session = SparkSession.builder.getOrCreate()  # the one that the stream was run with; which is active, nobody says
    executions = session._jsparkSession.sharedState().statusStore().executionsList()
    plans = [execution.physicalPlanDescription() for execution in each_of(executions)]
    jobs = session.sparkContext._jsc.sc().statusStore()
    drawn = java_class(session, "org.apache.spark.ui.scope.RDDOperationGraph")
    for job in each_of(jobs.jobsList(None)):
        plans += map(drawn.makeDotFile, each_of(jobs.operationGraphForJob(job.jobId())))
    assert any("MapInArrow" in plan for plan in plans)
    return [repr(session.sparkContext.getConf().getAll()), *plans]


@pytest.mark.timeout(600)
def test_a_stream_that_works_shows_no_secret(s3_place: S3Place, s3_server: S3Server, shown: list[str]) -> None:
    empty = s3_server.empty()
    s3_place.address = StoreAddress(empty.url, {**empty.options, **OPTIONS})
    s3_place.options = {"storage_options": s3_place.address.options}
    s3_place.drop(("a", 1), ("b", 2))
    counts = s3_place.counts()
    result = s3_place.run(counts)
    assert result.success
    store = CheckpointStore(s3_place.address.url, s3_place.address.options)
    history = store.stream("counts")
    assert history.read().num_rows == 2
    history.pin(history.latest().epoch, "kept")
    resource = CheckpointCoordinatorResource(url=s3_place.url, **s3_place.options)
    objects = _objects(s3_place.address)
    assert any("planted" not in text and "MapInArrow" not in text and "lease/" in text for text in objects)
    assert any(text.startswith("counts/pins/") for text in objects)
    shown += [*objects, *_dagster(s3_place, result), *_spark()]
    shown += [repr(each) for each in (store, history, resource, s3_place.address, s3_place.address.open())]


def test_a_stream_that_fails_shows_no_secret(
    s3_place: S3Place, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty store that takes nothing, and a server that itself tells all it knows."""
    monkeypatch.setattr(probe, "_PATIENCE", Patience(total_ms=100))
    refused = refuse(403, "AccessDenied", f"{' '.join(PLANTED)} http://somebody:planted-password@host")
    empty = accept(b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")

    def answer(request: BaseHTTPRequestHandler) -> None:
        is_list = "list-type=2" in request.path
        (refused if request.command == "PUT" else empty if is_list else refuse(404, "NoSuchKey"))(request)

    with broken_s3() as server:
        server.answer = answer
        s3_place.address = server.address(**OPTIONS)
        s3_place.options = {"storage_options": s3_place.address.options}
        s3_place.drop(("a", 1))
        result = s3_place.run(s3_place.counts())
    assert not result.success
    told = _dagster(s3_place, result)
    assert any("give these credentials the permissions" in text for text in told)
    shown += told


@pytest.mark.parametrize("words", [["streams"], ["epochs", "counts"], ["show", "counts"], ["read", "counts"]])
def test_the_command_takes_credentials_from_the_environment_and_shows_none(
    s3_server: S3Server, shown: list[str], monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    from tests.unit.history.made_streams import MadeStream, departures

    address = s3_server.empty()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "planted-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted-secret")
    monkeypatch.setenv("AWS_ENDPOINT_URL", str(address.options["endpoint_url"]))
    made = MadeStream(address.url, "counts")
    made.commit(departures({"UA": [1.0]}))
    made.close()
    for output in ([], ["--json"]):
        done = CliRunner().invoke(main, ["--store", address.url, *output, *words])
        assert done.exit_code == 0, done.output
        shown.append(done.output)
    assert json.loads(shown[-1])


@pytest.mark.long
def test_the_command_shows_no_password_of_an_address_that_the_environment_holds(shown: list[str]) -> None:
    environment = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": "planted-key",
        "AWS_SECRET_ACCESS_KEY": "planted-secret",
        "AWS_ENDPOINT_URL": "http://somebody:planted-password@127.0.0.1:9",
    }
    command = [sys.executable, "-m", "dagster_ckpt.cli", "--store", "s3://bucket/x", "epochs", "counts"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "S3 did not do it" in done.stderr
    shown += [done.stdout, done.stderr]
