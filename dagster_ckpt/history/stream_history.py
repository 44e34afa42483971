"""The past of one stream: reads and operations. What no manifest names does not exist."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from threading import Lock

import pyarrow as pa

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import CorruptStateError, InvalidPipelineError
from dagster_ckpt.history.change_epochs import epochs_after
from dagster_ckpt.history.damage.damage_advice import with_advice
from dagster_ckpt.history.damage.verification import Progress, Verification, verify
from dagster_ckpt.history.deliveries import check_is_no_delivery
from dagster_ckpt.history.drain import Draining, drain
from dagster_ckpt.history.epoch_choice import choose
from dagster_ckpt.history.info.epoch_info import EpochInfo
from dagster_ckpt.history.info.pin_info import PinInfo, pin_info
from dagster_ckpt.history.info.subscriber_info import SubscriberInfo, subscriber_info
from dagster_ckpt.history.info.upstream_info import UpstreamInfo, positions_of, upstream_info
from dagster_ckpt.history.info.writer_info import WriterInfo, WriterWatch, last_beat
from dagster_ckpt.history.readable_epochs import ReadableEpochs
from dagster_ckpt.history.stream_table import checked_columns, late_rows_of, table_of, with_epoch
from dagster_ckpt.ids import EMPTY, Epoch, Version
from dagster_ckpt.protocol.change_columns import CHANGE_FIELDS
from dagster_ckpt.protocol.epochs.pin import Pin
from dagster_ckpt.protocol.epochs.upstream import may_follow
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.protocol.object_names import FORK_PINS, TRIMMED
from dagster_ckpt.protocol.transitions.renamed_columns import with_names_of
from dagster_ckpt.quantities import Duration, milliseconds
from dagster_ckpt.state.engine import Engine, OpenRuns
from dagster_ckpt.state.reshard import reshard
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.operations.collector import MAX_LAG, Collected, Collector
from dagster_ckpt.storage.operations.fork import fork_empty, fork_stream, is_there
from dagster_ckpt.storage.operations.manual_opening import roll_back
from dagster_ckpt.storage.retention_refs.ancestors import with_ancestors
from dagster_ckpt.storage.retention_refs.pins import find_pin, mark_pins_changed, remove_pin, write_pin
from dagster_ckpt.storage.retention_refs.subscribers import (
    SubscriberProgress,
    find_progress,
    read_subscribers,
    unsubscribe,
)
from dagster_ckpt.storage.stores.folder import stream_folder
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.stores.probe import prove_atomic_create
from dagster_ckpt.storage.stores.retry import Patience
from dagster_ckpt.storage.writer.opening import Takeover, check_can_go_back
from dagster_ckpt.tables import Keys, key_rows, raw_changes

_PATIENCE = Patience(total_ms=5_000)  # a person waits: a writer's minute would look like a hang
_OPEN_RUNS_MAX = 512


class StreamHistory:
    """One stream, as readers see it, and a person's operations: pin, rollback, fork, reshard, drain, unsubscribe.

    Each call reads the store afresh and answers from a single manifest.

    Whatever reads an `epoch` takes `as_of` as well: the newest retained epoch committed by then, as a `datetime` or ISO
    text; a time without an offset is UTC. Without either it is the current epoch.

    An epoch that is neither retained nor pinned is an `InvalidPipelineError`, which lists those there are. A missing or
    damaged object is a `CorruptStateError`, which names it, the newest epoch that does not need it (`good_epoch`) and
    how to go back there.
    """

    def __init__(self, root: ObjectStore, name: str, clock: Clock) -> None:
        """`root` is the whole store, `name` the stream's asset key, parts joined with `/`."""
        self._root = root
        self._chain = ManifestChain(stream_folder(root, name), clock, _PATIENCE)
        self._name = name
        self._epochs = ReadableEpochs(root, self._chain, name)
        # A file that one look-up opened and checked stays open for the next.
        self._runs, self._one_at_a_time = OpenRuns(_OPEN_RUNS_MAX), Lock()

    def __repr__(self) -> str:
        return f"StreamHistory({self._name!r}, folder={self._chain.store.url!r})"

    @property
    def name(self) -> str:
        """The asset key, its parts joined with `/`."""
        return self._name

    @property
    def is_far(self) -> bool:
        """Whether its objects are not on a disk of this host."""
        return self._chain.store.local_path(TRIMMED) is None

    def exists(self) -> bool:
        """Whether the stream was ever opened, damaged as it may be now."""
        try:
            return self._chain.end() is not None
        except CorruptStateError:
            return True

    def latest(self) -> EpochInfo:
        """The current epoch: what readers see now. Epoch 0 of a stream that has committed nothing yet."""
        return self.info()

    def info(self, epoch: int | None = None, as_of: datetime | str | None = None) -> EpochInfo:
        """Facts about an epoch; reads none of its rows."""
        return self._epochs.answer(
            lambda newest: self._epochs.info(newest, self._epochs.choose(newest, epoch, as_of)), epoch
        )

    def epochs(self) -> list[EpochInfo]:
        """The epochs that can be read, newest first: those that are retained, and those that are pinned."""

        def infos(newest: Manifest) -> list[EpochInfo]:
            shown = {pin.manifest.epoch: pin.manifest for pin in self._epochs.pins()}
            shown |= {each.epoch: self._epochs.manifest_of(newest, each) for each in newest.retained}
            return [self._epochs.info(newest, shown[epoch]) for epoch in sorted(shown, reverse=True)]

        return self._epochs.answer(infos)

    def manifest(self, epoch: int | None = None, as_of: datetime | str | None = None) -> Manifest:
        """The manifest that shows an epoch: its full description, as a value."""
        return self._epochs.read(lambda shown: shown, epoch, as_of)

    def read(
        self, epoch: int | None = None, columns: Sequence[str] | None = None, as_of: datetime | str | None = None
    ) -> pa.Table:
        """The stream's table as it was at an epoch; its rows come in no particular order.

            stream.read(as_of="2013-01-05T12:00", columns=["carrier", "flights"])

        `columns` chooses columns and their order. The schema's metadata says what was read, for `read`, `get` and
        `late_rows`: `dagster_ckpt.stream`, `dagster_ckpt.stream_id`, `dagster_ckpt.epoch` and the epoch's
        `dagster_ckpt.nonce`, which `changes(after=..., after_nonce=...)` takes.
        """
        return self._epochs.read(lambda shown: self._table(shown, columns), epoch, as_of)

    def read_shown(self, shown: Manifest, columns: Sequence[str] | None = None) -> pa.Table:
        """The table that a manifest of this stream shows, also where its epoch was retired after that was read.

        Then it is there for the grace period at least; after that it raises `InvalidPipelineError`.
        """
        return self._epochs.read_shown(shown, lambda: self._table(shown, columns))

    def late_rows_shown(self, shown: Manifest, of_input: int = 0) -> pa.Table:
        """The late rows, as `late_rows`, that a manifest of this stream shows, as `read_shown`."""
        return self._epochs.read_shown(shown, lambda: self._late_rows(shown, of_input))

    def info_shown(self, shown: Manifest) -> EpochInfo:
        """Facts about the epoch of a manifest of this stream, read before."""
        return self._epochs.answer(lambda newest: self._epochs.info(newest, shown))

    def find_version(self, version: Version) -> Manifest | None:
        """The manifest of that version; None where it is gone."""
        try:
            return self._chain.find(version)
        except CorruptStateError as error:
            raise with_advice(self._root, self._chain, self._name, error) from error

    def pinned_manifests(self) -> list[Manifest]:
        """The manifests that the pins hold. Raises `CorruptStateError` where one is damaged."""
        return [pin.manifest for pin in self._epochs.pins()]

    def get(
        self,
        keys: Keys | pa.Table,
        epoch: int | None = None,
        columns: Sequence[str] | None = None,
        as_of: datetime | str | None = None,
    ) -> pa.Table:
        """The rows of these keys in the stream's table as it was at an epoch.

            stream.get({"carrier": ["UA", "AA"]}, epoch=41)

        `keys` has the values of each column of the key, and of `window_start` too where a row is that of a window; None
        is a value like any other. The rows come in the order of the keys; a key without a row is left out. `columns`
        chooses columns and their order. Opens only the files that may have the keys, and reads of them what it must.

        Raises `InvalidPipelineError` for a stream that only appends, whose rows have no key, for other columns than the
        key's, and for values that cannot be theirs. Files that it has opened stay open for the next look-up.
        """

        def rows(shown: Manifest) -> pa.Table:
            names = checked_columns(shown, columns)
            with self._one_at_a_time:
                found = key_rows(self._files(shown), self._chain.clock, shown, keys, self._runs)
            return with_epoch(found, self._name, shown).select(names)

        return self._epochs.read(rows, epoch, as_of)

    def changes(
        self,
        after: int | None = None,
        until: int | None = None,
        columns: Sequence[str] | None = None,
        *,
        after_as_of: datetime | str | None = None,
        until_as_of: datetime | str | None = None,
        after_nonce: str | None = None,
    ) -> pa.Table:
        """The change log of the epochs `(after, until]` (without `until`: up to the current one), epoch after epoch.

            stream.changes(after=40, until=42)

        Columns of the stream's table (`columns` chooses which, and their order), then `_epoch` and `_change_type`:
        `insert`, `delete`, or for an update two rows, `update_preimage` and `update_postimage`. `after=0` is from the
        stream's beginning. Epochs that a rollback left behind are not among them. Both ends may be times.

        Who remembers how far they have read remembers the nonce too, and passes it as `after_nonce`: a stream that was
        restored from a backup has another epoch of the same number.

            changes = stream.changes(after=seen.epoch, after_nonce=seen.nonce)  # seen = stream.latest(), earlier

        Raises `InvalidPipelineError` for an epoch that a rollback left behind, that a restored stream does not have, or
        whose successors are no longer kept.
        """

        def changes(newest: Manifest) -> pa.Table:
            if after is None and after_as_of is None:
                raise InvalidPipelineError(f"after which epoch? 0 is the stream's beginning. stream={self._name!r}")
            first = after if after_as_of is None else choose(newest, after, after_as_of).epoch
            last = until if until_as_of is None else choose(newest, until, until_as_of).epoch
            shown = [
                with_names_of(each, newest)
                for each in epochs_after(self._chain, newest, first or EMPTY, last, after_nonce)
            ]
            names = checked_columns(newest, columns)
            schema = pa.schema([*(newest.pipeline.output.field(name) for name in names), *CHANGE_FIELDS])
            return pa.Table.from_batches(raw_changes(self._chain.store, self._chain.clock, shown, schema), schema)

        return self._epochs.answer(changes, until)

    def epochs_after(self, after: int, until: int | None = None) -> tuple[Manifest, list[Manifest]]:
        """The newest manifest, and those that committed the epochs `(after, until]`, oldest first: see `changes`."""
        return self._epochs.answer(lambda newest: (newest, epochs_after(self._chain, newest, after, until)), until)

    def late_rows(self, of_input: int = 0, epoch: int | None = None, as_of: datetime | str | None = None) -> pa.Table:
        """The rows of an input (from 0) that had come too late by an epoch, by event time within each shard.

        With several steps, the inputs that read sources come first, in the order of the steps; after them, in the same
        order, those that read an earlier step.

        Raises `InvalidPipelineError` where the input's step does not have `late="keep"`.
        """
        return self._epochs.read(lambda shown: self._late_rows(shown, of_input), epoch, as_of)

    def pin(self, epoch: int, name: str) -> PinInfo:
        """Keep a retained epoch readable, under that name, until it is unpinned. The same again changes nothing.

            stream.pin(41, "before-migration")

        Raises `InvalidPipelineError` where the name has another epoch already, or the epoch is not retained.
        """
        prove_atomic_create(self._chain.store, self._chain.clock)
        if epoch == EMPTY:
            raise InvalidPipelineError(
                f"epoch 0 is the empty stream: there is nothing to keep. pin={name!r}, stream={self._name!r}"
            )
        pin = self._epochs.answer(lambda newest: pin_info(write_pin(self._chain, name, choose(newest, epoch))))
        mark_pins_changed(self._chain)
        return pin

    def unpin(self, name: str) -> None:
        """Remove a pin; the epoch's files are garbage, unless it is still retained.

        Raises `InvalidPipelineError` where there is no such pin, or a fork needs it.
        """
        chain = self._chain
        pin = find_pin(chain, name) if name.startswith(FORK_PINS) else None
        if pin is not None and pin.fork is not None and self._is_there(pin):
            raise InvalidPipelineError(
                f"this pin keeps files of a fork, which removes it once it needs none of them: remove the fork's "
                f"folder first if the fork is to go. pin={name!r}, fork={pin.fork.stream!r}, stream={self._name!r}"
            )
        remove_pin(chain, name)
        mark_pins_changed(chain)

    def pins(self) -> list[PinInfo]:
        """What is pinned, sorted by name. Raises `CorruptStateError` where a pin is damaged."""
        return [pin_info(pin, orphan=pin.fork is not None and not self._is_there(pin)) for pin in self._epochs.pins()]

    def subscribers(self) -> list[SubscriberInfo]:
        """The streams that read this one's change log, by name: how far each is, and what is kept for it.

        Raises `CorruptStateError` where one is damaged.
        """

        def infos(newest: Manifest) -> list[SubscriberInfo]:
            there = read_subscribers(self._chain)
            progress = find_progress(there, self._root, self._chain, newest.uuid)
            found = (subscriber_info(each, newest, cut_off=self._is_cut_off(newest, each)) for each in progress)
            return sorted(found, key=lambda info: info.stream)

        return self._epochs.answer(infos)

    def upstreams(self) -> list[UpstreamInfo]:
        """The streams that this one reads, by name, and how far its current epoch is behind each of them.

        Raises `CorruptStateError` where the newest manifest of one is damaged.
        """
        found = []
        for name, at in sorted(positions_of(self._epochs.newest()).items()):
            chain = ManifestChain(stream_folder(self._root, name), self._chain.clock, _PATIENCE)
            try:
                found.append(upstream_info(name, at, chain))
            except CorruptStateError as error:
                raise with_advice(self._root, chain, name, error) from error
        return found

    def unsubscribe(self, name: str) -> None:
        """Release the change log that is kept for the stream of that name.

        If it still reads, it subscribes again with its next start, and is backfilled if what it needs is gone. Raises
        `InvalidPipelineError` where no such stream subscribes.
        """
        unsubscribe(self._chain, name)

    def collect_garbage(self, grace_period: Duration = "1 hour", max_lag: int = MAX_LAG) -> Collected:
        """Remove garbage: epochs that are no longer retained, and what failed attempts have left.

        Writers do so by themselves; this is for streams without a writer. Safe beside writers and readers.
        `grace_period` is how long an epoch can be read after it is retired: longer than the longest read. A stream
        that reads this one and is more than `max_lag` epochs behind is cut off: the change log is not kept for it.

        Raises `CorruptStateError` where damage hides what is needed: then nothing is removed.
        """
        return Collector(self._chain, self._root, milliseconds(grace_period, "grace_period"), max_lag).collect()

    def rollback(self, epoch: int, *, fence: bool = False) -> EpochInfo:
        """Make the stream show an older epoch again, from which its writer will go on; what readers see now.

        What came after it is read again from the sources. 0 is the empty stream. A pinned epoch may be retired long
        since: keep its pin until the rollback is done. Works also where the newest manifest is damaged. The stream
        keeps its owner.

        Raises `FencedError` while a writer lives, which takes a while to find out, unless `fence`: then that writer
        stops at its next commit, or within ten seconds where it has nothing to commit. Raises `InvalidPipelineError`
        for an epoch that is neither retained nor pinned, or was abandoned.
        """
        chain = ManifestChain(self._chain.store, self._chain.clock)  # a writer's patience
        check_is_no_delivery(chain, "rolled back")
        try:
            roll_back(chain, Epoch(epoch), Takeover.ALWAYS if fence else Takeover.NEVER)
        except CorruptStateError as error:
            raise with_advice(self._root, self._chain, self._name, error) from error
        return self.latest()

    def check_can_go_back(self, epoch: int) -> None:
        """Raise `InvalidPipelineError` for an epoch to which `rollback` cannot go back."""
        check_can_go_back(self._chain, self._epochs.newest(), epoch)

    def writer(self) -> WriterInfo:
        """Who writes the stream, or wrote it last, and how far the epoch in work is.

        One look cannot show that a writer has fallen silent; `watch_writer` can, and `beat_at` tells how long ago its
        last heartbeat was, as far as the clocks of the store and of the reader agree.
        """
        writer = self.watch_writer().look()
        return replace(writer, beat_at=last_beat(self._chain, writer.term))

    def watch_writer(self) -> WriterWatch:
        """Look at the writer repeatedly: each `look()` takes one or two reads."""
        return WriterWatch(self._chain, self._epochs.newest)

    def drain(self) -> Draining | None:
        """Ask the writer at work to end cleanly at its next epoch. It goes on until then; so does its state.

        The next Dagster run begins where it ended, with new code if there is any: the sensor starts that of a
        continuous stream. `drain().wait()` blocks until the writer has ended. None where the stream has no
        writer. A writer that opens the stream later is not asked.

        Raises `CorruptStateError` where the newest manifest is damaged.
        """
        return drain(self._chain, self._name, self.watch_writer())

    def fork(self, name: str, epoch: int | None = None, as_of: datetime | str | None = None) -> "StreamHistory":
        """Make a new stream that begins with a retained or pinned epoch of this one; nothing is copied.

            stream.fork("dev/delay_by_carrier", epoch=41)

        Both then go on independently: what the epoch needs is kept for as long as the fork needs it. It shows as the
        new stream's epoch 1, from which the asset of that name goes on, with the epoch's state and source positions.
        Epoch 0 makes an empty stream: also for a pipeline that no longer fits this one's state. Works beside a live
        writer, and where later epochs are damaged.

        Raises `InvalidPipelineError` for a name that is taken or an epoch that is not there: then nothing has changed.
        """
        chain = self._chain
        check_is_no_delivery(chain, "forked")

        def create_fork(newest: Manifest) -> Manifest:
            if epoch == EMPTY and as_of is None:
                return fork_empty(self._root, chain, newest, name)
            shown = self._epochs.choose(newest, epoch, as_of)
            if shown.epoch == EMPTY:
                return fork_empty(self._root, chain, newest, name)
            return fork_stream(self._root, chain, shown, name)

        self._epochs.answer(create_fork, epoch)
        mark_pins_changed(chain)
        return StreamHistory(self._root, name, chain.clock)

    def reshard(self, shards: int, *, fence: bool = False, progress: Progress | None = None) -> EpochInfo:
        """Give the stream another number of shards, a power of two, from its next epoch on; what readers see now.

        Epochs before stay readable as they are; going back to one gives the stream its number again. Only timelines
        (what waits for the watermark, and late rows) are rewritten, in bounded memory; `progress` is called with the
        bytes done and the bytes in all. The stream keeps its owner; give its asset the same number.

        Raises `InvalidPipelineError` for a number that cannot be or that the stream has already, and `FencedError`
        while a writer lives, which takes a while to find out, unless `fence`: then that writer stops at its next
        commit. Nothing was changed then.
        """
        chain = ManifestChain(self._chain.store, self._chain.clock)  # a writer's patience
        check_is_no_delivery(chain, "resharded")
        try:
            take_over = Takeover.ALWAYS if fence else Takeover.NEVER
            reshard(self._root, chain, shards, take_over, Engine(chain.clock), progress)
        except CorruptStateError as error:
            raise with_advice(self._root, self._chain, self._name, error) from error
        return self.latest()

    def verify(self, progress: Progress | None = None) -> Verification:
        """Read every byte that a retained epoch, the current one or a pin needs, and compare every checksum.

        Damage is a finding, not an error. `progress` is called after each piece with the bytes read so far and in all.
        """
        return verify(self._root, self._chain, self._name, progress)

    def _table(self, shown: Manifest, columns: Sequence[str] | None) -> pa.Table:
        return table_of(self._files(shown), self._chain.clock, shown, self._name, columns)

    def _late_rows(self, shown: Manifest, of_input: int) -> pa.Table:
        return with_epoch(late_rows_of(self._files(shown), self._chain.clock, shown, of_input), self._name, shown)

    def _is_cut_off(self, newest: Manifest, progress: SubscriberProgress) -> bool:
        """Whether what a subscriber would read next is gone."""
        behind = next(may_follow(newest, progress.read), None)
        return progress.read > EMPTY and behind is not None and self._chain.find(behind) is None

    def _files(self, shown: Manifest) -> ObjectStore:
        """The folder with all that a manifest's table is made of."""
        return with_ancestors(self._chain.store, self._root, shown.ancestors)

    def _is_there(self, pin: Pin) -> bool:
        """Whether the fork is there that the pin is for."""
        assert pin.fork is not None, "a fork has pinned it"
        return is_there(self._root, pin.fork, self._chain.clock, self._chain.patience)
