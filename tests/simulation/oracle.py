"""Sees every change of the store the moment it happens, and says which promise it breaks.

It knows the whole history, the job in plain Python, and time. It uses nothing of the code that it judges but the types,
the names and the codec of manifests; `manifest_rules` as a second pair of eyes only.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from dagster_ckpt.ids import Term, Version
from dagster_ckpt.protocol.manifest import ChangeRef, IndexedList, IndexRef, Manifest, ManifestKind
from dagster_ckpt.protocol.manifest_codec import CHANGES, decode_entries
from dagster_ckpt.protocol.manifest_rules import violations
from dagster_ckpt.protocol.names import TRIMMED, file_of, parse_manifest_name
from tests.simulation import decoded
from tests.simulation.job import TABLE, consumed, decode_rows, decode_sums, rows_after, rows_of, sums_after
from tests.simulation.scheduler import Process, Strand
from tests.simulation.truth import Truth

_ADVICE = ("lease/", "requests/", "collector.json")
COLLECTOR = "collector"


class BrokenPromiseError(AssertionError):
    """What must never happen has happened. `rule` is which."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule


@dataclass
class Oracle:
    """`history` are all manifests that ever became the newest. One created on a freed number is a sleeper's: it is not.

    `kept` manifests are never deleted, and nothing that was retained until less than `grace_ms` ago.
    """

    truth: Truth
    now_ms: Callable[[], int]
    kept: int
    grace_ms: int
    history: dict[Version, Manifest] = field(default_factory=dict)
    freed: set[Version] = field(default_factory=set)
    pinned: dict[str, Manifest] = field(default_factory=dict)
    created_ms: dict[Version, int] = field(default_factory=dict)
    writers: dict[Term, Process] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    _given_up_ms: dict[Version, int] = field(default_factory=dict)
    _holders: defaultdict[str, set[Version]] = field(default_factory=lambda: defaultdict(set))
    _rolled_back_for: set[str] = field(default_factory=set)

    @property
    def newest(self) -> Manifest | None:
        return self.history[Version(len(self.history))] if self.history else None

    # ---- what happened to the store

    def created(self, name: str, data: bytes, who: Strand) -> None:
        version = parse_manifest_name(name)
        if version is None:
            return
        if version in self.history:
            self.counts["sleepers"] += 1
            return
        manifest = decoded.manifest(data, name)
        before = self.newest
        self._follows(before, manifest)
        self._has_its_files(manifest)
        self._consumed_the_next_batch(before, manifest)
        self._shows_a_prefix(manifest)
        self._goes_back_once(manifest)
        self._becomes_the_newest(before, manifest)
        self.writers.setdefault(manifest.term, who.process)

    def overwritten(self, name: str, who: Strand) -> None:
        if not name.startswith(_ADVICE):
            raise BrokenPromiseError("truth is only created", f"{who.name} put {name}")

    def deleted(self, name: str, who: Strand) -> None:
        version = parse_manifest_name(name)
        if version in self.history and version not in self.freed:
            self._may_free(version, who)
            self.freed.add(version)
            self.counts["manifests retired"] += 1
        elif (file := file_of(name)) is not None:
            self._may_collect(name, Term(file.term), file.epoch, who)
            self.counts["files collected"] += 1
        elif name == TRIMMED:
            raise BrokenPromiseError("truth is only created", f"{who.name} deleted {name}")

    # ---- what somebody was told

    def heard(self, manifest: Manifest) -> None:
        """A writer was told that this manifest is committed."""
        truth = self.history.get(manifest.version)
        if truth != manifest:
            raise BrokenPromiseError(
                "what a writer was told of stays in history",
                f"version {manifest.version} of term {manifest.term}, found term {truth and truth.term}",
            )
        self.counts["told of"] += 1

    def heard_of_pin(self, name: str, manifest: Manifest) -> None:
        """Somebody was told that this pin holds."""
        for file in self.files_of(manifest):
            if file not in self.truth.objects:
                raise BrokenPromiseError("a pin that was confirmed can be read", f"{name} misses {file}")
        self.pinned[name] = manifest
        self.counts["pins"] += 1

    def let_go(self, name: str) -> None:
        """Somebody begins to take this pin away."""
        self.pinned.pop(name, None)

    def missed(self, what: str, who: Strand) -> None:
        """A reader that had the right to find something did not."""
        raise BrokenPromiseError("what a reader chose stays for the grace period", f"{who.name}: {what}")

    # ---- what must be so

    def files_of(self, manifest: Manifest) -> list[str]:
        """All files that it names, itself and by way of its index objects."""
        named = [run.path for shards in manifest.runs.values() for runs in shards for run in runs]
        named += [change.path for change in (*manifest.changes, *self._entries(manifest.files))]
        named += [ref.path for listed in _lists(manifest) for ref in listed.index]
        return list(dict.fromkeys(named))

    def bound(self) -> Version:
        """The first manifest that must be there once collectors have had their time."""
        now_ms = self.now_ms()
        bounds = [
            min([version, *(entry.version for entry in manifest.retained)])
            for version, manifest in self.history.items()
            if now_ms - self.created_ms[version] >= self.grace_ms
        ]
        return Version(max(1, min(max(bounds, default=1), len(self.history) - self.kept + 1)))

    def _follows(self, before: Manifest | None, manifest: Manifest) -> None:
        number = 1 if before is None else before.version + 1
        if manifest.version != number:
            raise BrokenPromiseError("versions have no gap", f"{manifest.version} came after {number - 1}")
        if broken := violations(before, manifest):
            raise BrokenPromiseError("a manifest follows its parent", f"{manifest.version}: {broken}")
        if before is not None and (manifest.term < before.term or manifest.uuid != before.uuid):
            raise BrokenPromiseError("terms only grow", f"{manifest.term} came after {before.term}")
        if manifest.kind is ManifestKind.EPOCH and before is not None and manifest.term != before.term:
            raise BrokenPromiseError("a fenced writer commits nothing", f"term {manifest.term} under {before.term}")

    def _has_its_files(self, manifest: Manifest) -> None:
        for listed in _lists(manifest):
            for ref in listed.index:
                self._is_there(ref.path, manifest)
        for file in self.files_of(manifest):
            self._is_there(file, manifest)

    def _is_there(self, file: str, manifest: Manifest) -> None:
        if file not in self.truth.objects:
            raise BrokenPromiseError("what a manifest names is durable", f"{manifest.version} names {file}")

    def _consumed_the_next_batch(self, before: Manifest | None, manifest: Manifest) -> None:
        if manifest.kind is not ManifestKind.EPOCH:
            return
        was = 0 if before is None else consumed(before)
        if consumed(manifest) != was + 1:
            raise BrokenPromiseError(
                "each epoch consumes the next batch", f"{manifest.version}: {consumed(manifest)} after {was}"
            )

    def _shows_a_prefix(self, manifest: Manifest) -> None:
        """Its table, read from its files, is what the job in plain Python makes of its input; so is its change log."""
        batches, shards = consumed(manifest), manifest.shards
        if not manifest.pipeline.tables:
            rows = [row for change in self._entries(manifest.files) for row in self._rows(change)]
            if rows != rows_after(batches, shards):
                raise BrokenPromiseError("a table is that of a prefix", f"{manifest.version}: {rows} of {batches}")
            return
        table: dict[str, int] = {}
        for runs in manifest.runs[TABLE]:
            for run in reversed(runs):
                table.update(decode_sums(self.truth.objects[run.path]))
        if table != sums_after(batches):
            raise BrokenPromiseError("a table is that of a prefix", f"{manifest.version}: {table} of {batches}")
        changed: dict[str, int] = {}
        for change in manifest.changes:
            changed.update(decode_sums(self.truth.objects[change.path]))
        keys = {str(key) for shard in range(shards) for key, _ in rows_of(batches, shard, shards)} if batches else set()
        if changed != {key: table[key] for key in keys}:
            raise BrokenPromiseError("a change log is that of its epoch", f"{manifest.version}: {changed}")

    def _goes_back_once(self, manifest: Manifest) -> None:
        if manifest.kind is not ManifestKind.ROLLBACK:
            return
        root_run = manifest.owner.location  # the simulation's writers say there for whom they open
        if root_run in self._rolled_back_for:
            raise BrokenPromiseError("a Dagster run goes back once", f"{manifest.version} for {root_run}")
        self._rolled_back_for.add(root_run)

    def _becomes_the_newest(self, before: Manifest | None, manifest: Manifest) -> None:
        version, now_ms = manifest.version, self.now_ms()
        if before is not None:
            for retired in _retains(before) - _retains(manifest):
                self._given_up_ms[retired] = now_ms
        self.history[version] = manifest
        self.counts[manifest.kind] += 1
        self.created_ms[version] = now_ms
        for file in self.files_of(manifest):
            self._holders[file].add(version)

    def _may_free(self, version: Version, who: Strand) -> None:
        rule = "manifests go oldest first, long given up, never the newest"
        if who.role != COLLECTOR:
            raise BrokenPromiseError(rule, f"{who.name} deleted version {version}")
        if version > len(self.history) - self.kept:
            raise BrokenPromiseError(rule, f"version {version} of {len(self.history)} was deleted")
        if len(self.freed) != version - 1:
            raise BrokenPromiseError(rule, f"version {version} was deleted while {len(self.freed)} older ones were")
        if self._is_held(version):
            raise BrokenPromiseError(rule, f"version {version} was deleted within its grace period")
        if TRIMMED not in self.truth.objects:
            raise BrokenPromiseError(rule, f"version {version} was deleted without a sign that the stream is trimmed")

    def _may_collect(self, name: str, term: Term, epoch: int, who: Strand) -> None:
        rule = "nothing that is needed is deleted"
        if who.role != COLLECTOR:
            raise BrokenPromiseError(rule, f"{who.name} deleted {name}")
        for version in sorted(self._holders.get(name, ())):
            if version not in self.freed or self._is_held(version):
                raise BrokenPromiseError(rule, f"{name} was deleted, which version {version} names")
        for pin, manifest in self.pinned.items():
            if name in self.files_of(manifest):
                raise BrokenPromiseError(rule, f"{name} was deleted, which pin {pin} names")
        newest = self.newest
        assert newest is not None, "files come after the stream"
        own = self.writers[newest.term] is who.process
        if term > newest.term or (term == newest.term and (not own or epoch > newest.version)):
            raise BrokenPromiseError("what is in flight is spared", f"{who.name} deleted {name}")

    def _is_held(self, version: Version) -> bool:
        """Whether a reader may still need it: it is retained, or was less than a grace period ago."""
        given_up_ms = self._given_up_ms.get(version)
        return given_up_ms is None or self.now_ms() - given_up_ms < self.grace_ms

    def _entries(self, listed: IndexedList[ChangeRef]) -> Iterable[ChangeRef]:
        for ref in listed.index:
            yield from self._listed(ref)
        yield from listed.tail

    def _listed(self, ref: IndexRef) -> tuple[ChangeRef, ...]:
        # A pin's may be gone where nobody was told that it holds.
        data = self.truth.objects.get(ref.path)
        return () if data is None else _decoded_changes(data, ref.path)

    def _rows(self, change: ChangeRef) -> tuple[tuple[int, int], ...]:
        return decode_rows(self.truth.objects[change.path])


@lru_cache(maxsize=512)
def _decoded_changes(data: bytes, name: str) -> tuple[ChangeRef, ...]:
    return decode_entries(CHANGES, data, name)


def _lists(manifest: Manifest) -> list[IndexedList[ChangeRef]]:
    return [manifest.files, *(position.files for position in manifest.sources)]  # type: ignore[list-item]


def _retains(manifest: Manifest) -> set[Version]:
    return {manifest.version, *(entry.version for entry in manifest.retained)}
