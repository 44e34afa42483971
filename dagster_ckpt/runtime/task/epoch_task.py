"""A task on Spark's executors: it makes its shards' part of the epoch durable, and ACKs it.

A Python worker imports this module, so it must never load Dagster. What is the same in every epoch is in the query's
plan (`TaskSetup`); what differs is a property of the epoch's Spark job (`EpochOrder`).
"""

import json
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from enum import Enum, auto

import numpy as np
import pyarrow as pa
from pyspark.accumulators import Accumulator, AccumulatorParam

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import (
    CheckpointDeclinedError,
    CheckpointError,
    CorruptStateError,
    InvalidPipelineError,
    OutsideCodeError,
)
from dagster_ckpt.ids import Epoch, Nonce, Shard, Term, Version
from dagster_ckpt.operators.local_aggregate import local_aggregate
from dagster_ckpt.operators.partial_aggregate import partial_aggregate
from dagster_ckpt.operators.registry import from_pipeline
from dagster_ckpt.operators.rows.append import AppendOnly
from dagster_ckpt.operators.step import OperatorStep
from dagster_ckpt.protocol.manifest.manifest import Manifest, Pipeline
from dagster_ckpt.protocol.object_names import manifest_name
from dagster_ckpt.runtime.spark.package_archive import PACKAGE
from dagster_ckpt.runtime.spark.unseen_store import unseen
from dagster_ckpt.runtime.task.ack_rows import Reply, ShardDecline, encode_replies
from dagster_ckpt.runtime.task.packed_rows import TASK, PackedRows, unpack
from dagster_ckpt.runtime.task.shard_assignment import ShardAssignment
from dagster_ckpt.runtime.task.shard_work import ShardWork
from dagster_ckpt.runtime.task.unchanged_steps import fill_table, fills_table, pass_on_table, with_steps
from dagster_ckpt.runtime.task.worker_engine import EngineOptions, exempt_from_gc, process_engine
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.retention_refs.ancestors import with_ancestors
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.stores.retry import retrying

ORDER_PROPERTY = "dagster_ckpt.epoch"
SCAN_PROPERTY = "dagster_ckpt.scan"
"""The property of a job with what each of its tasks reads by Arrow."""


class GroupedBy(Enum):
    """What groups the rows of a step before they reach its tasks."""

    SPARK = auto()
    """Spark's generated code (`PartialAggregate`)."""
    ARROW = auto()
    """The tasks that read them (`LocalAggregate`)."""


_MAKE_PARTIAL = {GroupedBy.SPARK: partial_aggregate, GroupedBy.ARROW: local_aggregate}


@dataclass(frozen=True)
class TaskSetup:
    """What the tasks of every epoch get.

    `address` may hold secrets: it is in the closure and is never shown. `code` is the user's process function, if any:
    a manifest holds no code. `step` is the number of the tasks' step. `changed`: these are the stream's steps from this
    epoch on, and those that are not kept start over. `grouped`: what has grouped the rows before, if anything.
    `package`: the file name of the archive from which the tasks must have this package.
    """

    address: StoreAddress
    folder: str
    assignment: ShardAssignment
    event_times: tuple[str | None, ...]
    engine: EngineOptions = field(default_factory=EngineOptions)
    code: object = None
    step: int = 0
    changed: Pipeline | None = None
    grouped: GroupedBy | None = None
    package: str | None = None


class Replies(AccumulatorParam[list[tuple[Epoch, str]]]):
    """The replies of the tasks of all steps, each with its epoch. The rows of the tasks are changes."""

    def zero(self, value: list[tuple[Epoch, str]]) -> list[tuple[Epoch, str]]:
        return []

    def addInPlace(  # noqa: N802  (Spark's name)
        self, value1: list[tuple[Epoch, str]], value2: list[tuple[Epoch, str]]
    ) -> list[tuple[Epoch, str]]:
        value1.extend(value2)
        return value1


ReplyAccumulator = Accumulator[list[tuple[Epoch, str]]]
"""Where the tasks of an epoch put their replies, each with the epoch's number."""


@dataclass(frozen=True, slots=True)
class PassedOn:
    """What a step passes on: its changes, with these columns.

    `numbered`: each row also has the number of the task it comes from, as `TASK`. `packed`: the next step gets tables.
    """

    columns: pa.Schema
    numbered: bool = False
    packed: PackedRows | None = None

    def batches(self, changes: pa.Table, task: int) -> Iterable[pa.RecordBatch]:
        """The changes as rows for Spark."""
        if self.packed is not None:
            return self.packed.batches(changes.select(self.columns.names))
        rows = changes.select(self.columns.names).cast(self.columns)
        if self.numbered:
            rows = rows.append_column(TASK, pa.array(np.full(rows.num_rows, task, dtype=np.int32)))
        batches: list[pa.RecordBatch] = rows.to_batches()
        return batches


@dataclass(frozen=True, slots=True)
class EpochOrder:
    """Which epoch to make, in which term, and the manifest it builds on."""

    epoch: Epoch
    term: Term
    version: Version
    nonce: Nonce

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> "EpochOrder":
        return cls(**json.loads(text))


def epoch_task(
    setup: TaskSetup,
    columns: Sequence[str] | None,
    sent: ReplyAccumulator,
    passed_on: PassedOn | None = None,
    *,
    packed: bool = False,
    reads: Callable[[str, int], Iterator[pa.RecordBatch]] | None = None,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`: the rows of a partition in, a reply for each of its shards into `sent`.

    `columns` are the real names of the rows' columns, in order. None: the epoch has no input, and the rows that Spark
    passes only make the tasks run. `passed_on`: another step follows, so the rows out are this step's changes.
    `packed`: the rows in are those of `PackedRows`. `reads`: the task reads its rows itself, by the property of the job
    that says what it reads, and its number.
    """

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "this runs in a Spark task"
        order = EpochOrder.decode(context.getLocalProperty(ORDER_PROPERTY) or "")
        if reads is not None:
            rows = reads(context.getLocalProperty(SCAN_PROPERTY) or "", context.partitionId())
        elif packed:
            rows = unpack(batches)
        elif columns is None:
            rows = (batch.slice(0, 0) for batch in batches)
        else:
            rows = (pa.RecordBatch.from_arrays(batch.columns, names=columns) for batch in batches)
        replies: list[Reply] = []
        for changes in run_task(setup, order, context.partitionId(), context.taskAttemptId(), rows, replies):
            assert passed_on is not None, "no step follows the last"
            yield from passed_on.batches(changes, context.partitionId())
        if columns is None:  # Spark starts a new Python process for the next task if one has left rows
            deque(batches, maxlen=0)
        sent.add([(order.epoch, encode_replies(replies))])
        exempt_from_gc()

    return work


def run_task(
    setup: TaskSetup,
    order: EpochOrder,
    partition: int,
    attempt: int,
    batches: Iterator[pa.RecordBatch],
    replies: list[Reply],
) -> Iterator[pa.Table]:
    """Do the work of one task: yields the changes for the next step, and adds a reply for each shard at the end.

    Any error, short of the death of the process, declines all its shards. A crash at any point leaves files that no
    manifest references, under unique names.
    """
    shards = setup.assignment.shards_of(partition)
    try:
        with _of_this_host():
            _check_package(setup.package)
            work = _begin(setup, order, attempt)
        try:
            yield from _changes(setup, work, partition, shards, batches, replies)
        except CorruptStateError:
            _check_mount(setup, work.store, order)
            raise
        _check_mount(setup, work.store, order)
    except Exception as error:  # noqa: BLE001  (every error that can be caught becomes a decline)
        kind = type(error).__name__
        reason = str(error) if isinstance(error, CheckpointError) else f"{kind}: {error}"
        replies[:] = [ShardDecline(shard, socket.gethostname(), kind, reason) for shard in shards]


def _changes(
    setup: TaskSetup,
    work: ShardWork,
    partition: int,
    shards: Sequence[Shard],
    batches: Iterator[pa.RecordBatch],
    replies: list[Reply],
) -> Iterator[pa.Table]:
    if setup.changed is not None:
        work, old = with_steps(work, setup.changed)
        if old is not None and fills_table(work, setup.changed, old):
            fill_table(work, setup.changed, old, shards, replies)
            return
        if old is not None:
            yield from pass_on_table(work, setup.changed, old, shards, setup.code, replies)
            return
    operator = _operator(setup, work.manifest)
    if isinstance(operator, AppendOnly):
        replies.append(work.append(operator, partition, batches))
    else:
        partial = None if setup.grouped is None else _MAKE_PARTIAL[setup.grouped](operator)
        yield from work.transform(operator, shards, batches, replies, partial)


def replies_of(
    setup: TaskSetup, order: EpochOrder, partition: int, attempt: int, batches: Iterator[pa.RecordBatch]
) -> list[Reply]:
    """The replies of one task of the last step."""
    replies: list[Reply] = []
    for _ in run_task(setup, order, partition, attempt, batches, replies):
        raise AssertionError("no step follows the last")
    return replies


def _check_mount(setup: TaskSetup, store: ObjectStore, order: EpochOrder) -> None:
    """Decline what was written while a shared folder was not mounted: it is below the mount point, on this host alone.

    The manifest was seen before the first file was written; it is still there after the last one. State that is missing
    together with the manifest is not damaged.
    """
    if setup.address.is_shared_folder and not store.exists(manifest_name(order.version)):
        raise CheckpointDeclinedError(unseen(store, "nothing any more of what was there when the task began"))


@contextmanager
def _of_this_host() -> Iterator[None]:
    """What cannot work in here is this host's fault: the driver has opened the store. Another try may go elsewhere."""
    try:
        yield
    except (InvalidPipelineError, OutsideCodeError) as error:
        raise CheckpointDeclinedError(f"{error}, host={socket.gethostname()}") from error


def _check_package(archive: str | None) -> None:
    """A process that had loaded this package before it got the driver's has modules of two releases."""
    if archive is not None and archive not in PACKAGE.parts:
        raise InvalidPipelineError(
            "the Python of an executor has loaded another dagster-ckpt than the driver's: remove what loads it when "
            "Python starts, such as a .pth file or spark.python.daemon.module; the driver brings its own. "
            f"loaded={PACKAGE}, expected={archive}"
        )


def _begin(setup: TaskSetup, order: EpochOrder, attempt: int) -> ShardWork:
    clock = SystemClock()
    root = setup.address.open()
    store = folder_store(root, setup.folder)
    manifest = _manifest(setup, ManifestChain(store, clock), order)
    # The chain retries by itself, the engine does not: one lost reply for one of its many files would fail the epoch.
    store = retrying(with_ancestors(store, root, manifest.ancestors), clock)
    return ShardWork(
        store=store,
        manifest=manifest,
        epoch=order.epoch,
        term=order.term,
        attempt=attempt,
        assignment=setup.assignment,
        event_times=setup.event_times,
        clock=clock,
        engine=process_engine(setup.engine, store),
        step=setup.step,
    )


@dataclass(frozen=True)
class _Known:
    """A manifest that this process has read, and the operators of its steps that it has made."""

    manifest: Manifest
    operators: dict[int, OperatorStep | AppendOnly]


_known: dict[tuple[str, str], _Known] = {}
"""What this process read last of each stream: the tasks of all steps of an epoch build on the same manifest."""
_KNOWN_MAX = 64
"""As many streams may alternate in one worker process without reading their manifests twice an epoch."""


def _manifest(setup: TaskSetup, chain: ManifestChain, order: EpochOrder) -> Manifest:
    """The manifest that the epoch builds on. A worker that cannot read it would write where no reader looks.

    It is read once an epoch in each process. No two manifests have one nonce.
    """
    place = _place(setup)
    known = _known.get(place)
    if known is not None and (known.manifest.version, known.manifest.nonce) == (order.version, order.nonce):
        return known.manifest
    try:
        manifest = chain.read(order.version)
    except CorruptStateError as error:
        raise CheckpointDeclinedError(unseen(chain.store, error)) from error
    if manifest.nonce != order.nonce:
        other = f"another manifest. version={order.version}, nonce={manifest.nonce}, expected={order.nonce}"
        raise CheckpointDeclinedError(unseen(chain.store, other))
    _known.pop(place, None)
    if len(_known) >= _KNOWN_MAX:
        del _known[next(iter(_known))]  # the one that was read longest ago
    goes_on = known is not None and known.manifest.pipeline is manifest.pipeline
    _known[place] = _Known(manifest, known.operators if known is not None and goes_on else {})
    return manifest


def _operator(setup: TaskSetup, manifest: Manifest) -> OperatorStep | AppendOnly:
    """The operator of the step: it keeps nothing from one task to the next, so one is made for all epochs.

    With code of the user's in it, each task has its own.
    """
    known = _known.get(_place(setup))
    if setup.code is not None or known is None or known.manifest is not manifest:
        return from_pipeline(manifest.pipeline.steps[setup.step], setup.code)
    if setup.step not in known.operators:
        known.operators[setup.step] = from_pipeline(manifest.pipeline.steps[setup.step])
    return known.operators[setup.step]


def _place(setup: TaskSetup) -> tuple[str, str]:
    return setup.address.url, setup.folder
