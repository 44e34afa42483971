"""Sees every change of the store the moment it happens, and says which promise it breaks.

It knows the whole history, the job in plain Python, and time. It uses nothing of the code that it judges but the types,
the names and the codec of manifests; `manifest_rules` as a second pair of eyes only.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dagster_ckpt.ids import EMPTY, FIRST, Epoch, StreamUuid, Term, Version
from dagster_ckpt.protocol.epochs.upstream import BACKFILL_PINS, UpstreamPosition
from dagster_ckpt.protocol.manifest.codec import CHANGES
from dagster_ckpt.protocol.manifest.manifest import ChangeRef, IndexedList, IndexRef, Manifest, ManifestKind
from dagster_ckpt.protocol.manifest.packing import decode_entries
from dagster_ckpt.protocol.object_names import (
    PINS,
    SUBSCRIBERS,
    TRIMMED,
    name_in_stream,
    parse_ancestors_name,
    parse_file_name,
    parse_manifest_name,
    parse_verdict_name,
    pin_name,
)
from dagster_ckpt.protocol.transitions.manifest_rules import violations
from tests.simulation import decoded
from tests.simulation.graph import tables_after, times_of
from tests.simulation.job import (
    TABLE,
    Row,
    Sums,
    batch,
    consumed,
    decode_rows,
    decode_sums,
    rows_after,
    shard_of,
    shown,
    sums_after,
)
from tests.simulation.scheduler import Process, Strand
from tests.simulation.truth import Truth

if TYPE_CHECKING:
    from tests.simulation.reading import Reading

_ADVICE = ("lease/", "requests/", "collector.json")
COLLECTOR = "collector"
_KNOWN = (
    "history",
    "freed",
    "pinned",
    "too_late",
    "created_ms",
    "writers",
    "logged",
    "has_subscribers",
    "mark_unanswered",
    "worked_with",
    "worked",
    "_given_up_ms",
    "_quiet",
    "_restarted",
    "_swapped",
    "_rolled_back_for",
)
"""What an oracle knows of the history of its folder."""
_PIN_IN_ERROR = re.compile(r"^a part of what a pin keeps is not there.* pin='([^']+)'")


class BrokenPromiseError(AssertionError):
    """What must never happen has happened. `rule` is which."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule


@dataclass
class Oracle:
    """`history` are all manifests that ever became the newest. One created on a freed number is a sleeper's: it is not.

    `mark_unanswered`: a collector may have had to go on without the mark of a trimmed stream.

    `worked` are the epochs of each term for which tasks were started; the driver makes others without any.

    `worked_with` says of each with how many shards the batches were worked on that it shows.

    `kept` manifests are never deleted, and nothing that was retained until less than `grace_ms` ago. `oracles` are
    those of all streams: of forks, which need files of this one, and of those whose files this one needs. `logged` are
    the change logs of all epochs, where the stream is delivered.
    """

    truth: Truth
    now_ms: Callable[[], int]
    kept: int
    grace_ms: int
    history: dict[Version, Manifest] = field(default_factory=dict)
    freed: set[Version] = field(default_factory=set)
    pinned: dict[str, Manifest] = field(default_factory=dict)
    too_late: set[str] = field(default_factory=set)
    created_ms: dict[Version, int] = field(default_factory=dict)
    writers: dict[Term, Process] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    _given_up_ms: dict[Version, int] = field(default_factory=dict)
    _holders: defaultdict[str, set[Version]] = field(default_factory=lambda: defaultdict(set))
    oracles: "dict[StreamUuid, Oracle]" = field(default_factory=dict)
    logged: dict[Epoch, tuple[tuple[str, int], ...]] | None = None
    readers: "list[Reading]" = field(default_factory=list)
    has_subscribers: bool = False
    mark_unanswered: bool = False
    worked_with: dict[Version, tuple[int, ...]] = field(default_factory=dict)
    worked: set[tuple[Term, Epoch]] = field(default_factory=set)
    _quiet: set[Epoch] = field(default_factory=set)
    _restarted: set[Epoch] = field(default_factory=set)
    _swapped: dict[Epoch, set[str]] = field(default_factory=dict)
    _confirmed: set[int] = field(default_factory=set)
    _rolled_back_for: set[str] = field(default_factory=set)
    former: "tuple[Oracle, ...]" = ()

    @property
    def newest(self) -> Manifest | None:
        return self.history[Version(len(self.history))] if self.history else None

    @property
    def epochs(self) -> int:
        """How many were ever committed."""
        return self.counts[ManifestKind.EPOCH] + self.counts[ManifestKind.SWAP]

    # ---- restores from a backup

    def knowledge(self) -> dict[str, Any]:
        """A copy of all that it knows of the folder's history."""
        known = {name: copy(getattr(self, name)) for name in _KNOWN}
        known["_holders"] = defaultdict(set, {file: set(holders) for file, holders in self._holders.items()})
        return known

    def goes_back_to(self, known: Mapping[str, Any], before: "Oracle") -> None:
        """The folder was restored: `known` is what its judge knew when it was backed up, `before` is that of today."""
        for name, value in {**known, "_holders": deepcopy(known["_holders"])}.items():
            setattr(self, name, value if name == "_holders" else copy(value))
        self.counts, self.readers = before.counts, before.readers
        self.former = (*before.former, before)
        self.oracles[self.uuid] = self

    def with_epoch(self, at: UpstreamPosition) -> "Oracle":
        """The judge of the history that a position is in: this one, or that of a time before a restore."""
        return next((each for each in (self, *reversed(self.former)) if each.has_epoch(at)), self)

    def has_epoch(self, at: UpstreamPosition) -> bool:
        """Whether the epoch of a position is one of this history. Without a nonce only its number counts."""
        shown = self.history.get(Version(at.epoch))
        return at.epoch == EMPTY or (shown is not None and at.nonce in (None, shown.nonce))

    # ---- what happened to the store

    def created(self, name: str, data: bytes, who: Strand) -> None:
        version = parse_manifest_name(name)
        if version is None:
            self.has_subscribers |= name.startswith(SUBSCRIBERS)
            return
        if version in self.history:
            self.counts["sleepers"] += 1
            return
        manifest = decoded.manifest(data, name)
        before = self.newest
        self._follows(before, manifest)
        self._is_no_fenced_writers(before, manifest, who)
        self._emits_what_was_due(before, manifest)
        self._has_its_files(manifest)
        self._consumed_the_next_batch(before, manifest)
        self.worked_with[version] = self._shards_of_batches(before, manifest)
        self._shows_a_prefix(manifest)
        self._reshards(before, manifest)
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
        elif (file := parse_file_name(name)) is not None:
            self._may_collect(name, Term(file.term), file.epoch, who)
            self.counts["files collected"] += 1
        elif name.startswith(f"{PINS}/{BACKFILL_PINS}"):
            epoch = decoded.a_pin(self.truth.objects[name], name).manifest.epoch
            is_lost = who.role == COLLECTOR and any(reader.has_lost(epoch) for reader in self.readers)
            if who.role != "driver" and name not in self.too_late and not is_lost:
                raise BrokenPromiseError("a snapshot's pin is its reader's alone", f"{who.name} deleted {name}")
            self.counts["snapshots lost"] += is_lost
            if any(reader.needs_pin(name) for reader in self.readers):
                raise BrokenPromiseError("a snapshot stays for who can go back into it", f"{who.name} deleted {name}")
            for reader in self.readers:
                reader.released(name)
        elif (nonce := parse_verdict_name(name)) is not None:
            pins = (decoded.a_pin(data, pin) for pin, data in self.truth.objects.items() if pin.startswith(f"{PINS}/"))
            if nonce in {pin.nonce for pin in pins}:
                raise BrokenPromiseError("a verdict stays as long as its pin", f"{who.name} deleted {name}")
            self.counts["verdicts collected"] += 1
        elif name == TRIMMED:
            raise BrokenPromiseError("truth is only created", f"{who.name} deleted {name}")

    def unanswered(self, name: str) -> None:
        self.mark_unanswered |= name == TRIMMED

    # ---- what somebody was told

    def heard(self, manifest: Manifest) -> None:
        """A writer was told that this manifest is committed."""
        truth = self.history.get(manifest.version)
        if truth != manifest:
            raise BrokenPromiseError(
                "what a writer was told of stays in history",
                f"version {manifest.version} of term {manifest.term}, found term {truth and truth.term}",
            )
        self._confirmed.add(self.writers[manifest.term].number)
        self.counts["told of"] += 1

    def heard_of_pin(self, name: str, manifest: Manifest) -> None:
        """Somebody was told that this pin holds."""
        for file in self.files_of(manifest):
            if not self.is_there(file):
                raise BrokenPromiseError("a pin that was confirmed can be read", f"{name} misses {file}")
        self.pinned[name] = manifest
        self.counts["pins"] += 1

    def pin_that_never_held(self, error: str) -> str | None:
        """The pin that an error is about, where nobody was told that it holds; None for any other error."""
        found = _PIN_IN_ERROR.search(error)
        name = None if found is None else found[1]
        if name is None or name in self.pinned:
            return None
        self.too_late.add(pin_name(name))
        return name

    def let_go(self, name: str) -> None:
        """Somebody begins to take this pin away."""
        self.pinned.pop(name, None)

    def missed(self, what: str, who: Strand) -> None:
        """A reader that had the right to find something did not."""
        raise BrokenPromiseError("what a reader chose stays for the grace period", f"{who.name}: {what}")

    # ---- what must be so

    def files_of(self, manifest: Manifest) -> list[str]:
        """All files that it names, itself and by way of its index objects; by their names in its stream."""
        named = [run.name for shards in manifest.runs.values() for runs in shards for run in runs]
        named += [change.name for change in (*manifest.changes, *self._entries(manifest.files))]
        named += [ref.name for listed in _lists(manifest) for ref in listed.index]
        return list(dict.fromkeys(named))

    def is_there(self, file: str) -> bool:
        """Whether the file is in the store: its own, or one of a stream that it was forked from."""
        truth, path = self._place(file)
        return path in truth.objects

    def needed_by_forks(self) -> set[str]:
        """The files of its own that streams forked from it can read, or their forks."""
        uuid, needed = self.uuid, set[str]()
        for fork in self._others():
            for name in fork.named_for_good():
                elsewhere = parse_ancestors_name(name)
                if elsewhere is not None and elsewhere[0] == uuid:
                    needed.add(elsewhere[1])
        return needed

    def named_for_good(self) -> set[str]:
        """All files that its manifests from `bound` on and its pins name."""
        counted = [manifest for version, manifest in self.history.items() if version >= self.bound()]
        return {file for manifest in (*counted, *self.pinned.values()) for file in self.files_of(manifest)}

    def bound(self) -> Version:
        """The first manifest that must be there once collectors have had their time."""
        now_ms = self.now_ms()
        bounds = [
            min([version, *(entry.version for entry in manifest.retained)])
            for version, manifest in self.history.items()
            if now_ms - self.created_ms[version] >= self.grace_ms
        ]
        return Version(max(1, min(max(bounds, default=1), len(self.history) - self.kept + 1)))

    def log_bound(self) -> Version:
        """The first manifest that must be there where other streams read this one; before `bound` for its log alone."""
        reach = [reader.kept_behind() for reader in self.readers if not reader.is_too_far_behind()]
        return Version(max(1, min([self.bound(), *(epoch for epoch in reach if epoch is not None)])))

    def _follows(self, before: Manifest | None, manifest: Manifest) -> None:
        number = 1 if before is None else before.version + 1
        if manifest.version != number:
            raise BrokenPromiseError("versions have no gap", f"{manifest.version} came after {number - 1}")
        if broken := violations(before, manifest):
            raise BrokenPromiseError("a manifest follows its parent", f"{manifest.version}: {broken}")
        if before is not None and (manifest.term < before.term or manifest.uuid != before.uuid):
            raise BrokenPromiseError("terms only grow", f"{manifest.term} came after {before.term}")
        goes_on = manifest.kind in (ManifestKind.EPOCH, ManifestKind.RESHARD)
        if goes_on and before is not None and manifest.term != before.term:
            raise BrokenPromiseError("a fenced writer commits nothing", f"term {manifest.term} under {before.term}")

    def _is_no_fenced_writers(self, before: Manifest | None, manifest: Manifest, who: Strand) -> None:
        """A writer that was fenced may not take the stream back; one that only tried to open it may try again."""
        is_again = who.role == "driver" and who.process.number in self._confirmed
        if before is None or manifest.term == before.term or not is_again:
            return
        if self.writers[before.term] is not who.process:
            raise BrokenPromiseError("a fenced writer stays fenced", f"{who.name} opened {manifest.version} again")

    def _emits_what_was_due(self, before: Manifest | None, manifest: Manifest) -> None:
        """What waited for the parent's watermark comes out where tasks have worked, and nowhere else."""
        if before is None or manifest.kind is not ManifestKind.EPOCH:
            return
        has_worked = (manifest.term, manifest.epoch) in self.worked
        if manifest.harvested_us != (before.watermark_us if has_worked else before.harvested_us):
            raise BrokenPromiseError("what is due is emitted by tasks", f"{manifest.version}: {manifest.harvested_us}")

    def _has_its_files(self, manifest: Manifest) -> None:
        for listed in _lists(manifest):
            for ref in listed.index:
                self._names_what_is_there(ref.name, manifest)
        for file in self.files_of(manifest):
            self._names_what_is_there(file, manifest)

    def _names_what_is_there(self, file: str, manifest: Manifest) -> None:
        if not self.is_there(file):
            raise BrokenPromiseError("what a manifest names is durable", f"{manifest.version} names {file}")

    def _consumed_the_next_batch(self, before: Manifest | None, manifest: Manifest) -> None:
        if manifest.kind is ManifestKind.FORK:
            self._shows_what_its_origin_did(manifest)
        was = 0 if before is None else consumed(before)
        if manifest.kind is ManifestKind.SWAP and consumed(manifest) < was:
            raise BrokenPromiseError(
                "a swap reads no source again", f"{manifest.version}: {consumed(manifest)} < {was}"
            )
        if manifest.kind is not ManifestKind.EPOCH:
            return
        if before is not None and before.epoch != EMPTY and before.pipeline != manifest.pipeline:
            if consumed(manifest) != was or not self._reads_nothing(before, manifest):
                raise BrokenPromiseError("changed steps begin with what was read", f"{manifest.version}")
            self._restarted.add(manifest.epoch)
            self.counts["first epochs of changed steps"] += 1
        if before is not None and consumed(manifest) == was and self._reads_nothing(before, manifest):
            self._quiet.add(manifest.epoch)
            self.counts["epochs that read nothing"] += 1
            return
        if consumed(manifest) != was + 1:
            raise BrokenPromiseError(
                "each epoch consumes the next batch", f"{manifest.version}: {consumed(manifest)} after {was}"
            )

    def _reads_nothing(self, before: Manifest, manifest: Manifest) -> bool:
        """Whether an epoch is the driver's own: of the same batch, after the same files, of the same positions."""
        files = [position.files for position in before.sources], [position.files for position in manifest.sources]
        same = not before.sources or (files[0] == files[1])
        return same and manifest.batch_id == (before.batch_id or 0) and not manifest.statistics.rows_in

    def _shows_what_its_origin_did(self, manifest: Manifest) -> None:
        """The fork begins with the batches of the epoch that it was forked from: its table must be their sums."""
        origin = manifest.ancestors[-1]
        if origin.epoch == EMPTY and consumed(manifest) == 0:
            self.counts["streams begun beside"] += 1
            return
        shown = self.oracles[origin.uuid].history.get(Version(origin.epoch))
        if shown is None or shown.kind is ManifestKind.OPEN or consumed(manifest) != consumed(shown):
            raise BrokenPromiseError("a fork begins with an epoch of its origin", f"{manifest.ancestors}")
        self.counts["forks of forks" if len(manifest.ancestors) > 1 else "forks"] += 1

    def sums_of(self, manifest: Manifest) -> Sums:
        """The table that a manifest of a keyed stream has to show."""
        times = times_of(manifest.pipeline)
        return {key: times * total for key, total in sums_after(consumed(manifest)).items()}

    def rows_of(self, manifest: Manifest) -> list[Row]:
        """The table that a manifest of an append-only stream has to show."""
        return rows_after(self.worked_with[manifest.version])

    def _shows_a_prefix(self, manifest: Manifest) -> None:
        """Its table, read from its files, is what the job in plain Python makes of its input; so is its change log."""
        batches = consumed(manifest)
        if not manifest.pipeline.tables:
            rows = [row for change in self._entries(manifest.files) for row in self._rows(change)]
            if rows != self.rows_of(manifest):
                raise BrokenPromiseError("a table is that of a prefix", f"{manifest.version}: {rows} of {batches}")
            return
        table = self._table(manifest)
        if table != self.sums_of(manifest):
            raise BrokenPromiseError("a table is that of a prefix", f"{manifest.version}: {table} of {batches}")
        for name, wanted in tables_after(batches, set(manifest.runs)).items():
            if (found := self._table(manifest, name)) != wanted:
                what = f"{manifest.version}: {name} is {found}, not {wanted} of {batches}"
                raise BrokenPromiseError("each step's table is that of the same prefix", what)
            self.counts["tables of earlier steps"] += 1
        changed: dict[str, int] = {}
        for change in manifest.changes:
            changed.update(decode_sums(self._content(change.name)))
        # The change log of a fork's first epoch would say what changed since an epoch that it does not have.
        made = batches and not (manifest.ancestors and manifest.epoch == Epoch(FIRST))
        made = made and manifest.epoch not in self._quiet
        keys = {str(key) for key, _ in batch(batches)} if made else set()
        if manifest.epoch in self._restarted:
            keys = set(table)
        if manifest.kind is ManifestKind.SWAP:
            assert self.newest is not None, "it takes the place of something"
            was = self.sums_of(self.newest)
            self._swapped[manifest.epoch] = {key for key, total in table.items() if was.get(key) != total}
        keys = self._swapped.get(manifest.epoch, keys)
        if changed != {key: table[key] for key in keys}:
            raise BrokenPromiseError("a change log is that of its epoch", f"{manifest.version}: {changed}")

    def _table(self, manifest: Manifest, name: str = TABLE) -> Sums:
        """The table as its shards show it, each its own keys."""
        table: Sums = {}
        for shard, runs in enumerate(manifest.runs[name]):
            for run in reversed(runs):
                sums = shown(run, decode_sums(self._content(run.name)))
                if any(shard_of(key, manifest.shards) != shard for key in sums):
                    what = f"{manifest.version} of {manifest.shards} shards: {shard} has {sums}"
                    raise BrokenPromiseError("a shard shows its own keys", what)
                table |= sums
        return table

    def _shards_of_batches(self, before: Manifest | None, manifest: Manifest) -> tuple[int, ...]:
        match manifest.kind:
            case ManifestKind.FORK:
                origin = manifest.ancestors[-1]
                return () if origin.epoch == EMPTY else self.oracles[origin.uuid].worked_with[Version(origin.epoch)]
            case ManifestKind.SWAP:
                beside = manifest.ancestors[-1]
                return self.oracles[beside.uuid].worked_with[Version(beside.epoch)]
            case ManifestKind.ROLLBACK:
                return () if manifest.epoch == EMPTY else self.worked_with[Version(manifest.epoch)]
            case ManifestKind.EPOCH:
                assert before is not None, "an epoch comes after an opening"
                worked_with = self.worked_with[before.version]
                return worked_with if manifest.epoch in self._quiet else (*worked_with, manifest.shards)
        return () if before is None else self.worked_with[before.version]

    def _reshards(self, before: Manifest | None, manifest: Manifest) -> None:
        """Only a reshard changes the number of shards, and nothing else; going back shows an epoch as it was."""
        if before is None:
            return
        rule = "a reshard changes the shards alone"
        if manifest.kind is ManifestKind.ROLLBACK:
            then = self.history.get(Version(manifest.epoch), before)  # epoch 0 has the number that there is
            if manifest.shards != then.shards:
                raise BrokenPromiseError(rule, f"{manifest.version} has {manifest.shards}, not {then.shards}")
        elif manifest.kind is ManifestKind.SWAP:
            pass  # it has as many as what it shows was built with
        elif (manifest.shards != before.shards) != (manifest.kind is ManifestKind.RESHARD):
            raise BrokenPromiseError(
                rule, f"{manifest.version} ({manifest.kind}): {before.shards} became {manifest.shards}"
            )
        if manifest.kind is not ManifestKind.RESHARD:
            return
        as_before = replace(
            manifest,
            shards=before.shards,
            runs=before.runs,
            statistics=before.statistics,
            version=before.version,
            kind=before.kind,
            nonce=before.nonce,
            time_ms=before.time_ms,
            parent=before.parent,
            parent_nonce=before.parent_nonce,
            shown_nonce=before.shown_nonce,
        )
        if as_before != before:
            raise BrokenPromiseError(rule, f"{manifest.version} differs from {before.version}")
        if not set(self.files_of(manifest)) <= set(self.files_of(before)):
            raise BrokenPromiseError("a reshard copies nothing", f"{manifest.version}")
        if any(self._table(manifest, name) != self._table(before, name) for name in manifest.runs):
            raise BrokenPromiseError("a reshard shows the same table", f"{manifest.version}")
        self.counts["reshards to more" if manifest.shards > before.shards else "reshards to fewer"] += 1
        named = [run.name for table in manifest.runs.values() for runs in table for run in runs]
        self.counts["runs named again"] += len(named) - len(set(named))

    def _goes_back_once(self, manifest: Manifest) -> None:
        if manifest.kind not in (ManifestKind.ROLLBACK, ManifestKind.SWAP):
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
        if self.logged is not None and manifest.kind.makes_epoch:
            self.logged[manifest.epoch] = tuple(self._log(manifest))
        self.oracles[manifest.uuid] = self
        self.counts[manifest.kind] += 1
        self.created_ms[version] = now_ms
        for file in self.files_of(manifest):
            self._holders[file].add(version)
        for reader in self.readers:
            reader.look()

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
        if any(reader.needs_log_of(version) for reader in self.readers):
            raise BrokenPromiseError("the log that another stream reads stays", f"version {version} was deleted")
        if TRIMMED not in self.truth.objects:
            raise BrokenPromiseError(rule, f"version {version} was deleted without a sign that the stream is trimmed")

    def _may_collect(self, name: str, term: Term, epoch: int, who: Strand) -> None:
        rule = "nothing that is needed is deleted"
        if who.role != COLLECTOR:
            raise BrokenPromiseError(rule, f"{who.name} deleted {name}")
        self._does_not_need(name, name)
        in_forks = name_in_stream(name, self.uuid)
        for fork in self._others():
            fork._does_not_need(in_forks, name)
        if any(reader.needs_file(name) for reader in self.readers):
            raise BrokenPromiseError(rule, f"{name} was deleted, which is of a snapshot that another stream reads")
        newest = self.newest
        assert newest is not None, "files come after the stream"
        own = self.writers[newest.term] is who.process
        if term > newest.term or (term == newest.term and (not own or epoch > newest.version)):
            raise BrokenPromiseError("what is in flight is spared", f"{who.name} deleted {name}")

    def _does_not_need(self, name: str, path: str) -> None:
        """No reader of this stream needs the file, which is called `name` here and `path` where it was deleted."""
        rule = "nothing that is needed is deleted"
        for version in sorted(self._holders.get(name, ())):
            if (version not in self.freed and not self._is_kept_for_its_log(version, name)) or self._is_held(version):
                raise BrokenPromiseError(rule, f"{path} was deleted, which version {version} names: {name}")
        for pin, manifest in self.pinned.items():
            if name in self.files_of(manifest):
                raise BrokenPromiseError(rule, f"{path} was deleted, which pin {pin} names: {name}")

    def _others(self) -> "list[Oracle]":
        return [oracle for oracle in self.oracles.values() if oracle is not self]

    @property
    def uuid(self) -> StreamUuid:
        return self.history[FIRST].uuid

    def _place(self, name: str) -> tuple[Truth, str]:
        """The folder in which a file lies, and its path there."""
        elsewhere = parse_ancestors_name(name)
        return (self.truth, name) if elsewhere is None else (self.oracles[elsewhere[0]].truth, elsewhere[1])

    def _content(self, name: str) -> bytes:
        truth, path = self._place(name)
        return truth.objects[path]

    def _is_kept_for_its_log(self, version: Version, name: str) -> bool:
        """Whether a manifest is there for its log alone, and that file is not of it.

        For subscribers, or since it may not go before the stream is marked as trimmed.
        """
        logged = {change.name for change in self.history[version].changes}
        is_for_its_log = self.has_subscribers or self.mark_unanswered
        return is_for_its_log and version < self.bound() and name not in logged

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
        truth, path = self._place(ref.name)
        data = truth.objects.get(path)
        return () if data is None else _decoded_changes(data, ref.name, ref.ancestor)

    def _log(self, manifest: Manifest) -> Iterator[tuple[str, int]]:
        """The change log of a keyed stream's epoch."""
        for change in manifest.changes if manifest.pipeline.tables else ():
            yield from decode_sums(self._content(change.name)).items()

    def _rows(self, change: ChangeRef) -> tuple[tuple[int, int], ...]:
        return decode_rows(self._content(change.name))


@lru_cache(maxsize=512)
def _decoded_changes(data: bytes, name: str, ancestor: StreamUuid | None) -> tuple[ChangeRef, ...]:
    entries = decode_entries(CHANGES, data, name)
    return tuple(replace(entry, ancestor=entry.ancestor or ancestor) for entry in entries)


def _lists(manifest: Manifest) -> list[IndexedList[ChangeRef]]:
    return [manifest.files, *(position.files for position in manifest.sources)]  # type: ignore[list-item]


def _retains(manifest: Manifest) -> set[Version]:
    return {manifest.version, *(entry.version for entry in manifest.retained)}
