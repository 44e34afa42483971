"""The one writer of a stream, from its opening to its end."""

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import CheckpointError, CorruptStateError, FencedError, StoreUnavailableError
from dagster_ckpt.ids import Epoch, Nonce, Shard, Term, Version
from dagster_ckpt.protocol.lease import Lease, interruption
from dagster_ckpt.protocol.manifest.codec import CHANGES, FILES_SEEN
from dagster_ckpt.protocol.manifest.manifest import Manifest, Pipeline, RunRef
from dagster_ckpt.protocol.object_names import FileId, index_name
from dagster_ckpt.protocol.transitions.compatibility import breaking_changes
from dagster_ckpt.protocol.transitions.edits import EpochEdit, Stamp, epoch_manifest, reshard_manifest
from dagster_ckpt.protocol.transitions.manifest_rules import check_successor
from dagster_ckpt.protocol.transitions.step_changes import change_steps
from dagster_ckpt.storage.chain.indexed_lists import IndexedLists, open_end
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.leases.heartbeat import LeaseHeartbeat, Pulse
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.stores.probe import prove_atomic_create
from dagster_ckpt.storage.writer.drain_requests import look_interval_ms
from dagster_ckpt.storage.writer.opening import Opening, open_again, open_manifest

_log = logging.getLogger(__name__)


def open_stream(store: ObjectStore, opening: Opening, clock: Clock, pulse: Pulse | None = None) -> "StreamWriter":
    """Open the stream in the folder `store`, creating it if there is none, and begin a term whose lease beats.

    The lease beats for as long as `pulse` does; without one, for as long as this process runs.

    Waits for a writer that may still live (see `Opening`). Raises `FencedError` if one does,
    `InvalidPipelineError` for a store that cannot create atomically or a stream of another owner,
    `IncompatibleStateError` for a pipeline that no longer fits the state. Then nothing was changed.
    """
    prove_atomic_create(store, clock)
    chain = ManifestChain(store, clock)
    writer = StreamWriter(chain, opening, open_manifest(chain, opening), pulse)
    try:
        writer.heartbeat.begin()
    except BaseException as interrupt:
        # On an interrupt no caller gets this writer, but its lease would go on beating while the process lives.
        writer.close(interruption(type(interrupt).__name__))
        raise
    return writer


class StreamWriter:
    """Commits the epochs of one term. Once the outcome of a create is unknown it never commits again: see `reopen`.

    Its methods are called by one thread at a time.
    """

    def __init__(self, chain: ManifestChain, opening: Opening, manifest: Manifest, pulse: Pulse | None = None) -> None:
        self._chain = chain
        self._opening = opening
        self._manifest = manifest
        self._pulse = pulse
        self._ended: CheckpointError | None = None
        self._index_objects = 0
        self._reopenings: set[Nonce] = set()
        self.heartbeat = LeaseHeartbeat(
            chain.store,
            Lease(manifest.term, opening.holder, opening.lease_timeout_ms, manifest.epoch),
            chain.clock,
            pulse,
        )

    @property
    def store(self) -> ObjectStore:
        """The stream's folder."""
        return self._chain.store

    @property
    def term(self) -> Term:
        """The fencing token of this writer."""
        return self._manifest.term

    @property
    def manifest(self) -> Manifest:
        """The newest manifest of this writer: what the next epoch builds on."""
        return self._manifest

    @property
    def next_epoch(self) -> Epoch:
        """The epoch that the next commit makes: the one in its tasks' file names."""
        return Epoch(self._manifest.version + 1)

    @property
    def changed_pipeline(self) -> Pipeline | None:
        """The steps that the next epoch has to begin, where the stream still has others; else None."""
        pipeline = self._opening.pipeline
        return pipeline if breaking_changes(self._manifest.pipeline, pipeline) else None

    def commit(self, edit: EpochEdit, pipeline: Pipeline | None = None) -> Manifest:
        """Make the epoch visible: state, output and source positions at once. All files it names must be durable.

        `pipeline` are the steps of a changed stream, in their first epoch.

        Raises `FencedError` if another writer took over: the epoch is not committed. Raises `StoreUnavailableError` if
        the store did not answer: whether the epoch is committed is unknown until the stream is opened again.
        A crash leaves the epoch or nothing of it.
        """
        if self._ended is not None:
            raise self._ended
        with _garbage_left_for_later():
            return self._commit(edit, pipeline)

    def _commit(self, edit: EpochEdit, pipeline: Pipeline | None) -> Manifest:
        clock = self._chain.clock
        stamp = Stamp(Nonce(clock.unique()), clock.now_ms())
        parent = self._manifest if pipeline is None else change_steps(self._manifest, pipeline)
        try:
            manifest = self._with_short_lists(epoch_manifest(parent, edit, self._opening.retained, stamp))
        except CorruptStateError:
            self.check_term()  # another writer's collector may have deleted what this one has named or just written
            raise
        self._create(manifest)
        return manifest

    def reshard(self, shards: int, runs: dict[str, tuple[tuple[RunRef, ...], ...]]) -> Manifest:
        """Show the newest epoch with another number of shards, whose tables have these runs. All must be durable.

        Raises as `commit` does. A crash leaves the stream with the one number or the other.
        """
        if self._ended is not None:
            raise self._ended
        clock = self._chain.clock
        manifest = reshard_manifest(self._manifest, shards, runs, Stamp(Nonce(clock.unique()), clock.now_ms()))
        self._create(manifest)
        return manifest

    def _create(self, manifest: Manifest) -> None:
        check_successor(self._manifest, manifest)
        # Set first, in case this thread is interrupted: then it is unknown whether the epoch is committed.
        self._ended = StoreUnavailableError("the last commit was not finished: open the stream again")
        try:
            self._chain.create(self._manifest, manifest)
        except CheckpointError as error:
            self._ended = error
            raise
        self._ended = None
        self._manifest = manifest
        self.heartbeat.reach(manifest.epoch)

    def check_term(self) -> None:
        """Raise `FencedError` if another writer took over. Call it before you publish anything outside the store."""
        if not self._chain.is_newest(self._manifest):
            raise self._fenced_error()

    def look_for_another(self) -> None:
        """Raise `FencedError` if another writer took over: for an idle writer, which has no create to be refused.

        Two existence checks. If the store does not answer, or the stream is missing, it only logs a warning.
        """
        if self._ended is not None:
            return  # the next manifest may be this writer's: opening again finds out
        try:
            fenced = self._chain.is_left_behind(self._manifest)
        except (StoreUnavailableError, CorruptStateError) as error:
            _log.warning("it is unknown whether another writer took over; the check is repeated soon. reason=%s", error)
            return
        if fenced:
            raise self._fenced_error()

    def _fenced_error(self) -> FencedError:
        return FencedError(
            f"another writer took over the stream; this one has stopped and changed nothing since. "
            f"stream={self._manifest.stream}, version={self._manifest.version}, mine={self.term}"
        )

    def reopen(self, pipeline: Pipeline | None = None) -> "StreamWriter":
        """End this term and begin the next, by the same holder: what a restart of the query does.

        With another `pipeline` if there is one: `IncompatibleStateError` if it does not fit the state.

        Finds out whether an unanswered commit succeeded. Raises `FencedError` if another writer took over, and
        `StoreUnavailableError` if the store did not answer: then it may be called again.
        """
        opening = self._opening if pipeline is None else replace(self._opening, pipeline=pipeline)
        successor = open_again(self._chain, opening, self._manifest, self._reopenings)
        writer = StreamWriter(self._chain, opening, successor, self._pulse)
        try:
            writer.heartbeat.begin()
            self.close("reopened")  # not earlier, or an opener that waits for the lease would come in between
        except BaseException as interrupt:
            writer.close(interruption(type(interrupt).__name__))
            raise
        return writer

    def close(self, reason: str) -> None:
        """End this writer and close its lease, so that no opener waits for it. Never raises."""
        if self._ended is None:
            self._ended = FencedError(f"this writer was closed and must open the stream again. reason={reason}")
        self.heartbeat.end(reason)

    def _with_short_lists(self, manifest: Manifest) -> Manifest:
        store, clock, patience = self._chain.store, self._chain.clock, self._chain.patience
        changes = IndexedLists(store, CHANGES, clock, patience)
        files = IndexedLists(store, FILES_SEEN, clock, patience)
        name = self._fresh_index_name
        return replace(
            manifest,
            files=changes.shorten(manifest.files, name, open_end(len(manifest.changes))),
            sources=tuple(replace(source, files=files.shorten(source.files, name)) for source in manifest.sources),
        )

    def _fresh_index_name(self) -> str:
        # Counted over the whole term: a retried epoch has the same number.
        self._index_objects += 1
        return index_name(FileId(self.term, self.next_epoch, Shard(0), 0, self._index_objects))


@contextmanager
def _garbage_left_for_later() -> Iterator[None]:
    """Prevent a full garbage collection: with thousands of run references it takes half of a commit's time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@dataclass
class TakeoverWatch:
    """An idle writer's watch for a newer term.

    It costs two existence checks after each `interval_ms` without a manifest (one to ten seconds), and nothing while
    epochs are more frequent: a successful create proves the same.
    """

    clock: Clock
    interval_ms: int
    _looked: tuple[Version, int] | None = field(default=None, init=False)

    def look(self, writer: StreamWriter) -> None:
        """Raise `FencedError` if another writer took over. Do not call it during a commit."""
        version, now_ms = writer.manifest.version, self.clock.monotonic_ms()
        if self._looked is None or self._looked[0] != version:
            self._looked = version, now_ms
        elif now_ms - self._looked[1] >= look_interval_ms(self.interval_ms):
            self._looked = version, now_ms
            writer.look_for_another()
