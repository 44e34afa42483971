"""The state of each step is merged, bounded, kept, collected and forked as that of one, on a disk and on S3."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.history import CheckpointStore
from dagster_ckpt.lsm.compaction.compaction import CompactionLimits
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.protocol.manifest.references import runs_of
from dagster_ckpt.state.engine import Engine
from dagster_ckpt.state.memory_budget import MemoryBudget
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.operations.collector import Collector
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.stores.folder import stream_folder
from tests.unit.state.epochs import EAGER, NEVER
from tests.worlds.graph_stream import GraphStream
from tests.worlds.s3_server import S3Server
from tests.worlds.several_steps import shops_counted

SHOPS, ORDERS = 40, 200
EPOCHS = 20
"""More than the newest manifests that no collector removes."""


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.long)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> StoreAddress:
    if request.param == "local":
        return StoreAddress(tmp_path.as_uri())
    server: S3Server = request.getfixturevalue("s3_server")
    return server.empty()


def given(number: int) -> list[tuple[str, str, int]]:
    """Half of the orders came in the epoch before."""
    orders = range(number * ORDERS // 2, number * ORDERS // 2 + ORDERS)
    return [(f"o{order}", f"s{order % SHOPS}", order % 5) for order in orders]


def rows(number: int) -> pa.Table:
    return pa.table(list(map(list, zip(*given(number), strict=True))), names=["order", "shop", "amount"])


def expected(epochs: int) -> dict[int, int]:
    """How many shops have each total, after so many epochs."""
    orders = {order: (shop, amount) for number in range(epochs) for order, shop, amount in given(number)}
    totals: dict[str, int] = {}
    for shop, amount in orders.values():
        totals[shop] = totals.get(shop, 0) + amount
    return {total: list(totals.values()).count(total) for total in totals.values()}


def shops(address: StoreAddress, name: str, epoch: int | None = None) -> dict[int, int]:
    table = CheckpointStore(address.url, address.options).stream(name).read(epoch)
    return dict(zip(table["total"].to_pylist(), table["shops"].to_pylist(), strict=True))


def a_stream(address: StoreAddress, limits: CompactionLimits, memory_bytes: int = 1 << 28) -> GraphStream:
    engine = Engine(SystemClock(), budget=MemoryBudget(memory_bytes), limits=limits)
    return GraphStream(address, "shops", shops_counted(), engine, retained=3)


def depths(manifest: Manifest) -> dict[str, int]:
    return {table: max(map(len, shards)) for table, shards in manifest.runs.items()}


def test_each_step_is_merged_and_forked(address: StoreAddress) -> None:
    stream = a_stream(address, EAGER)
    shown = [stream.commit(rows(number)) for number in range(6)]
    assert set(depths(shown[-1])) == {"0.rows", "1.groups", "groups"}
    assert max(depths(shown[-1]).values()) < 5, "merged in each step"
    assert [shops(address, "shops", each.epoch) for each in shown[-3:]] == [expected(4), expected(5), expected(6)]

    history = CheckpointStore(address.url, address.options).stream("shops")
    history.fork("fork", epoch=shown[-2].epoch)
    fork = GraphStream(address, "fork", stream.pipeline, stream.engine)
    fork.commit(rows(5))
    assert shops(address, "fork") == shops(address, "shops") == expected(6)
    assert history.verify().whole


def test_the_state_of_each_step_is_collected_and_pinned(tmp_path: Path) -> None:
    address = StoreAddress(tmp_path.as_uri())
    stream = a_stream(address, EAGER)
    shown = [stream.commit(rows(number)) for number in range(EPOCHS)]
    history = CheckpointStore(address.url).stream("shops")
    chain = ManifestChain(stream_folder(address.open(), "shops"), SystemClock())
    history.pin(shown[-2].epoch, "before")
    for _ in range(2):
        Collector(chain, address.open(), grace_ms=-1_000).collect(stream.writer.term)
    there = set(address.open().list(""))
    assert {run.path.split("/")[1] for run in runs_of(shown[0])} == {"0%2erows", "1%2egroups", "groups"}
    assert not {f"shops/{run.name}" for run in runs_of(shown[0])} & there, "only retired epochs need them"
    assert {f"shops/{run.name}" for run in runs_of(shown[-2])} <= there
    assert history.verify().whole
    for back in (1, 2, 3):
        assert shops(address, "shops", shown[-back].epoch) == expected(EPOCHS + 1 - back)


def test_little_memory_makes_more_files_and_the_same_tables(address: StoreAddress) -> None:
    stream = a_stream(address, NEVER, memory_bytes=4_096)
    stream.commit(rows(0))
    assert shops(address, "shops") == expected(1)
    shown = stream.commit(rows(1))
    assert shops(address, "shops") == expected(2)
    (first, *_), tasks = shown.steps, 2
    assert (first.rows_in, first.rows_out) == (ORDERS, ORDERS // 2)
    written = Counter(name.split("/")[2] for name in address.open().list("") if name.startswith("shops/state/"))
    assert min(written.values()) > 2 * tasks, "a task of each step flushed in the middle of an epoch"
