"""The executors' side of an epoch: tasks that read a shard's state, write its next one, and say so."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from dagster_ckpt.errors import CorruptStateError, StoreUnavailableError
from dagster_ckpt.ids import Epoch, Nonce, Shard, Term, Version
from dagster_ckpt.protocol.ack import FilesMerged, ShardAck, ShardRuns
from dagster_ckpt.protocol.append_merges import FileMergeLimits, choose
from dagster_ckpt.protocol.manifest import ChangeRef, Manifest, RunRef
from dagster_ckpt.protocol.names import FileId, changes_name, merged_name, state_name
from dagster_ckpt.storage.ancestors import with_ancestors
from dagster_ckpt.storage.chain import ManifestChain
from dagster_ckpt.storage.object_store import ObjectMissingError, ObjectStore
from tests.simulation.character import Character
from tests.simulation.job import TABLE, Sums, added, checksum, consumed, decode_rows, decode_sums, encode, rows_of

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


@dataclass(frozen=True)
class Decline:
    """A shard's part cannot be made. `final`: the state is damaged, as far as the task can see."""

    shard: Shard
    reason: str
    final: bool = False


Word = ShardAck | Decline


@dataclass(frozen=True)
class Task:
    """One attempt at one shard's part of one epoch. `create` makes a file durable before it returns."""

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

    def work(self) -> Word:
        """Everything, up to the one word about it."""
        if self.chance.random() < self.character.faults.decline and not self.calm:
            return Decline(self.shard, "no memory")
        try:
            return self._work()
        except StoreUnavailableError:
            return Decline(self.shard, "the store does not answer")
        except CorruptStateError as error:
            return Decline(self.shard, str(error), final=True)

    def _work(self) -> ShardAck:
        manifest = self.chain.read(self.order.version)
        if manifest.nonce != self.order.nonce:
            raise CorruptStateError(f"another manifest than that of the order. version={manifest.version}")
        if self.inflow is not None:
            sums = self._sums(manifest)
            return self._put(manifest, sums, self.inflow(sums, self.shard, manifest.shards))
        rows = rows_of(consumed(manifest) + 1, self.shard, manifest.shards)
        if not manifest.pipeline.tables:
            return self._append(manifest, rows)
        return self._keyed(manifest, rows) if rows else ShardAck(self.shard)

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

    def _sums(self, manifest: Manifest) -> Sums:
        sums: Sums = {}
        for run in reversed(manifest.runs[TABLE][self.shard]):
            sums |= decode_sums(self._read(manifest, run.name))
        return sums

    def _put(self, manifest: Manifest, sums: Sums, changed: Sums) -> ShardAck:
        if not changed:
            return ShardAck(self.shard)
        before, after = manifest.runs[TABLE][self.shard], sums | changed
        # Compaction within the epoch: all runs become one.
        merge = len(before) >= self.character.runs_max
        run = self._run(encode(after if merge else changed), len(after if merge else changed), manifest.shards)
        runs = (run,) if merge else (run, *before)
        change = self._change(encode(changed), len(changed))
        return ShardAck(self.shard, (ShardRuns(TABLE, runs),), (change,), rows_in=len(changed), rows_out=len(changed))

    def _run(self, data: bytes, rows: int, shards: int) -> RunRef:
        name = state_name(TABLE, (self.shard,), shards, self._file())
        self.create(self.chain.store, name, memoryview(data))
        return RunRef(name, rows, len(data), checksum(data), self.order.epoch)

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
