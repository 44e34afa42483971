"""What of a stream is needed, and what is garbage. Pure: `storage.operations.collector` does what is decided here.

Manifests go oldest first, below a bound that only grows. A file goes once no manifest from the bound on and no pin
names it, and no writer can name it any more:

    term of the file    who may collect it      why
    finished            anybody                 its writer is fenced: what it did not commit it never will
    the newest          its own writer, and     epochs of a term are made one after another: what an earlier one did
                        only of epochs up to    not name was an attempt that failed or came second; what belongs to a
                        the newest version      later one is in flight

Subscribers need no more than the log, but perhaps far back. So there are two bounds: manifests from `log_bound` on
stay, and of what those below `bound` name, the change log does.
"""

from collections.abc import Container, Iterable

from dagster_ckpt.ids import FIRST, Epoch, Term, Version
from dagster_ckpt.protocol.manifest.manifest import IndexRef, Manifest
from dagster_ckpt.protocol.manifest.references import Role, references
from dagster_ckpt.protocol.object_names import file_of

MANIFESTS_KEPT = 16
"""The newest manifests are never deleted: who looks for the newest one finds it by those around it."""


def bound(newest: Manifest, retired: Manifest | None) -> Version:
    """The first version that must stay, of the manifest and of what it names.

    `retired` is a manifest that has been there for a grace period: what it does not retain was given up at least as
    long ago. None: there is none, and everything stays. The bound never goes back: a manifest retains epochs that its
    parent retained, and its own.
    """
    if retired is None:
        return FIRST
    retains = [retired.version, *(entry.version for entry in retired.retained)]
    return Version(max(FIRST, min(*retains, newest.version - MANIFESTS_KEPT + 1)))


def log_bound(bound: Version, consumed: Iterable[Epoch]) -> Version:
    """The first version whose change log must stay, and with it its manifest; never above `bound`.

    `consumed` is for each subscriber the epoch of this stream that it has consumed for good. That epoch's own manifest
    stays too: as long as it is there, none behind it was ever removed, and no sleeper's can lie on its number.
    """
    return Version(max(FIRST, min([bound, *(Version(epoch) for epoch in consumed)])))


def is_cut_off(newest: Manifest, read: Epoch, max_lag: int) -> bool:
    """Whether a subscriber whose newest epoch has read so far is so far behind that it no longer keeps the log.

    That is counted in numbers of epochs.
    """
    return newest.epoch - read > max_lag


def kept_behind(newest: Manifest, consumed: Epoch, max_lag: int) -> Epoch:
    """The epoch behind which a subscriber, not cut off, keeps the log: that to which it can go back, or `max_lag` ago.

    It is never cut off for the sake of epochs that it might go back to: it loses those first.
    """
    return max(consumed, Epoch(newest.epoch - max_lag))


def log_named(manifest: Manifest) -> set[str]:
    """The files of its own stream that the manifest's change log consists of: files, or runs of state."""
    return _own(manifest, {Role.CHANGES})


def files_named(manifest: Manifest) -> set[str]:
    """The files of its own stream that a manifest names itself. What its index objects list comes on top."""
    return _own(manifest, set(Role))


def lists_of_files(manifest: Manifest) -> tuple[IndexRef, ...]:
    """The index objects that list further files of the manifest's own stream: the table of an append-only one."""
    return tuple(ref for ref in manifest.files.index if ref.ancestor is None)


def is_garbage(name: str, needed: set[str], newest: Manifest, writer: Term | None) -> bool:
    """Whether the object is a file that nobody needs or ever will; False for anything that is no file of the stream.

    `needed` are the files that manifests and pins name, `writer` is the term of whoever asks, None for no writer. The
    object must have been seen before `newest` was read.
    """
    file = file_of(name)
    if file is None or name in needed:
        return False
    if file.term < newest.term:
        return True
    return file.term == newest.term == writer and file.epoch <= newest.version


def _own(manifest: Manifest, roles: Container[Role]) -> set[str]:
    return {ref.path for role, ref in references(manifest) if role in roles and ref.ancestor is None}
