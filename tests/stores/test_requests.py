"""How many requests an epoch sends: a fixed number, whatever the store; published in docs/operations/storage.md."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_ckpt import agg
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.stream_job import JobHooks
from dagster_ckpt.storage.stores.address import StoreAddress
from tests.servers.counting_proxy import CountingProxy, counting_proxy
from tests.spark.input_files import drop
from tests.spark.streams import FAST, StreamUnderTest
from tests.worlds.s3_server import S3Server

EPOCHS = 8
REQUESTS = {"s3": 8, "gs": 8, "azure": 8, "webhdfs": 15}
"""Of an epoch with one task: it reads the manifest, and creates a file of state. Then the driver creates the manifest,
reads its parent, and looks twice for a newer one, by a list, an existence check and a read."""
BY_THE_CLOCK = ("/lease/", "/requests/", "/pins", "/subscribers", "collector.json")


@pytest.fixture(params=["s3", "gs", "azure", "webhdfs"])
def proxied(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, CountingProxy, StoreAddress]]:
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        root = StoreAddress("s3://checkpoints", server.options)
    else:
        root = request.getfixturevalue(f"{request.param}_root")
    text = f"{root.url} {root.options}"
    [port] = set(re.findall(r"127\.0\.0\.1:([0-9]+)", text))
    with counting_proxy(int(port)) as proxy:
        there, here = f"127.0.0.1:{port}", f"127.0.0.1:{proxy.port}"
        options = {name: str(value).replace(there, here) for name, value in root.options.items()}
        yield request.param, proxy, StoreAddress(f"{root.url.replace(there, here)}/{tmp_path.name}", options)


def test_an_epoch_sends_a_fixed_number_of_requests(
    spark_of_all: SparkSession, tmp_path: Path, proxied: tuple[str, CountingProxy, StoreAddress]
) -> None:
    kind, proxy, store = proxied
    inbox = tmp_path / "inbox"
    inbox.mkdir()

    def function(spark: SparkSession) -> Stream:
        frame = spark.readStream.schema("k string, v long").option("maxFilesPerTrigger", "1").parquet(str(inbox))
        return Stream(frame).key_by("k").aggregate(rows=agg.count(), total=agg.sum("v"))

    ends: list[int] = []
    stream = StreamUnderTest(spark_of_all, tmp_path, elsewhere=store)
    for number in range(EPOCHS):
        drop(inbox, number, pa.table({"k": [f"key {row}" for row in range(300)], "v": [number] * 300}))
    stream.run(function, FAST, JobHooks(on_commit=lambda epoch: ends.append(len(proxy.requests))))
    assert len(ends) == EPOCHS
    counts = [_counted(proxy.requests[begin:end]) for begin, end in pairwise(ends)]
    assert counts[1:] == [REQUESTS[kind]] * (EPOCHS - 2)


def _counted(requests: list[tuple[str, str]]) -> int:
    """The requests of an epoch: not those of threads that send theirs by the clock."""
    mine = [path for _, path in requests if not any(folder in path for folder in BY_THE_CLOCK)]
    # The NameNode names a DataNode, which is then asked; the proxy does not see that.
    return len(mine) + sum("op=OPEN" in path or "op=CREATE" in path for path in mine)
