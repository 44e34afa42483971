"""An append-only stream whose epochs are written without Spark, and its deliveries, run without Dagster."""

from collections.abc import Callable
from itertools import count, pairwise
from pathlib import Path
from time import perf_counter

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.delivery.delivery_run import DeliveryJob, run_delivery
from dagster_ckpt.delivery.destination import DeliveryMode, Destination
from dagster_ckpt.ids import Shard
from dagster_ckpt.operators import AppendOnly
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.lease import LeaseHolder
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Owner, Pipeline
from dagster_ckpt.protocol.object_names import FileId, folder_of
from dagster_ckpt.protocol.transitions.edits import EpochEdit
from dagster_ckpt.runtime.driver.stream_job import JobHooks, JobOptions
from dagster_ckpt.state.committed import change_log
from dagster_ckpt.storage.leases.process_identity import this_process
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.writer.opening import Opening, Takeover
from dagster_ckpt.storage.writer.stream_writer import open_stream

STREAM = "flights"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("delay", pa.float64()),
    ]
)
_CARRIERS = pa.array(["UA", "B6", "EV", "DL", "AA", "MQ", "US", "9E", "WN", "VX"])


def flights(first: int, rows: int) -> pa.Table:
    """Rows with the ids from `first` on."""
    chance, ids = np.random.default_rng(first), np.arange(first, first + rows)
    return pa.table(
        {
            "id": ids,
            "at": pa.array(1_700_000_000_000_000 + ids * 1_000).cast(SCHEMA.field("at").type),
            "carrier": _CARRIERS.take(pa.array(chance.integers(len(_CARRIERS), size=rows))),
            "flight": chance.integers(1, 9_999, rows).astype(np.int32),
            "delay": chance.integers(-30, 300, rows) / 4,
        },
        schema=SCHEMA,
    )


def records(rows: pa.Table) -> list[bytes]:
    """Each row as JSON."""
    moments = pc.strftime(rows["at"], "%Y-%m-%dT%H:%M:%SZ")
    return pl.DataFrame(rows.set_column(1, "at", moments)).write_ndjson().encode().splitlines()


class WrittenStream:
    """A stream in the store below `folder`, and deliveries of it, each transaction of which is one epoch."""

    def __init__(self, folder: Path) -> None:
        self._clock, self._address = SystemClock(), StoreAddress(folder.as_uri())
        self._operator = AppendOnly.build(InputSpec((), SCHEMA))
        store = folder_store(self._address.open(), folder_of((STREAM,)))
        self._writer = open_stream(store, _opening(STREAM)(self._operator.pipeline), self._clock)
        self._batches = count()

    def commit(self, rows: pa.Table) -> None:
        """An epoch with these rows."""
        file = FileId(self._writer.term, self._writer.next_epoch, Shard(0), 0)
        changes = self._operator.changes(rows)
        written = change_log.write(self._writer.store, file, changes.rows)
        assert written is not None, "an epoch has rows"
        ack = ShardAck(Shard(0), changes=(written,), rows_in=len(rows), rows_out=changes.count)
        self._writer.commit(EpochEdit((ack,), (), next(self._batches), epoch_ms=1))

    def deliver(self, name: str, destination: Destination) -> list[float]:
        """Deliver what was committed since the last time; seconds of each transaction but the first.

        From one to the next, so all that a delivery does is in it: read, write, commit, record. What the first takes is
        mostly the opening of the destination.
        """
        ends: list[float] = []
        job = delivery_of(STREAM, self._address, name, destination, JobOptions())
        run_delivery(job, JobHooks(on_commit=lambda _: ends.append(perf_counter())), self._clock)
        return [after - before for before, after in pairwise(ends)]


def delivery_of(
    stream: str, store: StoreAddress, name: str, destination: Destination, options: JobOptions, epochs_max: int = 1
) -> DeliveryJob:
    """A delivery that appends; each transaction has at most `epochs_max` epochs."""
    return DeliveryJob(
        asset=name,
        stream=stream,
        destination=destination,
        mode=DeliveryMode.APPEND,
        address=store,
        folder=folder_of((name,)),
        opening=_opening(name),
        options=options,
        epochs_max=epochs_max,
    )


def _opening(name: str) -> Callable[[Pipeline], Opening]:
    def opening(pipeline: Pipeline) -> Opening:
        return Opening(
            stream=name,
            owner=Owner("benchmark", name),
            pipeline=pipeline,
            shards=1,
            holder=LeaseHolder("benchmark", "benchmark", this_process()),
            root_run="benchmark",
            retained=1_000,
            take_over=Takeover.ALWAYS,
        )

    return opening
