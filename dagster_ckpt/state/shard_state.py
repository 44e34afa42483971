"""The state of one shard within one epoch, and how it becomes durable."""

from dataclasses import dataclass, field, replace
from itertools import count

from dagster_ckpt.ids import Shard
from dagster_ckpt.lsm.compaction import CompactionLimits, RunSize, choose
from dagster_ckpt.lsm.run import Run, kept, live, merged
from dagster_ckpt.lsm.run_file import encode
from dagster_ckpt.lsm.view import View
from dagster_ckpt.protocol.ack import ShardRuns
from dagster_ckpt.protocol.manifest import HashRange, Manifest, RunRef, StateTableSpec
from dagster_ckpt.protocol.names import FileId, state_name
from dagster_ckpt.state.epoch_table import EpochTable
from dagster_ckpt.state.objects import create
from dagster_ckpt.state.open_runs import OpenRuns
from dagster_ckpt.storage.object_store import ObjectStore


@dataclass(frozen=True)
class EngineOptions:
    """How the engine works; none of it is part of the format."""

    compaction: CompactionLimits = field(default_factory=CompactionLimits)


def open_shard(
    store: ObjectStore,
    manifest: Manifest,
    shard: Shard,
    file: FileId,
    runs: OpenRuns | None = None,
    options: EngineOptions | None = None,
) -> "ShardState":
    """The state of a shard as `manifest` shows it, to be changed in the epoch of `file`.

    `store` is the stream's folder. New files are named by `file`, with ascending numbers from its own on; nobody else
    may use them. Nothing is read before it is needed: a shard without rows in an epoch opens no file.
    """
    return ShardState(store, manifest, shard, file, runs or OpenRuns(), options or EngineOptions())


class ShardState:
    """Implements `lsm.table.State`. Belongs to one task, one epoch and one thread."""

    def __init__(
        self, store: ObjectStore, manifest: Manifest, shard: Shard, file: FileId, runs: OpenRuns, options: EngineOptions
    ) -> None:
        self._store = store
        self._shards = manifest.shards
        self._shard = shard
        self._files = (replace(file, number=number) for number in count(file.number))
        self._open_runs = runs
        self._options = options
        self._refs = {spec.name: _refs(manifest, spec, shard) for spec in manifest.pipeline.tables}
        self._specs = {spec.name: spec for spec in manifest.pipeline.tables}
        self._tables: dict[str, EpochTable] = {}
        self._state_rows_delta: int | None = None

    @property
    def state_rows_delta(self) -> int:
        """How many more live rows the shard has after `flush` than before the epoch."""
        assert self._state_rows_delta is not None, "flush comes first"
        return self._state_rows_delta

    def table(self, name: str) -> EpochTable:
        if name not in self._tables:
            spec = self._specs[name]
            self._tables[name] = EpochTable(spec, lambda: self._views(spec), self._options.compaction)
        return self._tables[name]

    def flush(self) -> tuple[ShardRuns, ...]:
        """Write what the epoch changed, merge runs where there are many; once, at the epoch's end.

        Returns every table's complete new list of runs. All new files are durable when this returns. Files that a merge
        made superfluous stay: the epochs before still read them. A crash leaves new files that no manifest names.
        """
        assert self._state_rows_delta is None, "an epoch is flushed once"
        self._state_rows_delta = 0
        return tuple(ShardRuns(name, self._flush(spec)) for name, spec in self._specs.items())

    def _flush(self, spec: StateTableSpec) -> tuple[RunRef, ...]:
        refs = self._refs[spec.name]
        table = self._tables.get(spec.name)
        if table is None or len(words := table.words()) == 0:
            return refs
        touched = table.touched()
        before, after = touched.before.present, touched.after.present
        assert self._state_rows_delta is not None, "flush has set it"
        self._state_rows_delta += int(after.sum()) - int(before.sum())
        # A key that came and went within the epoch leaves nothing, not even a tombstone.
        news = kept(words, before | after)
        return self._with(news, spec, refs, table.base) if len(news) else refs

    def _with(self, news: Run, spec: StateTableSpec, refs: tuple[RunRef, ...], base: list[View]) -> tuple[RunRef, ...]:
        """The run list with the epoch's news on top, or merged with the newest runs beneath them."""
        sizes = [RunSize(len(news), news.table.nbytes, level=0), *(RunSize(r.rows, r.bytes, r.level) for r in refs)]
        merge = choose(sizes, self._options.compaction)
        if merge is None:
            return (self._write(news, spec, level=0), *refs)
        # Never written on its own, the news go straight into the merge.
        run = merged([news, *(view.rows() for view in base[: merge.runs - 1])], spec.keys)
        if merge.to_bottom:
            run = live(run)
        rest = refs[merge.runs - 1 :]
        return (self._write(run, spec, merge.level), *rest) if len(run) else rest

    def _write(self, run: Run, spec: StateTableSpec, level: int) -> RunRef:
        file = next(self._files)
        path = state_name(spec.name, (self._shard,), self._shards, file)
        encoded = encode(run)
        create(self._store, path, memoryview(encoded.data))
        return RunRef(
            path=path,
            rows=len(run),
            bytes=encoded.data.size,
            checksum=encoded.checksum,
            epoch=file.epoch,
            level=level,
            tombstones=0 if run.tombstones is None else int(run.tombstones.sum()),
            hashes=HashRange(int(run.hashes[0]), int(run.hashes[-1])),
        )

    def _views(self, spec: StateTableSpec) -> list[View]:
        return [self._open_runs.view(self._store, ref, spec.schema) for ref in self._refs[spec.name]]


def _refs(manifest: Manifest, spec: StateTableSpec, shard: Shard) -> tuple[RunRef, ...]:
    shards = manifest.runs.get(spec.name, ())
    return shards[shard] if shard < len(shards) else ()
