"""A task and a reader on a remote store of which every few calls fail: no epoch may be lost to that."""

import itertools
from collections.abc import Iterator
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest

from dagster_ckpt import agg
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.history.stream_table import table_of
from dagster_ckpt.operators.aggregates.aggregate import RunningAggregate
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.lease import LeaseHolder
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Owner
from dagster_ckpt.protocol.transitions.edits import EpochEdit
from dagster_ckpt.runtime.task.epoch_task import EpochOrder, TaskSetup, replies_of
from dagster_ckpt.runtime.task.shard_assignment import HASH, ShardAssignment
from dagster_ckpt.runtime.task.worker_engine import EngineOptions
from dagster_ckpt.storage.leases.process_identity import this_process
from dagster_ckpt.storage.stores import address as address_module
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from dagster_ckpt.storage.writer.opening import Opening
from dagster_ckpt.storage.writer.stream_writer import StreamWriter, open_stream
from tests.worlds.faulty_store import Call, Fault, FaultyStore

SCHEMA = pa.schema([("k", pa.int64())])
EPOCHS, KEYS = 3, 4000
"""What they write is more than one request reads."""


class EveryThird:
    """Of the calls of each verb, every third fails: in turn before it was done and after."""

    def __init__(self) -> None:
        self.failed = 0
        self._calls: dict[str, Iterator[int]] = {}

    def __call__(self, call: Call) -> Fault:
        number = next(self._calls.setdefault(call.verb, itertools.count(1)))
        if number % 3:
            return Fault.NONE
        self.failed += 1
        return Fault.LOST_REPLY if number % 2 else Fault.LOST_REQUEST


@pytest.fixture
def unsteady(monkeypatch: pytest.MonkeyPatch) -> FaultyStore:
    store = FaultyStore(MemoryObjectStore(uuid4().hex))
    monkeypatch.setattr(address_module, "open_store", lambda url, options: store)
    return store


@pytest.fixture
def writer(unsteady: FaultyStore) -> Iterator[StreamWriter]:
    operator = RunningAggregate.build(("k",), {"n": agg.count()}, InputSpec((), SCHEMA))
    holder = LeaseHolder("run", "tests", this_process())
    opening = Opening("counts", Owner("tests", "counts"), operator.pipeline, 2, holder, root_run="run")
    writer = open_stream(folder_store(unsteady, "counts"), opening, SystemClock())
    yield writer
    writer.close("tests")


def test_no_epoch_and_no_reader_is_lost_to_single_failures(unsteady: FaultyStore, writer: StreamWriter) -> None:
    engine = EngineOptions(cache=None)
    setup = TaskSetup(StoreAddress("memory://unsteady"), "counts", ShardAssignment.keyed(2, 1), (None,), engine)
    faults = EveryThird()
    unsteady.decide = faults
    for batch in range(EPOCHS):
        manifest = writer.manifest
        order = EpochOrder(writer.next_epoch, manifest.term, manifest.version, manifest.nonce)
        keys = np.arange(KEYS)
        hashes = (keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
        by_hash = np.argsort(hashes)
        rows = pa.record_batch({"k": keys[by_hash], HASH: hashes[by_hash].view(np.int64)})
        replies = replies_of(setup, order, 0, int(order.epoch), iter([rows]))
        acks = [reply for reply in replies if isinstance(reply, ShardAck)]
        assert len(acks) == 2, replies
        writer.commit(EpochEdit(tuple(acks), (), batch, epoch_ms=1, delays_us=(None,)))
    table = table_of(folder_store(unsteady, "counts"), SystemClock(), writer.manifest, "counts", None)
    assert sorted(table["k"].to_pylist()) == list(range(KEYS))
    assert table["n"].to_pylist() == [EPOCHS] * KEYS
    assert faults.failed >= 2 * EPOCHS
