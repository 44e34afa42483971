"""A Dagster run's process that delivers: the product's own run, with rows as the simulation's tasks write them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from dagster_ckpt.clock import Clock
from dagster_ckpt.delivery import delivery_rows, delivery_run
from dagster_ckpt.delivery.delivery_run import DeliveryJob, run_delivery
from dagster_ckpt.errors import CorruptStateError, StoreUnavailableError
from dagster_ckpt.ids import EMPTY, Term
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE, EPOCH, INSERT, UPDATE_POSTIMAGE
from dagster_ckpt.protocol.epochs.upstream import UpstreamPosition, next_part
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.runtime.driver import terms
from dagster_ckpt.runtime.driver.stream_job import JobHooks, JobOptions, JobResult
from dagster_ckpt.runtime.lag import lag, source_lags
from dagster_ckpt.runtime.lag.lag import Lag
from dagster_ckpt.runtime.micro_batch.epoch_driver import CommittedEpoch
from dagster_ckpt.runtime.run_mode import Mode
from dagster_ckpt.runtime.upstreams.upstreams import Upstreams
from dagster_ckpt.storage.operations.collector import Collected, Collector
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.stores.object_store import ObjectMissingError, ObjectStore
from dagster_ckpt.storage.stores.retry import retrying
from dagster_ckpt.storage.writer.opening import Opening
from dagster_ckpt.tables import Share
from dagster_ckpt.tables.table_changes import PATIENCE
from dagster_ckpt.tables.table_rows import files_of
from tests.simulation.job import TABLE, Sums, decode_rows, decode_sums, shown

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process
    from tests.simulation.stream import SimulatedStream
    from tests.simulation.world import World

TICK_MS = 5_000
"""How long a waiting run sleeps at a time: 200 ms would be a hundred thousand moves of a world."""
LAG_MS = 600_000


class DeliveryDriver:
    """Lives in `process`, and ends with it."""

    def __init__(self, stream: "SimulatedStream", process: "Process", opening: Opening) -> None:
        assert stream.delivery is not None
        self.stream, self.delivery = stream, stream.delivery
        self.world = stream.world
        self.process = process
        self.opening = opening
        self.commits = 0

    def live(self, on_open: Callable[[], None]) -> None:
        """What a continuous run does, until it has committed often enough."""
        self._run(Mode.CONTINUOUS, on_open)

    def deliver_all(self) -> Term:
        """Deliver what there is; returns the term in which it did."""
        result = self._run(Mode.AVAILABLE_NOW, lambda: None)
        self.delivery.oracle.has_arrived(f"{self.stream.name}@{result.manifest.uuid}")
        return result.manifest.term

    def _run(self, mode: Mode, on_open: Callable[[], None]) -> JobResult:
        stream, delivery, root = self.stream, self.delivery, self.world.root_of(self.process)
        job = DeliveryJob(
            asset=stream.name,
            stream=delivery.upstream.name,
            destination=self.world.parts.destination(self.process, delivery.line),
            mode=delivery.mode,
            address=cast(StoreAddress, SimpleNamespace(open=lambda: root)),
            folder=stream.folder,
            opening=lambda pipeline: replace(self.opening, pipeline=pipeline, shards=1),
            options=self._options(mode),
            epochs_max=delivery.character.epochs_max,
        )

        def opened(manifest: Manifest) -> None:
            stream.oracle.heard(manifest)
            on_open()

        hooks = JobHooks(self._committed, self._stop_reason, on_open=opened, on_lag=self._measured)
        return run_delivery(job, hooks, self.world.clock_of(self.process))

    def _options(self, mode: Mode) -> JobOptions:
        character, own = self.world.character, self.delivery.character
        return JobOptions(
            mode=mode,
            checkpoint_interval_ms=own.interval_ms,
            timeout_ms=character.timeout_ms,
            slack_ms=character.timeout_ms,
            tolerable_failures=own.tolerated,
            backoff_ms=500,
            backoff_ms_max=5_000,
            grace_ms=character.grace_ms,
            max_lag=self.world.max_lag,
            lag_interval_ms=LAG_MS,
        )

    def _committed(self, committed: CommittedEpoch) -> None:
        self.stream.oracle.heard(committed.manifest)
        self.world.dagster.progressed()
        self.commits += 1

    def _stop_reason(self) -> str | None:
        return "ended" if self.commits >= self.delivery.character.commits_max and not self.world.is_over else None

    def _measured(self, lag: Lag | None) -> None:
        # The gauge's own thread measures too; the run itself does so once, when its work is done.
        if self.world.scheduler.this().role == "driver":
            self.world.dagster.closes()


class JudgedCollector:
    """A collector whose thread hides no error but those that a later pass mends."""

    def __init__(self, world: "World", collector: Collector) -> None:
        self._world = world
        self._collector = collector
        self.chain, self.grace_ms = collector.chain, collector.grace_ms

    def collect(self, writer: Term | None) -> Collected:
        try:
            return self._collector.collect(writer)
        except StoreUnavailableError:
            raise
        except Exception as error:
            self._world.scheduler.hub.throw(error)
            raise


def patches(world: "World", stream: "SimulatedStream") -> tuple[tuple[Any, str, object], ...]:
    """The modules of deliveries with the world's threads, rows and constants."""
    delivery = stream.delivery
    assert delivery is not None

    class Subscribing(Upstreams):
        """Says to the judge from where on the log is kept."""

        def hold(self, manifest: Manifest) -> None:
            super().hold(manifest)
            assert stream.reading is not None
            stream.reading.subscribed(manifest)

    def in_parts(at: UpstreamPosition, snapshot: Manifest, pinned_in: Term) -> UpstreamPosition:
        end = next_part(at, snapshot, pinned_in)
        is_first = at.epoch == EMPTY
        return replace(end, parts=delivery.chance.choice(delivery.character.parts)) if is_first else end

    def collector(*arguments: Any) -> JudgedCollector:
        return JudgedCollector(world, world.parts.collector(*arguments))

    return (
        (delivery_run, "ManifestChain", world.patient_chain),
        (delivery_run, "Collector", collector),
        (delivery_run, "Upstreams", Subscribing),
        (delivery_run, "TICK_MS", TICK_MS),
        (terms, "TICK_MS", TICK_MS),
        (terms, "threading", world.threads),
        (lag, "threading", world.threads),
        (source_lags, "ManifestChain", world.patient_chain),
        (delivery_rows, "next_part", in_parts),
        (delivery_rows, "table_rows", table_rows),
        (delivery_rows, "net_changes", net_changes),
        (delivery_rows, "raw_changes", raw_changes),
    )


# ---- what `dagster_ckpt.tables` reads of Arrow files, of the simulation's


def table_rows(
    store: ObjectStore, clock: Clock, manifest: Manifest, schema: pa.Schema, share: Share
) -> Iterator[pa.RecordBatch]:
    if manifest.pipeline.appends:
        refs = share.files(files_of(store, clock, manifest))
        rows = [row for ref in refs for row in decode_rows(_read(store, clock, ref.name))]
        yield _batch(schema, [(str(key), amount) for key, amount in rows], manifest.epoch, INSERT)
        return
    sums: Sums = {}
    for runs in manifest.runs[TABLE]:
        for run in reversed(runs):
            sums |= shown(run, decode_sums(_read(store, clock, run.name)))
    found = [(key, total) for key, total in sums.items() if int(key) % share.of == share.number]
    yield _batch(schema, found, manifest.epoch, INSERT)


def raw_changes(
    store: ObjectStore, clock: Clock, manifests: Sequence[Manifest], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    for manifest in manifests:
        for change in manifest.changes:
            data = _read(store, clock, change.name)
            rows = decode_rows(data) if manifest.pipeline.appends else decode_sums(data).items()
            yield _batch(schema, [(str(key), value) for key, value in rows], manifest.epoch, UPDATE_POSTIMAGE)


def net_changes(
    store: ObjectStore, clock: Clock, manifests: Sequence[Manifest], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    found: Sums = {}
    for manifest in manifests:
        for change in manifest.changes:
            found |= decode_sums(_read(store, clock, change.name))
    yield _batch(schema, list(found.items()), manifests[-1].epoch, UPDATE_POSTIMAGE)


def _read(store: ObjectStore, clock: Clock, name: str) -> bytes:
    try:
        return retrying(store, clock, PATIENCE).get(name)
    except ObjectMissingError as error:
        raise CorruptStateError(f"a file of the stream is missing. file={name}") from error


def _batch(schema: pa.Schema, rows: Sequence[tuple[str, int]], epoch: int, kind: str) -> pa.RecordBatch:
    constants = {EPOCH: epoch, CHANGE_TYPE: kind}
    columns: list[Sequence[object]] = [[key for key, _ in rows], [float(value) for _, value in rows]]
    columns += [[constants[name]] * len(rows) for name in schema.names[2:]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
