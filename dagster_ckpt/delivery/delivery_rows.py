"""The rows between two positions of a stream, as a delivery's transaction takes them."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from dagster_ckpt.delivery.destination import DeliveredTable, DeliveryMode
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.ids import EMPTY, Epoch
from dagster_ckpt.operators.shared.checks.updating_checks import row_key
from dagster_ckpt.protocol.change_columns import CHANGE_FIELDS, CHANGE_TYPE
from dagster_ckpt.protocol.epochs.upstream import Reader, UpstreamPosition, next_part
from dagster_ckpt.protocol.manifest.manifest import Manifest, Pipeline
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.holders.ancestors import with_ancestors
from dagster_ckpt.storage.holders.upstream_log import UpstreamLog, snapshot_at
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.tables import Share, net_changes, raw_changes, table_rows


@dataclass(frozen=True)
class Step:
    """The next rows to deliver, and the position behind them. `epochs` is how many epochs they are of."""

    until: UpstreamPosition
    rows: Iterator[pa.RecordBatch]
    epochs: int = 1


def delivered_table(stream: str, pipeline: Pipeline, mode: DeliveryMode) -> DeliveredTable:
    """What is delivered of a stream with this pipeline.

    Raises `InvalidPipelineError` for an upsert delivery of a table whose rows have no key.
    """
    if mode is DeliveryMode.UPSERT:
        if pipeline.appends:
            raise InvalidPipelineError(
                "the rows of this stream's table have no key, so none can be updated: deliver it with "
                f"mode='append'. stream={stream}"
            )
        return DeliveredTable(stream, pipeline.output, row_key(pipeline), mode)
    columns = pipeline.output if pipeline.appends else pa.schema([*pipeline.output, *CHANGE_FIELDS])
    return DeliveredTable(stream, columns, (), mode)


@dataclass(frozen=True)
class DeliveryRows:
    """Reads a stream for a delivery. `root` is the store, `chain` the stream's manifests.

    A step has at most `epochs_max` epochs, or a part of the stream's table.
    """

    root: ObjectStore
    chain: ManifestChain
    log: UpstreamLog
    table: DeliveredTable
    epochs_max: int

    def following(self, at: UpstreamPosition, reader: Reader, until: Epoch | None = None) -> Step | None:
        """What comes next; None if nothing does. `until` is the last epoch to deliver.

        Raises `NothingFollowsError` if the position cannot be followed.
        """
        if at.epoch == EMPTY or at.in_snapshot:
            snapshot = snapshot_at(self.chain, at, reader)
            if snapshot is not None:
                end = next_part(at, snapshot, reader.term)
                return Step(end, self._of_table(snapshot, Share(end.part - 1, end.parts)))
        epochs = self.log.following(at, self.epochs_max, until)
        if not epochs:
            return None
        return Step(UpstreamPosition(at.uuid, epochs[-1].epoch), self._of_log(epochs), len(epochs))

    def whole(self) -> Step:
        """The stream's table now: what replaces all that the destination has."""
        newest = self.log.newest()
        rows = iter(()) if newest.epoch == EMPTY else self._of_table(newest, Share())
        return Step(UpstreamPosition(newest.uuid, newest.epoch), rows)

    @property
    def _columns(self) -> pa.Schema:
        """The columns to read: an upsert needs to know the kind of each change."""
        upserts = self.table.mode is DeliveryMode.UPSERT
        return self.table.columns.append(pa.field(CHANGE_TYPE, pa.string())) if upserts else self.table.columns

    def _of_table(self, shown: Manifest, share: Share) -> Iterator[pa.RecordBatch]:
        files = with_ancestors(self.chain.store, self.root, shown.ancestors)
        return table_rows(files, self.chain.clock, shown, self._columns, share)

    def _of_log(self, epochs: list[Manifest]) -> Iterator[pa.RecordBatch]:
        read = net_changes if self.table.mode is DeliveryMode.UPSERT else raw_changes
        return read(self.chain.store, self.chain.clock, epochs, self._columns)
