"""Which objects of a stream are needed, and which are garbage. Pure: `storage.operations.collector` acts on it.

Manifests are deleted oldest first, below a bound that only grows. A file is deleted once no manifest from the bound on
and no pin names it, and no writer can still name it:

    term of the file    who may collect it      why
    finished            any process             its writer is fenced: what it did not commit it never will
    the newest          the term's writer,      epochs of a term are made one after another: what an earlier one did
                        only of epochs up to    not name was an attempt that failed or came second; what belongs to a
                        the newest version      later one is in flight

Subscribers need only the change log, but perhaps far back. So there are two bounds: manifests from `log_bound` on
stay, and of the files that those below `first_needed` name, only the change log.
"""

from collections.abc import Container, Iterable

from dagster_ckpt.ids import FIRST, Epoch, Term, Version
from dagster_ckpt.protocol.manifest.manifest import IndexRef, Manifest
from dagster_ckpt.protocol.manifest.references import Role, references
from dagster_ckpt.protocol.object_names import parse_file_name

MANIFESTS_KEPT = 16
"""The newest manifests are never deleted: the search for the newest one relies on its neighbours."""


def first_needed(newest: Manifest, retired: Manifest | None) -> Version:
    """The first version that must stay, with all that its manifest names.

    `retired` is a manifest that is at least a grace period old: what it does not retain was retired at least that long
    ago. None: there is none, and everything stays. The bound never goes back: a manifest retains only epochs that its
    parent retained, and the one it makes.
    """
    if retired is None:
        return FIRST
    retains = [retired.version, *(entry.version for entry in retired.retained)]
    return Version(max(FIRST, min(*retains, newest.version - MANIFESTS_KEPT + 1)))


def log_bound(bound: Version, consumed: Iterable[Epoch]) -> Version:
    """The first version whose change log and manifest must stay; never above `first_needed`.

    `consumed` has for each subscriber the epoch of this stream that it has durably consumed. That epoch's manifest
    stays too: while it exists, no later manifest was removed, and no paused writer's manifest can take its number.
    """
    return Version(max(FIRST, min([bound, *(Version(epoch) for epoch in consumed)])))


def is_cut_off(newest: Manifest, read: Epoch, max_lag: int) -> bool:
    """Whether a subscriber that has read up to `read` lags more than `max_lag` epochs: it no longer keeps the log."""
    return newest.epoch - read > max_lag


def log_start(newest: Manifest, consumed: Epoch, max_lag: int) -> Epoch:
    """The epoch after which a subscriber, not cut off, keeps the log: the one it can go back to, or `max_lag` ago.

    A subscriber is never cut off because of epochs that it might go back to: it loses those first.
    """
    return max(consumed, Epoch(newest.epoch - max_lag))


def log_named(manifest: Manifest) -> set[str]:
    """The files of the manifest's stream that its change log consists of: files, or runs of state."""
    return _own(manifest, {Role.CHANGES})


def files_named(manifest: Manifest) -> set[str]:
    """The files of the manifest's stream that it names itself. Its index objects list further ones."""
    return _own(manifest, set(Role))


def lists_of_files(manifest: Manifest) -> tuple[IndexRef, ...]:
    """The index objects that list further files of the manifest's stream: the table of an append-only one."""
    return tuple(ref for ref in manifest.files.index if ref.ancestor is None)


def is_garbage(name: str, needed: set[str], newest: Manifest, writer: Term | None) -> bool:
    """Whether the object is a file that is not needed and never will be; False for other objects than files.

    `needed` are the files that manifests and pins name; `writer` is the caller's term, None if it is no writer. The
    object must have been seen before `newest` was read.
    """
    file = parse_file_name(name)
    if file is None or name in needed:
        return False
    if file.term < newest.term:
        return True
    return file.term == newest.term == writer and file.epoch <= newest.version


def _own(manifest: Manifest, roles: Container[Role]) -> set[str]:
    return {ref.path for role, ref in references(manifest) if role in roles and ref.ancestor is None}
