"""Which objects manifests need, each once, and which manifests need each."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from dagster_ckpt.protocol.manifest.manifest import ChangeRef, IndexRef, Manifest, RunRef
from dagster_ckpt.protocol.manifest.references import Role, references


@dataclass
class NeededObjects:
    """Objects by name, and who names each: a manifest or pin, as the caller calls it, or an index object's name.

    An object in an ancestor's folder has the name by which this stream calls it.
    """

    files: dict[str, RunRef | ChangeRef] = field(default_factory=dict)
    changes_index: dict[str, IndexRef] = field(default_factory=dict)
    files_index: dict[str, IndexRef] = field(default_factory=dict)
    named_by: dict[str, list[str]] = field(default_factory=dict)
    contradicted: set[str] = field(default_factory=set)
    """Files that are named with different sizes or checksums."""

    def add(self, manifest: Manifest, who: str) -> None:
        for role, ref in references(manifest):
            if not isinstance(ref, IndexRef):
                self.add_files((ref,), who)
                continue
            index = self.changes_index if role is Role.FILES_INDEX else self.files_index
            index[ref.name] = ref
            self._name(ref.name, who)

    def add_files(self, refs: Iterable[RunRef | ChangeRef], who: str) -> None:
        for ref in refs:
            name = ref.name
            known = self.files.setdefault(name, ref)
            if (known.bytes, known.checksum) != (ref.bytes, ref.checksum):
                self.contradicted.add(name)
            self._name(name, who)

    def _name(self, path: str, who: str) -> None:
        names = self.named_by.setdefault(path, [])
        if not names or names[-1] != who:
            names.append(who)

    def needed_by(self, path: str) -> set[str]:
        """The manifests and pins that need this object, directly or by way of an index object."""
        found: set[str] = set()
        for who in self.named_by.get(path, ()):
            found |= self.needed_by(who) if who in self.named_by else {who}
        return found
