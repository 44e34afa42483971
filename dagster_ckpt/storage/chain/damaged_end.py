"""A chain whose end is damaged: what is still known of it, and what a rollback needs to go on from there.

A manifest that cannot be read still uses its number, which is never given again. The same holds for a missing manifest
if a later manifest or a lease proves that it existed.
"""

import hashlib
from dataclasses import dataclass, replace

from dagster_ckpt.ids import Epoch, Term, Version
from dagster_ckpt.protocol.manifest.manifest import Manifest, ManifestKind

LOST = b"The manifest of this version was lost; a rollback has left it behind. Its number is not used again.\n"
"""What a rollback writes in place of a missing manifest, so that the versions stay one unbroken range."""


@dataclass(frozen=True)
class BrokenEnd:
    """A chain whose newest manifest cannot be read, or that has lost a manifest shortly before it.

    `version` is the greatest number known to be used. Up to `unbroken` each number has an object. `readable` is the
    newest manifest that can be read; `term` is the newest known term. `digest` is that of the bytes at `version`; None
    if they are missing. `damage` is the error text.
    """

    version: Version
    unbroken: Version
    readable: Manifest
    term: Term
    digest: str | None
    damage: str

    @property
    def presumed_manifest(self) -> Manifest:
        """What a rollback assumes in place of the manifest at `version`.

        What it recorded beyond the readable manifest is unknown: assume an epoch of the newest known term, which the
        rollback abandons.
        """
        if self.readable.version == self.version:
            return self.readable
        return replace(
            self.readable, version=self.version, kind=ManifestKind.EPOCH, epoch=Epoch(self.version), term=self.term
        )


def newest_known(end: Manifest | BrokenEnd) -> Manifest:
    """The newest manifest, or what a rollback assumes in its place."""
    return end.presumed_manifest if isinstance(end, BrokenEnd) else end


def digest_of(data: bytes) -> str:
    """A digest that identifies these bytes."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()
