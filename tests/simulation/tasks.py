"""The executors' side of an epoch: tasks that read a shard's state, write its next one, and say so."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from dagster_ckpt.errors import CorruptStateError, StoreUnavailableError
from dagster_ckpt.hash_range import HashRange, shard_range
from dagster_ckpt.ids import Epoch, Nonce, Shard, Term, Version
from dagster_ckpt.lsm.compaction.run_lists import SliceMerge, after_merge, may_merge
from dagster_ckpt.protocol.ack import FilesMerged, ShardAck, ShardRuns
from dagster_ckpt.protocol.manifest.manifest import ChangeRef, Manifest, Pipeline, RunRef
from dagster_ckpt.protocol.object_names import FileId, changes_name, merged_name, state_name
from dagster_ckpt.protocol.transitions.append_merges import FileMergeLimits, choose
from dagster_ckpt.protocol.transitions.step_changes import StepChange, change_steps
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.retention_refs.ancestors import with_ancestors
from dagster_ckpt.storage.stores.object_store import ObjectMissingError, ObjectStore
from tests.simulation.character import Character
from tests.simulation.graph import times_of
from tests.simulation.job import (
    HASHES,
    TABLE,
    Sums,
    added,
    checksum,
    consumed,
    decode_rows,
    decode_sums,
    encode,
    hashes_of,
    rows_of,
    shown,
    time_us,
)

MERGES = FileMergeLimits(files_min=2, merges_max=4, bytes_max=400)
"""Small, as all is here: files of four epochs or so are large."""

Inflow = Callable[[Sums, int, int], Sums]
"""Of a shard's sums before, its number and how many there are: what is new."""

Create = Callable[[ObjectStore, str, memoryview], None]


@dataclass(frozen=True)
class Order:
    """What a task is handed: the epoch to make, and the manifest to build on."""

    epoch: Epoch
    term: Term
    version: Version
    nonce: Nonce
    reads: bool = True
    """False: an epoch of the driver's own, in which only what is due comes out."""
    changed: Pipeline | None = None
    """In the first epoch of changed steps, these."""


@dataclass(frozen=True)
class Decline:
    """A shard's part cannot be made. `final`: the state is damaged, as far as the task can see."""

    shard: Shard
    reason: str
    final: bool = False
    step: int = 0


Word = ShardAck | Decline


@dataclass(frozen=True)
class Task:
    """One attempt at one shard's part of one epoch, in one step. `create` makes a file durable before it returns.

    Of a stream of several steps: `changes` are those that reach the shard, and `emitted` takes those that it makes.
    """

    chain: ManifestChain
    root: ObjectStore
    create: Create
    character: Character
    chance: Random
    calm: bool
    order: Order
    shard: Shard
    attempt: int
    inflow: Inflow | None = None
    step: int = 0
    changes: Sums | None = None
    emitted: Sums = field(default_factory=dict)

    def work(self) -> Word:
        """Everything, up to the one word about it."""
        if self.chance.random() < self.character.faults.decline and not self.calm:
            return Decline(self.shard, "no memory", step=self.step)
        try:
            return self._work()
        except StoreUnavailableError:
            return Decline(self.shard, "the store does not answer", step=self.step)
        except CorruptStateError as error:
            return Decline(self.shard, str(error), final=True, step=self.step)

    def _work(self) -> ShardAck:
        manifest = self.chain.read(self.order.version)
        if manifest.nonce != self.order.nonce:
            raise CorruptStateError(f"another manifest than that of the order. version={manifest.version}")
        if not self.order.reads:
            return ShardAck(self.shard, step=self.step)
        if self.order.changed is not None:
            return self._restarted(manifest, self.order.changed)
        if self.changes is not None:
            return self._changed(manifest, self.changes)
        if self.inflow is not None:
            sums = self._sums(manifest)
            return self._put(manifest, sums, self.inflow(sums, self.shard, manifest.shards))
        number = consumed(manifest) + 1
        rows = rows_of(number, self.shard, manifest.shards)
        if not manifest.pipeline.tables:
            ack = self._append(manifest, rows)
        else:
            ack = self._keyed(manifest, rows) if rows else ShardAck(self.shard)
        return replace(ack, event_times_us=(time_us(number),)) if self.character.quiet and rows else ack

    def _append(self, manifest: Manifest, rows: list[tuple[int, int]]) -> ShardAck:
        merged = self._merged(manifest) if self.shard == 0 else None
        changes = (self._change(encode(rows), len(rows)),) if rows else ()
        return ShardAck(self.shard, changes=changes, rows_in=len(rows), files_merged=merged)

    def _merged(self, manifest: Manifest) -> FilesMerged | None:
        """Files of the table, made one."""
        choice = choose(manifest.files.tail, MERGES)
        if choice is None:
            return None
        rows = [row for file in choice.files for row in decode_rows(self._read(manifest, file.name))]
        data, name = encode(rows), merged_name(choice.merges, self._file())
        self.create(self.chain.store, name, memoryview(data))
        file = ChangeRef(name, len(rows), len(data), checksum(data), choice.files[-1].epoch, self.shard)
        return FilesMerged(tuple(each.path for each in choice.files), file)

    def _keyed(self, manifest: Manifest, rows: list[tuple[int, int]]) -> ShardAck:
        sums = self._sums(manifest)
        after = added(sums, rows)
        return self._put(manifest, sums, {str(key): after[str(key)] for key, _ in rows})

    def _restarted(self, manifest: Manifest, pipeline: Pipeline) -> ShardAck:
        """In the first epoch of changed steps: a kept step emits its table, any other begins with what reaches it."""
        kept = StepChange.between(manifest.pipeline, pipeline).kept.get(self.step)
        if kept is None:
            return self._changed(change_steps(manifest, pipeline), self.changes or {})
        [spec] = pipeline.steps[self.step].tables
        self.emitted.update(self._sums(manifest, manifest.pipeline.name_in_runs(kept, spec.name)))
        return ShardAck(self.shard, step=self.step)

    def _changed(self, manifest: Manifest, changes: Sums) -> ShardAck:
        """Of one of several steps: its totals after these changes, which it emits."""
        step = manifest.pipeline.steps[self.step]
        [spec] = step.tables
        table = manifest.pipeline.name_in_runs(self.step, spec.name)
        sums = self._sums(manifest, table)
        ack = self._put(
            manifest, sums, {name: sums.get(name, 0) + times_of(step) * more for name, more in changes.items()}, table
        )
        self.emitted.update(changes)
        is_first = self.step == 0
        event_times_us = (time_us(consumed(manifest) + 1),) if is_first and changes and self.character.quiet else ()
        rows_in = ack.rows_in if is_first else 0
        return replace(ack, step=self.step, event_times_us=event_times_us, rows_in=rows_in)

    def _sums(self, manifest: Manifest, table: str = TABLE) -> Sums:
        sums: Sums = {}
        for run in reversed(manifest.runs[table][self.shard]):
            sums |= shown(run, decode_sums(self._read(manifest, run.name)))
        return sums

    def _put(self, manifest: Manifest, sums: Sums, changed: Sums, table: str = TABLE) -> ShardAck:
        if not changed:
            return ShardAck(self.shard)
        before, after = manifest.runs[table][self.shard], sums | changed
        within = shard_range(self.shard, manifest.shards)
        if len(before) < self.character.runs_max:
            runs = (self._run(changed, within, manifest.shards, table), *before)
        elif self.character.slices:
            merged = self._with_a_slice_merged(before, sums, within, manifest.shards, table)
            runs = (self._run(changed, within, manifest.shards, table), *merged)
        else:  # compaction within the epoch: all runs become one
            runs = (self._run(after, within, manifest.shards, table),)
        changes = (self._change(encode(changed), len(changed)),) if table == TABLE else ()
        return ShardAck(self.shard, (ShardRuns(table, runs),), changes, rows_in=len(changed), rows_out=len(changed))

    def _with_a_slice_merged(
        self, before: tuple[RunRef, ...], sums: Sums, within: HashRange, shards: int, table: str
    ) -> tuple[RunRef, ...]:
        """The runs after those of a part of the hashes became one, by the product's own lists."""
        of = self.chance.choice([1, 2, 4])
        parts = [shard_range(self.shard * of + at, shards * of) for at in range(of)]
        part = self.chance.choice([part for part in parts if may_merge(before, within, part)] or [within])
        content = {key: total for key, total in sums.items() if part.lo <= HASHES[key] <= part.hi}
        outputs = [self._run(content, part, shards, table, number=1)] if content else []
        (merged,) = after_merge([before], [within], SliceMerge(part, files=1, rows=len(sums)), outputs)
        return merged

    def _run(self, sums: Sums, clip: HashRange, shards: int, table: str, number: int = 0) -> RunRef:
        data, file = encode(sums), replace(self._file(), number=number)
        name = state_name(table, (self.shard,), shards, file)
        self.create(self.chain.store, name, memoryview(data))
        hashes = hashes_of(sums)
        return RunRef(name, len(sums), len(data), checksum(data), self.order.epoch, hashes=hashes, clip=clip)

    def _change(self, data: bytes, rows: int) -> ChangeRef:
        name = changes_name(self._file())
        self.create(self.chain.store, name, memoryview(data))
        return ChangeRef(name, rows, len(data), checksum(data), self.order.epoch, self.shard)

    def _file(self) -> FileId:
        return FileId(self.order.term, self.order.epoch, self.shard, self.attempt)

    def _read(self, manifest: Manifest, name: str) -> bytes:
        try:
            return with_ancestors(self.chain.store, self.root, manifest.ancestors).get(name)
        except ObjectMissingError as error:
            raise CorruptStateError(f"a file of the stream is missing. file={name}") from error
