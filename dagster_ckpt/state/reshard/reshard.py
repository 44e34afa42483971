"""Gives a stream another number of shards, at a person's request, outside of any Dagster run.

Tables sorted by hash are reassigned by the manifest alone. Timelines are rewritten before it, by a writer whose lease
beats meanwhile: so no other writer opens the stream until it is done, unless it is asked to take over.

    a crash                         leaves
    before the stream was opened    nothing
    while timelines are written     the stream as it was, under a new term; files of that term that no manifest names,
                                    which any collector removes once the next term has begun
    after the manifest              the stream with its new number, and a lease that lapses
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from dagster_ckpt.errors import CorruptStateError, IncompatibleStateError, InvalidPipelineError
from dagster_ckpt.ids import SHARDS_MAX, Nonce, Shard, can_be_shards
from dagster_ckpt.lsm.compaction.resharded_runs import reshard_lists as with_clips
from dagster_ckpt.lsm.compaction.run_lists import RunLists
from dagster_ckpt.lsm.table import KEY_HASH
from dagster_ckpt.protocol.lease import interruption
from dagster_ckpt.protocol.manifest.codec import encode_manifest
from dagster_ckpt.protocol.manifest.manifest import Manifest, SortKind, StateTableSpec
from dagster_ckpt.protocol.object_names import FileId
from dagster_ckpt.protocol.transitions.edits import Stamp, reshard_manifest
from dagster_ckpt.state.engine import Engine
from dagster_ckpt.state.reshard.timeline_rewrite import TimelineRewrite
from dagster_ckpt.state.runs.run_writer import RunWriter
from dagster_ckpt.storage.chain.damaged_end import BrokenEnd
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.holders.ancestors import with_ancestors
from dagster_ckpt.storage.leases.liveness import Pulse
from dagster_ckpt.storage.operations.manual_opening import opening_by_hand
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.stores.probe import prove_atomic_create
from dagster_ckpt.storage.stores.retrying_store import retrying
from dagster_ckpt.storage.writer.opening import Takeover
from dagster_ckpt.storage.writer.stream_writer import StreamWriter, open_stream

Progress = Callable[[int, int], None]
"""Called with the bytes rewritten so far, and the bytes to rewrite in all."""


def reshard(
    root: ObjectStore,
    chain: ManifestChain,
    shards: int,
    take_over: Takeover,
    engine: Engine,
    progress: Progress | None = None,
) -> Manifest:
    """Give a stream, which exists, that number of shards: the manifest that shows its epoch with it.

    `chain` is the stream's, `root` the store that it and its ancestors are in.

    Raises `FencedError` while a writer lives, unless it may be fenced; `InvalidPipelineError` for a number that cannot
    be or that the stream has already; `CorruptStateError` where its newest manifest, or a timeline, is damaged.
    """
    if not can_be_shards(shards) or shards > SHARDS_MAX:
        raise InvalidPipelineError(
            f"shards must be a power of two from 1 to {SHARDS_MAX}: each is a range of the 64-bit key hash. "
            f"shards={shards!r}"
        )
    prove_atomic_create(chain.store, chain.clock)
    end = chain.end()
    assert end is not None, "only what exists can be resharded"
    if isinstance(end, BrokenEnd):
        raise CorruptStateError(end.damage)
    _check(end, shards)
    pulse = Pulse(chain.clock, engine.io.timeout_ms)
    writer = _open(chain, end, take_over, pulse)
    try:
        _check(writer.manifest, shards)  # another process may have been quicker
        behind = _Behind(writer.manifest, progress, pulse)
        manifest = writer.reshard(shards, runs_of(writer.manifest, _rewrite(root, writer, shards, engine), behind))
    except BaseException as error:
        writer.close(interruption(type(error).__name__))
        raise
    writer.close(f"resharded to {shards}")
    return manifest


def _open(chain: ManifestChain, newest: Manifest, take_over: Takeover, pulse: Pulse) -> StreamWriter:
    """The stream, open with the pipeline that it has, also where a run changes that meanwhile."""
    while True:
        try:
            return open_stream(chain.store, opening_by_hand(chain, newest, "reshard", take_over), chain.clock, pulse)
        except IncompatibleStateError:
            later = chain.newest()
            if later is None or later.pipeline == newest.pipeline:
                raise
            newest = later


def _check(newest: Manifest, shards: int) -> None:
    """Check that the stream can have this number of shards and has not; before any writer is fenced."""
    if newest.shards == shards:
        raise InvalidPipelineError(
            f"the stream already has this number of shards; nothing changed. stream={newest.stream}, shards={shards}"
        )
    for spec in _timelines(newest):
        if KEY_HASH not in spec.schema.names and any(newest.runs[spec.name]):
            raise InvalidPipelineError(
                f"the stream's state was begun by a release that could not reshard it: start it over with rollback(0) "
                f"and the release that is installed now. stream={newest.stream}, table={spec.name}"
            )
    runs = _without_timelines(newest, shards)
    encode_manifest(
        reshard_manifest(newest, shards, runs, Stamp(Nonce(""), newest.time_ms))
    )  # raises where it is too large


def runs_of(shown: Manifest, rewrite: TimelineRewrite, behind: Callable[[int], None]) -> dict[str, RunLists]:
    """The runs of all tables for the number of shards that the rewrite is for, every new file durable.

    `behind` is called with the bytes of timelines rewritten, piece by piece. Raises `CorruptStateError`.
    """
    runs = _without_timelines(shown, rewrite.shards)
    for spec in _timelines(shown):
        runs[spec.name] = rewrite.rewritten(spec, shown.runs[spec.name], behind)
    return runs


def _rewrite(root: ObjectStore, writer: StreamWriter, shards: int, engine: Engine) -> TimelineRewrite:
    store = retrying(with_ancestors(writer.store, root, writer.manifest.ancestors), engine.clock)
    file = FileId(writer.term, writer.manifest.epoch, Shard(0), 0)
    return TimelineRewrite(store, engine, RunWriter(store, file, engine), shards)


def _without_timelines(shown: Manifest, shards: int) -> dict[str, RunLists]:
    nothing: RunLists = ((),) * shards
    return {
        spec.name: nothing if spec.sort is SortKind.TIME else with_clips(shown.runs[spec.name], shards)
        for spec in shown.pipeline.all_tables
    }


def _timelines(shown: Manifest) -> list[StateTableSpec]:
    return [spec for spec in shown.pipeline.all_tables if spec.sort is SortKind.TIME]


@dataclass
class _Behind:
    """Counts the bytes of timelines that are done, and signals progress to the lease."""

    shown: Manifest
    progress: Progress | None
    pulse: Pulse
    bytes: int = field(default=0, init=False)

    def __call__(self, bytes_: int) -> None:
        self.pulse.sign()
        self.bytes += bytes_
        if self.progress is not None:
            every = (refs for spec in _timelines(self.shown) for refs in self.shown.runs[spec.name])
            self.progress(self.bytes, sum(ref.bytes for refs in every for ref in refs))
