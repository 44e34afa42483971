"""Which object of an upstream is damaged, of which epoch, and what helps.

Readers of an upstream find damage in one of Spark's processes, and Spark keeps only the text of an error there. So,
after an error, the driver itself checks the objects that the text names. It does not parse the text.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.history.damage.damage_advice import epoch_without, go_back
from dagster_ckpt.ids import EMPTY, Epoch
from dagster_ckpt.protocol.epochs.upstream import Reader, UpstreamPosition
from dagster_ckpt.protocol.manifest.manifest import ChangeRef, Manifest, RunRef
from dagster_ckpt.protocol.manifest.references import runs_of
from dagster_ckpt.state.committed.object_checks import check_file
from dagster_ckpt.storage.chain.damaged_end import newest_known
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.retention_refs.ancestors import with_ancestors
from dagster_ckpt.storage.retention_refs.upstream_log import UpstreamLog, snapshot_at
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.stores.retry import retrying
from dagster_ckpt.tables import files_of

_EPOCHS_AT_ONCE = 100


@dataclass(frozen=True)
class NextReads:
    """What `reader` reads next of the upstream `name` with this chain, in the store `root`, from `at` on."""

    root: ObjectStore
    chain: ManifestChain
    name: str
    at: UpstreamPosition
    reader: Reader

    def check(self, error_text: str) -> None:
        """Read every byte of the objects that `error_text` names.

        Raises `CorruptStateError` for the first damaged one, `NothingFollowsError` where nothing can follow. If all are
        intact, the disk of another host was at fault, or they have been restored meanwhile.
        """
        snapshot = self._snapshot
        if snapshot is not None:
            store = with_ancestors(self.chain.store, self.root, snapshot.ancestors)
            files = files_of(store, self.chain.clock, snapshot)
            self._check(store, snapshot.epoch, [*runs_of(snapshot), *files], error_text)
            return
        log, at = UpstreamLog(self.chain, self.name), self.at
        while following := log.following(at, _EPOCHS_AT_ONCE):
            for manifest in following:
                self._check(self.chain.store, manifest.epoch, manifest.changes, error_text)
            at = UpstreamPosition.after(following[-1])

    def remedy(self, error: CorruptStateError, restart: str) -> str:
        """What helps against damage that `check` has found, and the upstream's newest epoch without the damaged object.

        `restart` is the command that takes the downstream back to its beginning.
        """
        end = self.chain.end()
        assert end is not None, "it was read before"
        newest = newest_known(end)
        good = epoch_without(self.root, self.chain, newest, error)
        if good is None:
            helps = f"start the upstream over by `{go_back(self.chain, self.name, EMPTY)}`"
        elif good < newest.epoch:
            back = go_back(self.chain, self.name, good)
            helps = f"take the upstream back to an undamaged epoch by `{back}` and start both again"
        elif self._snapshot is None:
            helps = f"read its table again, which is undamaged, by `{restart}`"
        elif self.at.epoch > EMPTY:
            helps = f"start over with its newest table, which is undamaged, by `{restart}`"
        else:
            helps = "start this stream again: it then begins with the newest table, which is undamaged"
        return f"{helps}. upstream={self.name}, good_epoch={'none' if good is None else good}"

    @property
    def _snapshot(self) -> Manifest | None:
        return snapshot_at(self.chain, self.at, self.reader)

    def _check(self, store: ObjectStore, epoch: Epoch, refs: Iterable[RunRef | ChangeRef], error_text: str) -> None:
        for ref in refs:
            if ref.name in error_text:
                wrong = check_file(retrying(store, self.chain.clock), ref, _read)
                if wrong is not None:
                    raise CorruptStateError(f"{wrong}. file={ref.name}, epoch={epoch}, store={self.chain.store.url}")


def _read(count: int) -> None: ...
