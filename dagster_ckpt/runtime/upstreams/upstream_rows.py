"""The rows of an upstream between two positions, in shares that several tasks read."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.ids import EMPTY, Epoch, StreamUuid
from dagster_ckpt.protocol.epochs.upstream import Reader, Trouble, UpstreamPosition, backfill_pin, next_part
from dagster_ckpt.protocol.manifest.manifest import ChangeKind, Manifest, Pipeline
from dagster_ckpt.protocol.object_names import folder_of, parts_of_name
from dagster_ckpt.protocol.transitions.renamed_columns import with_names_of
from dagster_ckpt.runtime.spark.unseen_store import host_named
from dagster_ckpt.runtime.upstreams.downstream import BatchLimits, Planned, Read
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.retention_refs.ancestors import with_ancestors
from dagster_ckpt.storage.retention_refs.pins import find_pin
from dagster_ckpt.storage.retention_refs.upstream_log import NothingFollowsError, UpstreamLog, snapshot_at
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.tables import Share, net_changes, raw_changes, table_rows

_ROW_BYTES = 32


@dataclass(frozen=True)
class UpstreamShare(InputPartition):
    """A share of what is read of an upstream at once, which has `total_bytes`, about, in all shares.

    `keys`: it has the rows whose hash of these columns is in its range. None: it has any rows.
    """

    share: Share
    total_bytes: int
    keys: tuple[str, ...] | None

    @property
    def bytes(self) -> int:
        """About how many bytes it has."""
        return self.total_bytes // self.share.of

    def split(self, tasks: int) -> list[Self]:
        """The shares of so many tasks, which together are this one."""
        return [replace(self, share=share) for share in self.share.split(tasks)]


@dataclass(frozen=True)
class SnapshotShare(UpstreamShare):
    """A share of the part, up to `until`, of the snapshot that the downstream has pinned."""

    downstream: StreamUuid
    until: UpstreamPosition


@dataclass(frozen=True)
class LogShare(UpstreamShare):
    """A share of what epochs changed: their manifests, reduced to their change logs."""

    epochs: tuple[Manifest, ...]


class UpstreamRows:
    """What a stream reads of an upstream, both in the store at this address. `folder` is the reading stream's.

    What it has read of the store stays in its process.
    """

    def __init__(self, address: StoreAddress, folder: str, stream: str, read: Read, planned: Planned) -> None:
        self._address = address
        self._folder = folder
        self._stream = stream
        self._read = read
        self.planned = planned

    def __reduce__(self) -> tuple[Any, ...]:
        return UpstreamRows, (self._address, self._folder, self._stream, self._read, self.planned)

    @cached_property
    def log(self) -> UpstreamLog:
        """The upstream's epochs."""
        return UpstreamLog(self.chain, self._stream)

    @cached_property
    def chain(self) -> ManifestChain:
        """The upstream's manifests."""
        return self._chain(folder_of(parts_of_name(self._stream)))

    def reader(self) -> Reader:
        """The reading stream, as its newest manifest has it."""
        own = self._chain(self._folder).newest()
        assert own is not None, "a downstream opens its stream before it reads"
        return Reader.of(own)

    def beginning(self) -> UpstreamPosition:
        """The position before all there is."""
        return UpstreamPosition(self.log.newest().uuid)

    def next_position(self, at: UpstreamPosition, limits: BatchLimits, until: Epoch | None) -> UpstreamPosition:
        """The position after the next micro-batch that begins at this one; the same where nothing is new.

        Nothing comes after the epoch `until`. Raises `NothingFollowsError`.
        """
        if at.epoch == EMPTY or at.in_snapshot:
            reader = self.reader()
            snapshot = snapshot_at(self.chain, at, reader)
            if snapshot is not None:
                return next_part(at, snapshot, reader.term, limits.rows_a_part)
        following = self.log.following(at, limits.epochs_max, until)
        return UpstreamPosition.after(following[-1]) if following else at

    def shares(self, after: UpstreamPosition | None, until: UpstreamPosition) -> Sequence[UpstreamShare]:
        """What is read between these positions, None being the beginning. A share can be split.

        Raises `NothingFollowsError` where the upstream no longer has it as it was planned.
        """
        newest = self.log.newest()
        after = after or UpstreamPosition(until.uuid)
        if after == until:
            return []
        if until.parts:
            stream = self.reader().stream
            pinned = self._pinned_manifest(stream, until)
            self._check_planned(after, [with_names_of(pinned, newest), newest])
            parts = [Share(part, until.parts) for part in range(after.part, until.part)]
            keys = self._hash_columns([pinned, newest])
            return [SnapshotShare(part, _table_bytes(pinned), keys, stream, until) for part in parts]
        epochs = [with_names_of(each, newest) for each in self.log.epochs_after(newest, after, until=until.epoch)]
        self._check_planned(after, [*epochs, newest])
        changed = tuple(manifest for manifest in epochs if manifest.changes)
        if not changed:
            return []
        files = [ref for each in changed for ref in each.changes]
        in_runs = all(ref.kind is ChangeKind.RUN for ref in files)
        keys = self._hash_columns([*changed, newest]) if in_runs else None
        return [LogShare(Share(), sum(ref.bytes for ref in files), keys, changed)]

    def rows(self, share: InputPartition, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        """These columns of the rows of a share."""
        with host_named(self.chain.store):
            yield from self._rows(share, columns)

    def _rows(self, share: InputPartition, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        clock, store = SystemClock(), self.chain.store
        match share:
            case SnapshotShare(downstream=downstream, until=until, share=part):
                snapshot = self._pinned_manifest(downstream, until)
                if not self.planned.has_names_of(snapshot.pipeline):
                    snapshot = with_names_of(snapshot, self.log.newest())
                files = with_ancestors(store, self._address.open(), snapshot.ancestors)
                yield from table_rows(files, clock, snapshot, columns, part)
            case LogShare(epochs=epochs, share=part):
                read = net_changes if self._read is Read.TABLE else raw_changes
                yield from read(store, clock, epochs, columns, part)

    def _check_planned(self, at: UpstreamPosition, manifests: Iterable[Manifest]) -> None:
        if not self.planned.matches([manifest.pipeline for manifest in manifests]):
            raise NothingFollowsError(Trouble.PLANNED_OTHERWISE, at)

    def _hash_columns(self, manifests: Sequence[Manifest]) -> tuple[str, ...] | None:
        """The columns by whose hash the rows that these manifests show are in shares; None: it is not known.

        A column that is read with another type than it has in the state has another hash, and of a join a row may be
        where the key of either side says.
        """
        keys = manifests[-1].pipeline.key_names
        is_known = all(
            pipeline.key_names == keys and _is_by_its_key(pipeline) and self._reads_as_stored(pipeline, keys)
            for pipeline in (each.pipeline for each in manifests)
        )
        return keys if is_known else None

    def _reads_as_stored(self, pipeline: Pipeline, keys: Sequence[str]) -> bool:
        there, read = (
            dict(zip(each.names, each.types, strict=True)) for each in (pipeline.output, self.planned.columns)
        )
        return all(key in read and there.get(key) == read[key] for key in keys)

    def _pinned_manifest(self, downstream: StreamUuid, until: UpstreamPosition) -> Manifest:
        """The snapshot that a batch up to `until` was planned on."""
        pin = find_pin(self.chain, backfill_pin(downstream, until.term))
        if pin is None or not until.is_at(pin.manifest) or pin.manifest.uuid != until.uuid:
            raise NothingFollowsError(Trouble.UNPINNED, until)
        return pin.manifest

    def _chain(self, folder: str) -> ManifestChain:
        return ManifestChain(folder_store(self._address.open(), folder), SystemClock())


def _is_by_its_key(pipeline: Pipeline) -> bool:
    return len(pipeline.inputs) == 1 and not pipeline.appends


def _table_bytes(snapshot: Manifest) -> int:
    """About how many bytes the files of a table have."""
    statistics = snapshot.statistics
    return max(statistics.state_bytes, _ROW_BYTES * (snapshot.table_rows or statistics.state_rows))
