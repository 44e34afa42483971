"""The past of one stream, to be read. It follows manifests and nothing else: what no manifest names does not exist."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

import pyarrow as pa

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import CorruptStateError, InvalidPipelineError
from dagster_ckpt.history.choice import choose
from dagster_ckpt.history.damage import epoch_without, newest_readable
from dagster_ckpt.history.epoch_info import EpochInfo, info_of
from dagster_ckpt.history.table import table_of
from dagster_ckpt.protocol.manifest import Manifest, Retained
from dagster_ckpt.storage.chain import ManifestChain
from dagster_ckpt.storage.object_store import ObjectStore
from dagster_ckpt.storage.patience import Patience

T = TypeVar("T")

_PATIENCE = Patience(total_ms=5_000)  # a person waits: a writer's minute would look like a hang
_TRIES_MAX = 5


class StreamHistory:
    """One stream, as readers see it. Each call looks at the store anew and is answered from one manifest, whole.

    Wherever an `epoch` is taken, so is `as_of`: the newest retained epoch committed by then, as a `datetime` or ISO
    text; a time without an offset is UTC. Without either it is the current epoch.

    An epoch that is not retained is an `InvalidPipelineError`, which lists what is. A missing or damaged object is a
    `CorruptStateError`, which names it and the newest epoch that does without it (`good_epoch`).
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
        """Whether the stream was ever opened."""
        return self._newest_or_none() is not None

    def latest(self) -> EpochInfo:
        """The current epoch: what readers see now. Epoch 0 of a stream that has committed nothing yet."""
        return self.info()

    def info(self, epoch: int | None = None, as_of: datetime | str | None = None) -> EpochInfo:
        """What can be said of an epoch without reading its rows."""
        return self._answer(lambda newest: self._info(newest, choose(newest, epoch, as_of)))

    def epochs(self) -> list[EpochInfo]:
        """The epochs that can be read, newest first."""
        return self._answer(lambda newest: [self._info(newest, each) for each in reversed(newest.retained)])

    def manifest(self, epoch: int | None = None, as_of: datetime | str | None = None) -> Manifest:
        """The manifest that shows an epoch: all there is to know of it, as a value."""
        return self._answer(lambda newest: self._shown(newest, choose(newest, epoch, as_of)))

    def read(
        self, epoch: int | None = None, columns: Sequence[str] | None = None, as_of: datetime | str | None = None
    ) -> pa.Table:
        """The stream's table as it was at an epoch; its rows come in no particular order.

        `columns` chooses columns and their order.
        """

        def table(newest: Manifest) -> pa.Table:
            shown = self._shown(newest, choose(newest, epoch, as_of))
            return table_of(self._chain.store, self._chain.clock, shown, columns)

        return self._answer(table)

    def _info(self, newest: Manifest, retained: Retained) -> EpochInfo:
        return info_of(retained, self._shown(newest, retained), newest)

    def _shown(self, newest: Manifest, retained: Retained) -> Manifest:
        return newest if newest.epoch == retained.epoch else self._chain.read(retained.version)

    def _answer(self, work: Callable[[Manifest], T]) -> T:
        """Work from the newest manifest; anew where an epoch was retired meanwhile, perhaps with what it needed."""
        tries = 0
        while True:
            newest = self._newest()
            try:
                return work(newest)
            except CorruptStateError as error:
                tries += 1
                later = self._newest()
                if tries == _TRIES_MAX or set(newest.retained) <= set(later.retained):
                    good = epoch_without(self._chain, later, error)
                    raise CorruptStateError(f"{error}, good_epoch={good}") from error

    def _newest(self) -> Manifest:
        newest = self._newest_or_none()
        if newest is None:
            raise InvalidPipelineError(
                f"the stream is not there: was its folder moved? stream={self._name!r}, folder={self._chain.store.url}"
            )
        return newest

    def _newest_or_none(self) -> Manifest | None:
        try:
            return self._chain.newest()
        except CorruptStateError as error:
            readable = newest_readable(self._chain)
            good = None if readable is None else readable.epoch
            raise CorruptStateError(f"{error}, good_epoch={good}") from error
