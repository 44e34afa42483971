"""A stream as a Spark source, in the Python processes that Spark starts for it.

Its offsets are `UpstreamPosition`s. In one process the reader plans, for each micro-batch, which epochs are new; in
Spark's workers it reads their changes. Both know the store's address and nothing else. The driver (`upstreams`)
reports what is wrong with an upstream: Spark keeps only the text of an error in these processes.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.ids import EMPTY, Epoch, StreamUuid
from dagster_ckpt.protocol.epochs.upstream import (
    FORMAT,
    Reader,
    Trouble,
    UpstreamPosition,
    backfill_pin,
    decode,
    next_part,
)
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.protocol.object_names import folder_of, parts_of_name
from dagster_ckpt.protocol.transitions.renamed_columns import with_names_of
from dagster_ckpt.runtime.spark.arrow_schemas import to_arrow_schema
from dagster_ckpt.runtime.spark.unseen_store import host_named
from dagster_ckpt.runtime.upstreams.downstream import Downstream, Planned, Read
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.retention_refs.ancestors import with_ancestors
from dagster_ckpt.storage.retention_refs.pins import find_pin
from dagster_ckpt.storage.retention_refs.upstream_log import NothingFollowsError, UpstreamLog, snapshot_at
from dagster_ckpt.tables import Share, net_changes, raw_changes, table_rows

_EPOCHS_MAX = 2**31 - 1


def data_source(downstream: Downstream) -> type[DataSource]:
    """The data source for one session. The address is in its closure: it may hold secrets, and Spark shows options."""

    class UpstreamDataSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
            key = json.loads(self.options["key"])
            planned = Planned(to_arrow_schema(schema), None if key is None else tuple(key))
            return UpstreamReader(downstream, self.options["path"], Read(self.options["read"]), planned)

    # A class of a module that can be imported would be pickled by its name, and lose its closure.
    UpstreamDataSource.__module__ = "__main__"
    return UpstreamDataSource


class UpstreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads the new epochs of one upstream. An epoch counts as one file in Spark's limits.

    The first offset is the empty stream. From there it reads the snapshot that the driver has pinned, part by part, and
    then the log.
    """

    def __init__(self, downstream: Downstream, stream: str, read: Read, planned: Planned) -> None:
        self._downstream = downstream
        self._planned = planned
        self._stream = stream
        self._read = read
        self._until: Epoch | None = None

    # ---- in the process that plans

    @cached_property
    def _log(self) -> UpstreamLog:
        return UpstreamLog(self._chain, self._stream)

    @cached_property
    def _chain(self) -> ManifestChain:
        return self._downstream.chain(folder_of(parts_of_name(self._stream)))

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (here and below: Spark's names)
        return _offset(UpstreamPosition(self._log.newest().uuid))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxFiles(self._downstream.epochs_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._until = self._log.newest().epoch

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        at = _position(start)
        if at.epoch == EMPTY or at.in_snapshot:
            reader = self._reader()
            snapshot = snapshot_at(self._chain, at, reader)
            if snapshot is not None:
                return _offset(next_part(at, snapshot, reader.term, self._downstream.rows_a_part))
        epochs_max = limit.max_files if isinstance(limit, ReadMaxFiles) else _EPOCHS_MAX
        following = self._log.following(at, epochs_max, self._until)
        return _offset(UpstreamPosition.after(following[-1])) if following else dict(start)

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        after, until = _position(start), _position(end)
        tasks = self._downstream.tasks
        if after == until:
            return []
        if until.parts:
            stream = self._reader().stream
            newest = self._log.newest()
            self._check_planned(after, [with_names_of(self._pinned_manifest(stream, until), newest), newest])
            shares = [Share(piece, until.parts * tasks) for piece in range(after.part * tasks, until.part * tasks)]
            return [SnapshotShare(stream, until, share) for share in shares]
        newest = self._log.newest()
        epochs = [with_names_of(each, newest) for each in self._log.epochs_after(newest, after, until=until.epoch)]
        self._check_planned(after, [*epochs, newest])
        changed = tuple(manifest for manifest in epochs if manifest.changes)
        return [LogShare(changed, Share(task, tasks)) for task in range(tasks)] if changed else []

    # ---- in Spark's workers

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with host_named(self._chain.store):
            yield from self._rows(partition)

    def _rows(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        clock, store = SystemClock(), self._chain.store
        match partition:
            case SnapshotShare(downstream=downstream, until=until, share=share):
                snapshot = self._pinned_manifest(downstream, until)
                if not self._planned.has_names_of(snapshot.pipeline):
                    snapshot = with_names_of(snapshot, self._log.newest())
                files = with_ancestors(store, self._downstream.address.open(), snapshot.ancestors)
                yield from table_rows(files, clock, snapshot, self._planned.columns, share)
            case LogShare(epochs=epochs, share=share):
                read = net_changes if self._read is Read.TABLE else raw_changes
                yield from read(store, clock, epochs, self._planned.columns, share)

    def _check_planned(self, at: UpstreamPosition, manifests: Iterable[Manifest]) -> None:
        if not self._planned.matches([manifest.pipeline for manifest in manifests]):
            raise NothingFollowsError(Trouble.PLANNED_OTHERWISE, at)

    def _pinned_manifest(self, downstream: StreamUuid, until: UpstreamPosition) -> Manifest:
        """The snapshot that a batch up to `until` was planned on."""
        pin = find_pin(self._chain, backfill_pin(downstream, until.term))
        if pin is None or not until.is_at(pin.manifest) or pin.manifest.uuid != until.uuid:
            raise NothingFollowsError(Trouble.UNPINNED, until)
        return pin.manifest

    def _reader(self) -> Reader:
        own = self._downstream.chain(self._downstream.folder).newest()
        assert own is not None, "a downstream opens its stream before it reads"
        return Reader.of(own)


@dataclass(frozen=True)
class SnapshotShare(InputPartition):
    """One task's share of the part, up to `until`, of the snapshot that the downstream has pinned."""

    downstream: StreamUuid
    until: UpstreamPosition
    share: Share


@dataclass(frozen=True)
class LogShare(InputPartition):
    """One task's share of what epochs changed: their manifests, reduced to their change logs."""

    epochs: tuple[Manifest, ...]
    share: Share


def _position(offset: Mapping[str, Any]) -> UpstreamPosition:
    return decode(json.dumps(offset))


def _offset(position: UpstreamPosition) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(position.encode())
    return fields
