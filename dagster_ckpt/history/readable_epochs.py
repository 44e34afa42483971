"""The epochs of one stream that can be read, and how a question about them is answered."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from dagster_ckpt.errors import CorruptStateError, InvalidPipelineError
from dagster_ckpt.history.damage.damage_advice import with_advice
from dagster_ckpt.history.epoch_choice import choose
from dagster_ckpt.history.info.epoch_info import EpochInfo, info_of
from dagster_ckpt.protocol.epochs.pin import Pin
from dagster_ckpt.protocol.manifest.manifest import Manifest, Retained
from dagster_ckpt.storage.chain.damaged_end import BrokenEnd
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.retention_refs.pins import read_pins
from dagster_ckpt.storage.stores.object_store import ObjectStore

T = TypeVar("T")

_TRIES_MAX = 5


@dataclass(frozen=True)
class ReadableEpochs:
    """The retained and pinned epochs of the stream `name`, whose manifests are `chain`; `root` is the whole store."""

    root: ObjectStore
    chain: ManifestChain
    name: str

    def answer(self, work: Callable[[Manifest], T], epoch: int | None = None) -> T:
        """Work from the newest manifest; again where an epoch was retired meanwhile, perhaps with what it needed.

        `epoch` is one that was asked for by its number.
        """
        tries = 0
        while True:
            newest = self.newest(epoch)
            try:
                return work(newest)
            except CorruptStateError as error:
                tries += 1
                later = self.newest(epoch)
                if tries == _TRIES_MAX or set(newest.retained) <= set(later.retained):
                    raise with_advice(self.root, self.chain, self.name, error) from error

    def read(self, work: Callable[[Manifest], T], epoch: int | None, as_of: datetime | str | None) -> T:
        """Work from the manifest that shows an epoch; otherwise as `answer`."""
        return self.answer(lambda newest: work(self.choose(newest, epoch, as_of)), epoch)

    def read_shown(self, shown: Manifest, work: Callable[[], T]) -> T:
        """Read what a manifest found before shows; where it was retired since and is gone, the error explains that."""
        try:
            return work()
        except CorruptStateError as error:
            newest = self.newest()
            pinned = {pin.manifest.epoch for pin in self.pins()}
            if shown.epoch in {newest.epoch, *pinned} or any(each.epoch == shown.epoch for each in newest.retained):
                raise with_advice(self.root, self.chain, self.name, error) from error
            raise InvalidPipelineError(
                f"the epoch was retired meanwhile, so long ago that its files are gone: choose another one, and read "
                f"sooner or keep more with `retained`. epoch={shown.epoch}, stream={self.name!r}"
            ) from error

    def newest(self, epoch: int | None = None) -> Manifest:
        """The newest manifest; where it is damaged, what is known of it if an older epoch was asked for by number."""
        try:
            newest = self.chain.end()
            if isinstance(newest, BrokenEnd):
                if epoch is None or epoch > newest.readable.version:
                    raise CorruptStateError(newest.damage)
                newest = newest.presumed_manifest
        except CorruptStateError as error:
            raise with_advice(self.root, self.chain, self.name, error) from error
        if newest is None:
            raise InvalidPipelineError(
                f"the stream is not there: was its folder moved? stream={self.name!r}, folder={self.chain.store.url}"
            )
        return newest

    def choose(self, newest: Manifest, epoch: int | None, as_of: datetime | str | None) -> Manifest:
        """The manifest of the retained or pinned epoch that is meant."""
        try:
            return self.manifest_of(newest, choose(newest, epoch, as_of))
        except InvalidPipelineError:
            pinned = (pin.manifest for pin in self.pins() if pin.manifest.epoch == epoch)
            shown = next(pinned, None)
            if shown is None or as_of is not None:
                raise
            return shown

    def manifest_of(self, newest: Manifest, retained: Retained) -> Manifest:
        """The manifest that shows a retained epoch."""
        return newest if newest.epoch == retained.epoch else self.chain.read(retained.version)

    def info(self, newest: Manifest, shown: Manifest) -> EpochInfo:
        """Facts about the epoch that `manifest_of` shows."""
        # The newest manifest may show an epoch that an earlier one has committed.
        committed = (each for each in shown.retained if each.epoch == shown.epoch)
        return info_of(next(committed, Retained(shown.epoch, shown.version, shown.time_ms)), shown, newest)

    def pins(self) -> list[Pin]:
        """All pins. Raises `CorruptStateError` where one is damaged."""
        return read_pins(self.chain)
