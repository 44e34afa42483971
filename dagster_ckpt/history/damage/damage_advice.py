"""When an object is damaged: which epoch does not need it, and how to go back there. The only place that advises.

It is called only after an error, so it may list the store and read manifests.
"""

import shlex
from collections.abc import Iterator

from dagster_ckpt.errors import CorruptStateError, InvalidPipelineError, StoreUnavailableError
from dagster_ckpt.ids import EMPTY, Epoch
from dagster_ckpt.protocol.epochs.lineage import lineage
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.protocol.manifest.references import Role, references
from dagster_ckpt.protocol.object_names import ANCESTORS, folder_of, parts_of_name
from dagster_ckpt.storage.chain.damaged_end import BrokenEnd, newest_known
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.retention_refs.ancestors import check_ancestors, with_ancestors
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.tables import files_of

_MARK = "good_epoch="


def with_advice(root: ObjectStore, chain: ManifestChain, stream: str, error: CorruptStateError) -> CorruptStateError:
    """The error with what to do about it: the newest epoch that needs nothing it names, and the way back there.

    An error with this advice is returned unchanged. `root` is the store in which the stream's ancestors are.
    """
    if _MARK in str(error):
        return error
    try:
        return CorruptStateError(f"{error}, {_advice(root, chain, stream, error)}")
    except StoreUnavailableError:
        return error  # the damage matters more than the store's outage


def _advice(root: ObjectStore, chain: ManifestChain, stream: str, error: CorruptStateError) -> str:
    try:
        end = chain.end()
    except CorruptStateError:
        end = None
    if end is None:
        return f"{_MARK}none"
    broken = isinstance(end, BrokenEnd)
    newest = newest_known(end)
    good = epoch_without(root, chain, newest, error)
    if (why := _lost_ancestor(root, chain, newest, error)) is not None:
        return f"{_MARK}{'none' if good is None else good}, because={_quote(why)}"
    if good is None:
        return f"{_MARK}none, begin_anew={_quote(go_back(chain, stream, EMPTY))}, run_config='from_epoch: {EMPTY}'"
    if good == newest.epoch and not broken:
        return f"{_MARK}{good}, current={good}"
    return f"{_MARK}{good}, go_back={_quote(go_back(chain, stream, good))}, run_config='from_epoch: {good}'"


def go_back(chain: ManifestChain, stream: str, epoch: Epoch) -> str:
    """The command that goes back to an epoch, to be pasted into a shell."""
    return command(chain, stream, "rollback", stream, "--epoch", str(epoch))


def command(chain: ManifestChain, stream: str, *words: str) -> str:
    """The command `dagster-ckpt` with these words, for the store that the stream is in, to be pasted into a shell."""
    store = chain.store.url.removesuffix(_folder(stream)).rstrip("/")
    return shlex.join(["dagster-ckpt", "--store", store, *words])


def _lost_ancestor(root: ObjectStore, chain: ManifestChain, newest: Manifest, error: CorruptStateError) -> str | None:
    """Why a file of an ancestor is damaged, where that stream itself is gone."""
    if f"{ANCESTORS}/" not in str(error):
        return None
    try:
        check_ancestors(root, chain.clock, newest, chain.patience)
    except CorruptStateError as lost:
        return str(lost)
    return None


def epoch_without(root: ObjectStore, chain: ManifestChain, newest: Manifest, error: CorruptStateError) -> Epoch | None:
    """The newest retained epoch that needs no object that the error names; None where all do."""
    for retained in reversed(lineage(newest)):
        try:
            needed = list(_needed_names(root, chain, chain.read(retained.version)))
        except CorruptStateError:
            continue  # the epoch's manifest or list is damaged
        # Each name is looked for in the message: nothing is parsed.
        if not any(name in str(error) for name in needed):
            return retained.epoch
    return None


def _needed_names(root: ObjectStore, chain: ManifestChain, manifest: Manifest) -> Iterator[str]:
    """What reading the epoch's table, or going on from it, needs."""
    yield from (ref.name for role, ref in references(manifest) if role is not Role.CHANGES)
    store = with_ancestors(chain.store, root, manifest.ancestors)
    yield from (file.name for file in files_of(store, chain.clock, manifest))


def _quote(command: str) -> str:
    return f'"{command}"'


def _folder(stream: str) -> str:
    try:
        return folder_of(parts_of_name(stream))
    except InvalidPipelineError:
        return ""
