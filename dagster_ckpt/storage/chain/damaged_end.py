"""A chain whose end is damaged: what is known of it all the same, and all that it takes to go on from there.

A manifest that cannot be read counts as one that is there: its number is used and never given again. Neither is that of
a manifest which is missing, but of which something else tells that it was there: a later manifest, or a lease.
"""

import hashlib
from dataclasses import dataclass, replace

from dagster_ckpt.ids import Epoch, Term, Version
from dagster_ckpt.protocol.manifest.manifest import Manifest, ManifestKind

LOST = b"The manifest of this version was lost; a rollback has left it behind. Its number is not used again.\n"
"""What a rollback puts in the place of a manifest that is missing, so that the versions stay one unbroken range."""


@dataclass(frozen=True)
class BrokenEnd:
    """A chain of which the newest manifest cannot be read, or one shortly before it is missing.

    `version` is the greatest number known to be used. Up to `unbroken` each number has its object. `readable` is the
    newest manifest that can be read; `term` the newest that anything tells of. `digest` is that of the bytes at
    `version`; None: they are missing. `damage` says what is wrong.
    """

    version: Version
    unbroken: Version
    readable: Manifest
    term: Term
    digest: str | None
    damage: str

    @property
    def presumed(self) -> Manifest:
        """What is taken for the manifest at `version` by whoever goes back from there to an older epoch.

        All that it may have said beyond the readable one is unknown: whatever came after that was its epoch, which is
        to be left behind.
        """
        if self.readable.version == self.version:
            return self.readable
        return replace(
            self.readable, version=self.version, kind=ManifestKind.EPOCH, epoch=Epoch(self.version), term=self.term
        )


def known(end: Manifest | BrokenEnd) -> Manifest:
    """The newest manifest, or what is taken for it by whoever goes back from a broken end."""
    return end.presumed if isinstance(end, BrokenEnd) else end


def digest_of(data: bytes) -> str:
    """What tells these bytes from any others."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()
