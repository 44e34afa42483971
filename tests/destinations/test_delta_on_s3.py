"""Delta Lake on S3: what every destination must do, and lost replies, which deltalake's client retries."""

from collections.abc import Iterable
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from dagster_ckpt.delivery.destination import Destination
from dagster_ckpt.destinations import DeltaLake
from dagster_ckpt.testing.destination_suite import DestinationSuite, Row
from tests.destinations.test_delta import maintain, rows_of
from tests.servers.lossy_proxy import lossy_proxy
from tests.servers.processes import HOST
from tests.unit.delivery.delivering import Delivering
from tests.unit.delivery.delivery_runs import deliver_with_losses
from tests.worlds.s3_server import BUCKET, KEY, SECRET, S3Server

NUMBERS = count()


def delta_at(port: int) -> DeltaLake:
    """A table that nothing was delivered to, by the server or a proxy with that port."""
    options = {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{HOST}:{port}",
        "AWS_ALLOW_HTTP": "true",
    }
    return DeltaLake(f"s3://{BUCKET}/tables/{next(NUMBERS)}", options)


class TestDeltaLakeOnS3(DestinationSuite):
    @pytest.fixture(autouse=True)
    def server(self, s3_server: S3Server) -> None:
        self.port = s3_server.port

    def make(self, folder: Path) -> Destination:
        return delta_at(self.port)

    def rows(self, destination: Destination) -> Iterable[Row]:
        assert isinstance(destination, DeltaLake)
        return rows_of(destination.uri, dict(destination.storage_options))

    def maintain(self, destination: Destination) -> None:
        assert isinstance(destination, DeltaLake)
        maintain(destination.uri, dict(destination.storage_options))


@pytest.mark.parametrize("reply", [False, True], ids=["never arrives", "reply lost"])
def test_a_commit_without_a_reply_is_made_once(s3_server: S3Server, tmp_path: Path, *, reply: bool) -> None:
    delivering = Delivering(tmp_path, epochs_max=1)
    with lossy_proxy(s3_server.port) as proxy:
        to = delta_at(proxy.port)
        rows = partial(rows_of, to.uri, dict(to.storage_options))
        # The first run makes the table, takes the fence and delivers twice.
        pattern = rb"PUT [^ ]*/_delta_log/\d+\.json"
        assert deliver_with_losses(delivering, to, proxy, pattern, rows, reply=reply) >= 3
