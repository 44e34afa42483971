"""The recovery sensor looks at streams on S3, and judges nobody while S3 does not answer."""

import dagster as dg
import pytest

from tests.dagster.sensor_world import SensorWorld, a_stream
from tests.worlds.broken_s3 import broken_s3, refuse
from tests.worlds.s3_server import S3Server


def test_a_stream_on_s3_is_left_alone_while_it_beats_and_started_again_when_it_does_not(s3_server: S3Server) -> None:
    world = SensorWorld(dg.DagsterInstance.ephemeral(), [a_stream("s")], address=s3_server.empty())
    run = world.started("s")
    writer = world.open("s", run)
    world.commit(writer)
    for _ in range(5):
        world.beat("s", writer.term)
        assert not world.tick(20).run_requests
    [request, *_] = world.ticks(60)
    assert request.job_name == "s_job"
    assert world.look(run).status is dg.DagsterRunStatus.FAILURE


def test_an_s3_that_does_not_answer_is_no_verdict(capfd: pytest.CaptureFixture[str]) -> None:
    missing = refuse(404, "NoSuchKey")
    busy = refuse(503, "SlowDown", "a-test-key wants a-test-secret of http://me:hunter2@host/")
    with broken_s3() as server:
        server.answer = lambda request: (missing if request.command == "HEAD" else busy)(request)
        world = SensorWorld(dg.DagsterInstance.ephemeral(), [a_stream("s")], address=server.address())
        run = world.started("s")
        assert "could not be checked" in str(world.tick(500).skip_reason)
    assert world.look(run).status is dg.DagsterRunStatus.STARTED
    logged = "".join(capfd.readouterr())
    assert (
        "it has too much to do; try again later. reason=SlowDown, message='*** wants *** of http://***@host/'" in logged
    )
    for secret in ("a-test-key", "a-test-secret", "hunter2"):
        assert secret not in logged
