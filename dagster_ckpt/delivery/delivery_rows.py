"""The rows between two positions of a stream, as a delivery's transaction takes them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dagster_ckpt.delivery.destination import DeliveredTable, DeliveryMode, SchemaChanges
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.ids import EMPTY, Epoch, Version
from dagster_ckpt.protocol.change_columns import CHANGE_FIELDS, CHANGE_TYPE
from dagster_ckpt.protocol.epochs.upstream import (
    BYTES_A_PART,
    ROWS_A_PART,
    Reader,
    UpstreamPosition,
    backfill_pin,
    next_part,
)
from dagster_ckpt.protocol.manifest.manifest import Manifest, Pipeline
from dagster_ckpt.protocol.manifest.row_key import HOW_TO_A_KEY, row_key
from dagster_ckpt.protocol.transitions.renamed_columns import with_names_of
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.retention_refs.ancestors import with_ancestors
from dagster_ckpt.storage.retention_refs.pins import find_pin
from dagster_ckpt.storage.retention_refs.upstream_log import NothingFollowsError, UpstreamLog, snapshot_at
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.tables import Share, net_changes, raw_changes, table_rows


class ColumnsChangedError(Exception):
    """The columns of the stream's table have changed: the destination has to be opened again."""


@dataclass(frozen=True)
class NextRows:
    """The next rows to deliver, and the position after them. `epochs` is the number of epochs that they are from.

    `table_rows` is the number of rows that the destination's table then has, None if unknown. If it `replaces`, the
    rows are the whole table. `shown` is the manifest whose table they are read from, None for the change log.
    """

    until: UpstreamPosition
    rows: Iterator[pa.RecordBatch]
    epochs: int = 1
    table_rows: int | None = None
    replaces: bool = False
    shown: Manifest | None = None


def delivered_table(
    stream: str, pipeline: Pipeline, mode: DeliveryMode, schema_changes: SchemaChanges = SchemaChanges.ADD
) -> DeliveredTable:
    """What is delivered of a stream with this pipeline.

    Raises `InvalidPipelineError` for an upsert delivery of a table whose rows have no key.
    """
    if mode is DeliveryMode.UPSERT:
        key = None if pipeline.appends else row_key(pipeline)
        if key is None:
            raise InvalidPipelineError(
                "the rows of this stream's table have no key, so none can be updated: deliver it with mode='append'; "
                f"{HOW_TO_A_KEY}. stream={stream}"
            )
        return DeliveredTable(stream, pipeline.output, key, mode, schema_changes)
    columns = pipeline.output if pipeline.appends else pa.schema([*pipeline.output, *CHANGE_FIELDS])
    return DeliveredTable(stream, columns, (), mode, schema_changes)


@dataclass(frozen=True)
class DeliveryRows:
    """Reads a stream for a delivery. `root` is the store, `chain` the stream's manifests.

    A step is a part of the stream's table, or its next epochs: at most `epochs_max`, with no more than `ROWS_A_PART`
    rows and `BYTES_A_PART` bytes together, unless one epoch alone has more. So a transaction stays small,
    however far behind the delivery is.
    """

    root: ObjectStore
    chain: ManifestChain
    log: UpstreamLog
    table: DeliveredTable
    epochs_max: int

    def key_at(self, at: UpstreamPosition, reader: Reader) -> tuple[str, ...] | None:
        """The key of the rows up to a position that can be followed; None where there are none, or need no key."""
        if at.epoch == EMPTY or not self._upserts:
            return None
        shown = snapshot_at(self.chain, at, reader) if at.in_snapshot else self.chain.find(Version(at.epoch))
        return None if shown is None else delivered_table(self.table.stream, shown.pipeline, self.table.mode).key

    def following(self, at: UpstreamPosition, reader: Reader, until: Epoch | None = None) -> NextRows | None:
        """What comes next; None if nothing does. `until` is the last epoch to deliver.

        Raises `NothingFollowsError` if the position cannot be followed, and `ColumnsChangedError`.
        """
        newest = self.log.newest()
        if (
            delivered_table(self.table.stream, newest.pipeline, self.table.mode, self.table.schema_changes)
            != self.table
        ):
            raise ColumnsChangedError
        if self._upserts and not self.table.key:  # one row
            is_new = self.log.check(at).epoch > at.epoch and (until is None or at.epoch < until)
            return self.whole(newest) if is_new else None
        if at.epoch == EMPTY or at.in_snapshot:
            snapshot = snapshot_at(self.chain, at, reader)
            if snapshot is not None:
                end = next_part(at, snapshot, reader.term)
                count = None if end.in_snapshot else self._count(snapshot)
                rows = self._of_table(with_names_of(snapshot, newest), Share(end.part - 1, end.parts))
                return NextRows(end, rows, 1, count, shown=snapshot)
        epochs = _one_transaction(
            [with_names_of(each, newest) for each in self.log.epochs_after(newest, at, self.epochs_max, until)]
        )
        if not epochs:
            return None
        last = epochs[-1]
        return NextRows(UpstreamPosition.after(last), self._of_log(epochs), len(epochs), self._count(last))

    def whole(self, shown: Manifest) -> NextRows:
        """The table that this manifest of the stream shows: what replaces all that the destination has."""
        rows = iter(()) if shown.epoch == EMPTY else self._of_table(shown, Share())
        return NextRows(UpstreamPosition.after(shown), rows, 1, shown.table_rows, replaces=True, shown=shown)

    def is_kept(self, step: NextRows, at: UpstreamPosition, reader: Reader) -> bool:
        """Whether the stream still keeps what the rows of this step, which comes next at `at`, are read from.

        If not, a file that is missing is no damage. A pin goes before the files that it keeps, and so does a manifest.
        """
        if step.shown is None:
            try:
                self.log.check(step.until)
                first = self.log.following(at, 1)
            except NothingFollowsError:
                return False
            # As it is now: a sleeper may have taken the number of one before it, which had been freed.
            there = (self.chain.find(each.version) for each in first)
            return all(now is not None and now.nonce == each.nonce for now, each in zip(there, first, strict=True))
        newest, version = self.log.newest(), step.shown.version
        if newest.uuid == step.shown.uuid and version in {newest.version, *(each.version for each in newest.retained)}:
            return True
        pins = (find_pin(self.chain, name) for name in (reader.pin_at(at), backfill_pin(reader.stream, reader.term)))
        return any(pin is not None and pin.manifest == step.shown for pin in pins)

    @property
    def _upserts(self) -> bool:
        return self.table.mode is DeliveryMode.UPSERT

    def _count(self, delivered: Manifest) -> int | None:
        """The number of rows of the destination's table at this epoch; unknown for a history of changes."""
        return delivered.table_rows if self._upserts or delivered.pipeline.appends else None

    @property
    def _columns(self) -> pa.Schema:
        """The columns to read: an upsert needs to know the kind of each change."""
        kind = pa.field(CHANGE_TYPE, pa.string())
        return self.table.columns.append(kind) if self._upserts else self.table.columns

    def _of_table(self, shown: Manifest, share: Share) -> Iterator[pa.RecordBatch]:
        files = with_ancestors(self.chain.store, self.root, shown.ancestors)
        return table_rows(files, self.chain.clock, shown, self._columns, share)

    def _of_log(self, epochs: list[Manifest]) -> Iterator[pa.RecordBatch]:
        read = net_changes if self._upserts else raw_changes
        return read(self.chain.store, self.chain.clock, epochs, self._columns)


def _one_transaction(epochs: Sequence[Manifest]) -> list[Manifest]:
    """Those at the beginning that fit into one transaction."""
    rows = size = 0
    for number, epoch in enumerate(epochs):
        rows, size = rows + epoch.statistics.rows_out, size + epoch.statistics.change_bytes
        if number and (rows > ROWS_A_PART or size > BYTES_A_PART):
            return list(epochs[:number])
    return list(epochs)
