"""The past of one stream, to be read. It follows manifests and nothing else: what no manifest names does not exist."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

import pyarrow as pa

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import CorruptStateError, InvalidPipelineError
from dagster_ckpt.history.choice import choose
from dagster_ckpt.history.damage import advised
from dagster_ckpt.history.epoch_info import EpochInfo, info_of
from dagster_ckpt.history.pin_info import PinInfo, pin_info
from dagster_ckpt.history.table import late_rows_of, table_of
from dagster_ckpt.history.verification import Progress, Verification, verify
from dagster_ckpt.ids import EMPTY, Epoch
from dagster_ckpt.protocol.manifest import Manifest, Retained
from dagster_ckpt.protocol.pin import Pin
from dagster_ckpt.quantities import Duration, milliseconds
from dagster_ckpt.storage.broken_end import BrokenEnd
from dagster_ckpt.storage.chain import ManifestChain
from dagster_ckpt.storage.collector import Collected, Collector
from dagster_ckpt.storage.object_store import ObjectStore
from dagster_ckpt.storage.opening import Takeover
from dagster_ckpt.storage.patience import Patience
from dagster_ckpt.storage.pins import read_pins, remove_pin, write_pin
from dagster_ckpt.storage.probe import prove_atomic_create
from dagster_ckpt.storage.rollback import roll_back

T = TypeVar("T")

_PATIENCE = Patience(total_ms=5_000)  # a person waits: a writer's minute would look like a hang
_TRIES_MAX = 5


class StreamHistory:
    """One stream, as readers see it. Each call looks at the store anew and is answered from one manifest, whole.

    Wherever an `epoch` is taken, so is `as_of`: the newest retained epoch committed by then, as a `datetime` or ISO
    text; a time without an offset is UTC. Without either it is the current epoch.

    An epoch that is not retained is an `InvalidPipelineError`, which lists what is. A missing or damaged object is a
    `CorruptStateError`, which names it, the newest epoch that does without it (`good_epoch`) and how to go back there.
    """

    def __init__(self, store: ObjectStore, name: str, clock: Clock) -> None:
        """`store` is the stream's folder, `name` its asset key, parts joined with `/`."""
        self._chain = ManifestChain(store, clock, _PATIENCE)
        self._name = name

    def __repr__(self) -> str:
        return f"StreamHistory({self._name!r}, folder={self._chain.store.url!r})"

    @property
    def name(self) -> str:
        """The asset key, its parts joined with `/`."""
        return self._name

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
        """What can be said of an epoch without reading its rows."""
        return self._answer(lambda newest: self._info(newest, self._chosen(newest, epoch, as_of)), epoch)

    def epochs(self) -> list[EpochInfo]:
        """The epochs that can be read, newest first: those that are retained, and those that are pinned."""

        def infos(newest: Manifest) -> list[EpochInfo]:
            shown = {pin.manifest.epoch: pin.manifest for pin in self._pins()}
            shown |= {each.epoch: self._shown(newest, each) for each in newest.retained}
            return [self._info(newest, shown[epoch]) for epoch in sorted(shown, reverse=True)]

        return self._answer(infos)

    def manifest(self, epoch: int | None = None, as_of: datetime | str | None = None) -> Manifest:
        """The manifest that shows an epoch: all there is to know of it, as a value."""
        return self._answer(lambda newest: self._chosen(newest, epoch, as_of), epoch)

    def read(
        self, epoch: int | None = None, columns: Sequence[str] | None = None, as_of: datetime | str | None = None
    ) -> pa.Table:
        """The stream's table as it was at an epoch; its rows come in no particular order.

        `columns` chooses columns and their order.
        """

        def table(newest: Manifest) -> pa.Table:
            shown = self._chosen(newest, epoch, as_of)
            return table_of(self._chain.store, self._chain.clock, shown, columns)

        return self._answer(table, epoch)

    def late_rows(self, of_input: int = 0, epoch: int | None = None, as_of: datetime | str | None = None) -> pa.Table:
        """The rows of an input (from 0) that had come too late by an epoch, by event time within each shard.

        Raises `InvalidPipelineError` where the stream's step does not say `late="keep"`.
        """

        def rows(newest: Manifest) -> pa.Table:
            shown = self._chosen(newest, epoch, as_of)
            return late_rows_of(self._chain.store, self._chain.clock, shown, of_input)

        return self._answer(rows, epoch)

    def pin(self, epoch: int, name: str) -> PinInfo:
        """Keep a retained epoch readable, under that name, until it is unpinned. The same again changes nothing.

        Raises `InvalidPipelineError` where the name has another epoch already, or the epoch is not retained.
        """
        prove_atomic_create(self._chain.store, self._chain.clock)
        if epoch == EMPTY:
            raise InvalidPipelineError(
                f"epoch 0 is the empty stream: there is nothing to keep. pin={name!r}, stream={self._name!r}"
            )
        return self._answer(lambda newest: pin_info(write_pin(self._chain, name, choose(newest, epoch))))

    def unpin(self, name: str) -> None:
        """Let a pinned epoch go; its files are garbage, unless it is still retained. Raises `InvalidPipelineError`."""
        remove_pin(self._chain.store, name, self._chain.clock, self._chain.patience)

    def pins(self) -> list[PinInfo]:
        """What is pinned, sorted by name. Raises `CorruptStateError` where a pin is damaged."""
        return [pin_info(pin) for pin in self._pins()]

    def collect_garbage(self, grace_period: Duration = "1 hour") -> Collected:
        """Remove what nobody needs any more: epochs that are no longer retained, and what failed attempts have left.

        Writers do so by themselves; this is for streams that none writes. Safe beside everybody. `grace_period` is for
        how long an epoch can still be read after it ceased to be retained; never shorter than anybody reads.

        Raises `CorruptStateError` where what is needed cannot be made out: then nothing is removed.
        """
        return Collector(self._chain, milliseconds(grace_period, "grace_period")).collect()

    def rollback(self, epoch: int, *, fence: bool = False) -> EpochInfo:
        """Make the stream show an older epoch again, from which its writer will go on; what readers see now.

        What came after it is read again from the sources. 0 is the empty stream. Works also where the newest manifest
        is damaged. The stream keeps its owner.

        Raises `FencedError` while a writer lives, which takes a while to find out, unless `fence`: then that writer
        stops at its next commit. Raises `InvalidPipelineError` for an epoch that is not retained or was abandoned.
        """
        chain = ManifestChain(self._chain.store, self._chain.clock)  # a writer's patience
        try:
            roll_back(chain, Epoch(epoch), Takeover.ALWAYS if fence else Takeover.NEVER)
        except CorruptStateError as error:
            raise advised(self._chain, self._name, error) from error
        return self.latest()

    def verify(self, progress: Progress | None = None) -> Verification:
        """Read every byte that a retained epoch, the current one or a pin needs, and compare every checksum.

        Damage is a finding, not an error. `progress` is told after each piece how many bytes of how many are done.
        """
        return verify(self._chain, self._name, progress)

    def _chosen(self, newest: Manifest, epoch: int | None, as_of: datetime | str | None) -> Manifest:
        """The manifest of the retained or pinned epoch that is meant."""
        try:
            return self._shown(newest, choose(newest, epoch, as_of))
        except InvalidPipelineError:
            pinned = (pin.manifest for pin in self._pins() if pin.manifest.epoch == epoch)
            shown = next(pinned, None)
            if shown is None or as_of is not None:
                raise
            return shown

    def _pins(self) -> list[Pin]:
        return read_pins(self._chain.store, self._chain.clock, self._chain.patience)

    def _info(self, newest: Manifest, shown: Manifest) -> EpochInfo:
        # The newest manifest may show an epoch that an earlier one has committed.
        committed = (each for each in shown.retained if each.epoch == shown.epoch)
        return info_of(next(committed, Retained(shown.epoch, shown.version, shown.time_ms)), shown, newest)

    def _shown(self, newest: Manifest, retained: Retained) -> Manifest:
        return newest if newest.epoch == retained.epoch else self._chain.read(retained.version)

    def _answer(self, work: Callable[[Manifest], T], epoch: int | None = None) -> T:
        """Work from the newest manifest; anew where an epoch was retired meanwhile, perhaps with what it needed.

        `epoch` is one that was asked for by its number.
        """
        tries = 0
        while True:
            newest = self._newest(epoch)
            try:
                return work(newest)
            except CorruptStateError as error:
                tries += 1
                later = self._newest(epoch)
                if tries == _TRIES_MAX or set(newest.retained) <= set(later.retained):
                    raise advised(self._chain, self._name, error) from error

    def _newest(self, epoch: int | None = None) -> Manifest:
        """The newest manifest; what is known of it where it is damaged, but an older epoch was asked for by number."""
        try:
            newest = self._chain.end()
            if isinstance(newest, BrokenEnd):
                if epoch is None or epoch > newest.readable.version:
                    raise CorruptStateError(newest.damage)
                newest = newest.presumed
        except CorruptStateError as error:
            raise advised(self._chain, self._name, error) from error
        if newest is None:
            raise InvalidPipelineError(
                f"the stream is not there: was its folder moved? stream={self._name!r}, folder={self._chain.store.url}"
            )
        return newest
