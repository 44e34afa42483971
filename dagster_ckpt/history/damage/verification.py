"""Reads every byte that a stream's epochs and pins need, and reports what is damaged.

It works from the newest manifest, and reads each object once however many epochs share it. Beside a live writer an
object may vanish because its epoch was retired meanwhile: so the newest manifest is read again at the end, and a
missing object that no epoch needs any more is no damage.

What a stream has read of others is checked too: one that was restored from a backup has other epochs of those numbers.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeVar

from dagster_ckpt.errors import CorruptStateError, InvalidPipelineError
from dagster_ckpt.history.damage.damage_advice import go_back
from dagster_ckpt.ids import EMPTY, FIRST, Epoch, Version
from dagster_ckpt.protocol.epochs.lineage import is_abandoned, lineage_epochs
from dagster_ckpt.protocol.epochs.pin import Pin, PinVerdict, decode_pin
from dagster_ckpt.protocol.epochs.retention import first_needed
from dagster_ckpt.protocol.epochs.upstream import UpstreamPosition, consumption_by_epoch
from dagster_ckpt.protocol.json_codec import Codec
from dagster_ckpt.protocol.manifest.codec import CHANGES, FILES_SEEN, decode_manifest
from dagster_ckpt.protocol.manifest.manifest import ChangeRef, Consumed, IndexedList, IndexRef, Manifest, RunRef
from dagster_ckpt.protocol.manifest.references import Role, references
from dagster_ckpt.protocol.object_names import (
    PINS,
    TRIMMED,
    manifest_name,
    name_in_stream,
    parse_ancestors_name,
    pin_name,
    table_in_name,
    verdict_name,
)
from dagster_ckpt.protocol.transitions.well_formed import broken_rules
from dagster_ckpt.state.committed.object_checks import MISSING, check_file
from dagster_ckpt.storage.chain.damaged_end import LOST, BrokenEnd, newest_known
from dagster_ckpt.storage.chain.indexed_lists import IndexedLists
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.retention_refs.ancestors import with_ancestors
from dagster_ckpt.storage.retention_refs.upstream_log import NothingFollowsError, UpstreamLog
from dagster_ckpt.storage.stores.folder import stream_folder
from dagster_ckpt.storage.stores.object_store import ObjectMissingError, ObjectStore
from dagster_ckpt.storage.stores.retry import Patience, retrying

Entry = TypeVar("Entry")

Progress = Callable[[int, int], None]
"""Called after each piece with the bytes read so far, and the bytes known to be needed."""

_PATIENCE = Patience(total_ms=30_000)


@dataclass(frozen=True, slots=True)
class Finding:
    """One damaged object: its name in the stream's folder, what is wrong, and which retained epochs and pins need it.

    Without either, nothing that can be read needs it. `step` is the number of the step, one of several, whose state it
    is.
    """

    object: str
    wrong: str
    epochs: tuple[Epoch, ...] = ()
    pins: tuple[str, ...] = ()
    step: int | None = None


@dataclass(frozen=True)
class Verification:
    """What was read of a stream, and what of it is damaged.

    `epoch` is the current one; None where the newest manifest is damaged. `good_epoch` is the
    newest one that can be gone back to and whose every object is whole, None where there is none; `command` goes back
    to it (or to the empty stream) where the current epoch is damaged. `bytes` counts what was read of all objects.
    """

    stream: str
    epoch: Epoch | None
    good_epoch: Epoch | None
    manifests: int = 0
    runs: int = 0
    changes: int = 0
    index_objects: int = 0
    pins: int = 0
    bytes: int = 0
    findings: tuple[Finding, ...] = ()
    command: str | None = None

    @property
    def whole(self) -> bool:
        """Whether nothing is damaged."""
        return not self.findings


def verify(root: ObjectStore, chain: ManifestChain, stream: str, progress: Progress | None = None) -> Verification:
    """Verify the stream that the chain is of, which is in the store `root`.

    Raises `StoreUnavailableError` where the store does not answer.
    """
    patient_chain = replace(chain, store=retrying(chain.store, chain.clock, _PATIENCE))
    try:
        end = patient_chain.end()
    except CorruptStateError as error:
        return Verification(stream, None, None, findings=(Finding(manifest_name(FIRST), str(error)),))
    assert end is not None, "only what exists can be verified"
    newest = newest_known(end)
    files = retrying(with_ancestors(chain.store, root, newest.ancestors), chain.clock, _PATIENCE)
    return _Check(patient_chain, root, files, stream, end, progress or _no_progress).result()


class _Check:
    """One verification. `end` is where the chain ended when it began; `files` has those of the ancestors too."""

    def __init__(
        self,
        chain: ManifestChain,
        root: ObjectStore,
        files: ObjectStore,
        stream: str,
        end: Manifest | BrokenEnd,
        progress: Progress,
    ) -> None:
        self._chain = chain
        self._root = root
        self._files = files
        self._stream = stream
        self._broken = end if isinstance(end, BrokenEnd) else None
        self._newest = newest_known(end)
        self._progress = progress
        self._needs = _NeededObjects()
        self._findings: list[Finding] = []
        self._epochs = {f"v{entry.version}": entry.epoch for entry in self._newest.retained}
        self._readable: list[Manifest] = []
        self._manifests = self._pins = 0
        self._done = self._total = 0

    def result(self) -> Verification:
        if self._broken is None:
            self._epochs.setdefault(f"v{self._newest.version}", self._newest.epoch)
        self._check_manifests()
        self._check_pins()
        self._check_index()
        self._check_files()
        self._check_own_pins()
        self._check_upstreams()
        later = self._chain.end()
        findings = tuple(found for finding in self._findings if (found := self._still(finding, later)) is not None)
        bad = {epoch for finding in findings for epoch in finding.epochs}
        epoch = None if self._broken is not None else self._newest.epoch
        good = max((each for each in lineage_epochs(self._newest) if each not in bad), default=None)
        if epoch == EMPTY and EMPTY not in bad:
            good = EMPTY
        command = None if epoch is not None and epoch not in bad else go_back(self._chain, self._stream, good or EMPTY)
        return Verification(
            stream=self._stream,
            epoch=epoch,
            good_epoch=good,
            manifests=self._manifests,
            runs=sum(isinstance(ref, RunRef) for ref in self._needs.files.values()),
            changes=sum(isinstance(ref, ChangeRef) for ref in self._needs.files.values()),
            index_objects=len(self._needs.changes_index) + len(self._needs.files_index),
            pins=self._pins,
            bytes=self._done,
            findings=findings,
            command=command,
        )

    def _check_manifests(self) -> None:
        """All from the newest down to the first one that must be there, and on for as long as there are more."""
        floor = self._floor(self._newest)
        if floor == FIRST and not self._chain.store.exists(manifest_name(FIRST)):
            floor = self._floor_without_mark(self._newest)
        version, child = self._newest.version, None
        while version >= FIRST:
            data = self._bytes(manifest_name(version))
            if data is None and version < floor:
                break
            child = self._check_manifest(version, data, child)
            version = Version(version - 1)

    def _floor(self, newest: Manifest) -> Version:
        """The oldest manifest that must be there: no collector may have removed it, however short its grace period."""
        return first_needed(newest, newest) if self._chain.store.exists(TRIMMED) else FIRST

    def _floor_without_mark(self, newest: Manifest) -> Version:
        """The same where version 1 is missing, and so is what a collector writes before it removes that.

        One lost mark is likelier than several lost manifests, unless something needs them.
        """
        absent = (v for v in range(FIRST, newest.version) if not self._chain.store.exists(manifest_name(Version(v))))
        if list(islice(absent, 2)) != [FIRST, FIRST + 1]:
            return FIRST
        self._findings.append(Finding(TRIMMED, "missing, although the oldest manifests were retired"))
        return first_needed(newest, newest)

    def _check_manifest(self, version: Version, data: bytes | None, child: Manifest | None) -> Manifest | None:
        """Check one that `child` (None: it cannot be read) must follow; the manifest, where it can be read."""
        name, who = manifest_name(version), f"v{version}"
        if data is None or data == LOST:
            self._found_manifest(version, MISSING if data is None else "lost, and left behind by a rollback")
            return None
        self._manifests += 1
        self._read(len(data), known=False)
        try:
            manifest = decode_manifest(data, name)
        except CorruptStateError as error:
            self._found_manifest(version, str(error).rpartition("reason=")[2])
            return None
        wrong = [f"breaks the rule {rule}" for rule in broken_rules(manifest)]
        if manifest.version != version:
            wrong.append(f"is version {manifest.version}")
        elif child is not None and not _is_built_on(child, manifest):
            wrong.append(f"is not what version {child.version} was built upon")
        if wrong:
            self._found_manifest(version, ", ".join(wrong))
            return None
        if who in self._epochs:
            self._needs.add(manifest, who)
            self._readable.append(manifest)
        return manifest

    def _found_manifest(self, version: Version, wrong: str) -> None:
        epochs = [self._epochs[who]] if (who := f"v{version}") in self._epochs else []
        # A rollback has abandoned it, and it cannot be read by number: the damage is dealt with.
        if epochs or (self._broken is not None and version > self._broken.readable.version):
            self._findings.append(Finding(manifest_name(version), wrong, tuple(epochs)))
        elif not is_abandoned(self._newest, version):
            self._findings.append(Finding(manifest_name(version), wrong))

    def _check_pins(self) -> None:
        for name in sorted(self._chain.store.list(PINS)):
            data = self._bytes(name)
            if data is None:
                continue  # unpinned meanwhile
            self._pins += 1
            self._read(len(data), known=False)
            try:
                pin = decode_pin(data, name)
            except CorruptStateError as error:
                self._findings.append(Finding(name, str(error).rpartition("reason=")[2], pins=(name,)))
                continue
            if pin_name(pin.name) != name or pin.manifest.uuid != self._newest.uuid:
                self._findings.append(Finding(name, f"is the pin {pin.name!r} of {pin.manifest.stream}", pins=(name,)))
                continue
            self._needs.add(pin.manifest, name)
            self._check_verdict(pin)

    def _check_verdict(self, pin: Pin) -> None:
        """Check the object that says whether the pin keeps its epoch; there may be none yet."""
        name = verdict_name(pin.nonce)
        data = self._bytes(name)
        if data is not None and data not in set(PinVerdict):
            self._findings.append(Finding(name, "is no verdict on a pin", pins=(pin_name(pin.name),)))

    def _check_index(self) -> None:
        needs = self._needs
        for path, ref in sorted(needs.changes_index.items()):
            entries = self._entries(ref, CHANGES)
            needs.add_files(entries, path)
        for _, ref in sorted(needs.files_index.items()):
            self._entries(ref, FILES_SEEN)

    def _entries(self, ref: IndexRef, codec: Codec[tuple[Entry, ...]]) -> tuple[Entry, ...]:
        lists = IndexedLists(self._files, codec, self._chain.clock, _PATIENCE)
        try:
            entries = lists.entries(IndexedList((ref,)))
        except CorruptStateError:
            there = self._files.exists(ref.name)
            self._add_finding(ref.name, "another checksum than the manifest's" if there else MISSING)
            return ()
        if len(entries) != ref.entries:
            self._add_finding(ref.name, f"{len(entries):,} entries instead of {ref.entries:,}")
        self._read(ref.bytes, known=False)
        return entries

    def _check_files(self) -> None:
        files = self._needs.files
        self._total = self._done + sum(ref.bytes for ref in files.values())
        for path in sorted(files):
            before = self._done
            wrong = check_file(self._files, files[path], self._read)
            if wrong is None and path in self._needs.contradicted:
                wrong = "named with several checksums"
            if wrong is not None:
                self._add_finding(path, wrong)
                self._total -= files[path].bytes - (self._done - before)

    def _check_own_pins(self) -> None:
        """Check that the pins exist by which a fork keeps what it needs of its ancestors."""
        needed = {place[0] for name in self._needs.named_by if (place := parse_ancestors_name(name)) is not None}
        for ancestor in (each for each in self._newest.ancestors if each.uuid in needed):
            name = name_in_stream(pin_name(ancestor.pin_of(self._newest.uuid)), ancestor.uuid)
            if not self._files.exists(name):
                self._findings.append(Finding(name, "was taken away: the files that it keeps may be collected"))

    def _check_upstreams(self) -> None:
        """Check that the streams which this one reads have the epochs that it has read of them.

        For a delivery only the newest position counts: it goes on from there.
        """
        delivers, of_lineage = self._newest.pipeline.delivers, set(lineage_epochs(self._newest))
        logs: dict[str, UpstreamLog] = {}
        for manifest in self._readable:
            counts = manifest.version == self._newest.version if delivers else manifest.epoch in of_lineage
            for consumed in consumption_by_epoch(manifest.sources) if counts else ():
                chain = replace(self._chain, store=stream_folder(self._root, consumed.stream))
                log = logs.setdefault(consumed.stream, UpstreamLog(chain, consumed.stream))
                wrong = _divergence(log, consumed)
                if wrong is not None:
                    epochs = () if delivers else (manifest.epoch,)
                    self._findings.append(Finding(manifest_name(manifest.version), wrong, epochs))

    def _add_finding(self, path: str, wrong: str) -> None:
        needed_by = self._needs.dependents(path)
        epochs = sorted({self._epochs[who] for who in needed_by if who in self._epochs})
        pins = sorted(who for who in needed_by if who not in self._epochs)
        self._findings.append(Finding(path, wrong, tuple(epochs), tuple(pins), self._step_of(path)))

    def _step_of(self, path: str) -> int | None:
        """The step whose state a file is, of a stream of several; None for any other file."""
        pipeline = self._newest.pipeline
        table = table_in_name(path)
        steps = enumerate(pipeline.steps) if pipeline.before else ()
        return next(
            (n for n, step in steps for spec in step.tables if pipeline.name_in_runs(n, spec.name) == table), None
        )

    def _still(self, finding: Finding, later: Manifest | BrokenEnd | None) -> Finding | None:
        """The finding as it is now; None where the object is gone and so is all that needed it."""
        if later is None or isinstance(later, BrokenEnd) or not finding.wrong.startswith(MISSING):
            return finding
        retained = {entry.epoch for entry in later.retained} | {later.epoch}
        epochs = tuple(epoch for epoch in finding.epochs if epoch in retained)
        pins = tuple(pin for pin in finding.pins if self._chain.store.exists(pin))
        needed = bool(epochs or pins)
        if not finding.epochs and not finding.pins:
            needed = finding.object >= manifest_name(self._floor(later))
        return replace(finding, epochs=epochs, pins=pins) if needed else None

    def _bytes(self, name: str) -> bytes | None:
        try:
            return self._chain.store.get(name)
        except ObjectMissingError:
            return None

    def _read(self, count: int, *, known: bool = True) -> None:
        self._done += count
        self._total += 0 if known else count
        self._progress(self._done, self._total)


def _is_built_on(child: Manifest, manifest: Manifest) -> bool:
    """Whether it is the child's parent, by its number and its nonce."""
    same_nonce = child.parent_nonce in (None, manifest.nonce)
    return (child.parent, child.uuid) == (manifest.version, manifest.uuid) and same_nonce


def _divergence(log: UpstreamLog, consumed: Consumed) -> str | None:
    """What is wrong with what was read of an upstream; None where it has that epoch, or may have had it."""
    at = UpstreamPosition.from_consumed(consumed)
    try:
        if at.nonce is not None:
            log.check(at)
    except NothingFollowsError as error:
        if error.instead is not None:
            return (
                f"has read epoch {at.text} of {consumed.stream}, which has {error.instead.text} in its place: that "
                "stream was restored from a backup"
            )
    except (CorruptStateError, InvalidPipelineError):
        return None  # of an upstream that is damaged itself, or was removed
    return None


def _no_progress(done: int, total: int) -> None:
    pass


@dataclass
class _NeededObjects:
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

    def dependents(self, path: str) -> set[str]:
        """The manifests and pins that need this object, directly or by way of an index object."""
        found: set[str] = set()
        for who in self.named_by.get(path, ()):
            found |= self.dependents(who) if who in self.named_by else {who}
        return found
