"""The state of one task within one epoch: all shards that it works, together, and how they become durable."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Self

from dagster_ckpt.ids import Shard
from dagster_ckpt.lsm.run import Run, kept
from dagster_ckpt.lsm.run_file import encode
from dagster_ckpt.lsm.table import Timeline, Touched
from dagster_ckpt.lsm.view import View
from dagster_ckpt.protocol.ack import ShardRuns
from dagster_ckpt.protocol.manifest import HASH_MAX, ChangeRef, HashRange, Manifest, RunRef, StateTableSpec
from dagster_ckpt.protocol.names import FileId, state_name
from dagster_ckpt.state.engine import Engine
from dagster_ckpt.state.epoch_table import EpochTable
from dagster_ckpt.state.objects import create
from dagster_ckpt.storage.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class StateMetrics:
    """What the state did in the epoch so far, all shards together; for the ACK.

    `state_rows` is the change in live rows (an estimate for tables whose rows expire).
    """

    state_rows: int = 0
    merged_rows: int = 0
    stall_ms: int = 0
    flushes: int = 0


def open_state(
    store: ObjectStore,
    manifest: Manifest,
    shards: Sequence[Shard],
    file: FileId,
    engine: Engine,
    logged: str | None = None,
) -> "TaskState":
    """The state of adjacent shards as `manifest` shows it, to be changed in the epoch of `file`.

    `store` is the stream's folder. New files are named by `file`, with ascending numbers from its own on; nobody else
    may use them. `logged` is the keyed table whose runs are the epoch's change log. Nothing is read before it is
    needed: a task without rows in an epoch opens no file.
    """
    return TaskState(store, manifest, shards, file, engine, logged)


class _PiecewiseTable(EpochTable):
    def touched(self) -> Iterator[Touched]:  # type: ignore[override]
        yield super().touched()


class TaskState:
    """Implements `lsm.table.State`. Belongs to one task, one epoch and one thread.

    Call `compact` first, `relieve` after each chunk of rows, `flush` last; `log` and `metrics` are whole after that.
    Use it as a context: whatever happens, its memory is given back.
    """

    def __init__(
        self,
        store: ObjectStore,
        manifest: Manifest,
        shards: Sequence[Shard],
        file: FileId,
        engine: Engine,
        logged: str | None,
    ) -> None:
        self._store = store
        self._manifest = manifest
        self._shards = shards
        self._files = (replace(file, number=number) for number in count(file.number))
        self._engine = engine
        self._specs = {spec.name: spec for spec in manifest.pipeline.tables}
        self._tables: dict[str, _PiecewiseTable] = {}
        self._metrics = StateMetrics()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def table(self, name: str) -> _PiecewiseTable:
        if name not in self._tables:
            spec = self._specs[name]
            self._tables[name] = _PiecewiseTable(spec, lambda: self._views(spec), self._engine.limits)
        return self._tables[name]

    def timeline(self, name: str) -> Timeline:
        raise NotImplementedError

    def compact(self) -> None:
        """Merge what the choice says, of the runs of the epoch before; their files are written while rows come in."""

    def relieve(self) -> None:
        """Flush the greatest table while memory is above the soft limit. To be called after each chunk of rows."""

    def flush(self) -> dict[Shard, tuple[ShardRuns, ...]]:
        """Write what is still in memory and wait for every write; once, at the epoch's end.

        Returns each shard's complete new lists of runs. All new files are durable when this returns. Files that a merge
        made superfluous stay: the epochs before still read them. A crash leaves new files that no manifest names.
        """
        lists: dict[Shard, list[ShardRuns]] = {shard: [] for shard in self._shards}
        for spec in self._specs.values():
            news = self._news(spec)
            for shard in self._shards:
                refs = self._refs(spec, shard)
                lists[shard].append(
                    ShardRuns(spec.name, refs if news is None else _with(news, refs, self._range(shard)))
                )
        return {shard: tuple(tables) for shard, tables in lists.items()}

    def close(self) -> None:
        """Give back all memory; after `flush`, or instead of it."""

    @property
    def log(self) -> tuple[ChangeRef, ...]:
        """The runs of the logged table that this epoch wrote: its change log; complete after `flush`."""
        return ()

    @property
    def metrics(self) -> StateMetrics:
        """What was done so far; complete after `flush`."""
        return self._metrics

    def _news(self, spec: StateTableSpec) -> RunRef | None:
        table = self._tables.get(spec.name)
        if table is None or len(words := table.words()) == 0:
            return None
        [touched] = table.touched()
        before, after = touched.before.present, touched.after.present
        self._metrics = replace(
            self._metrics, state_rows=self._metrics.state_rows + int(after.sum()) - int(before.sum())
        )
        news = kept(words, before | after)
        return self._write(news, spec) if len(news) else None

    def _write(self, run: Run, spec: StateTableSpec) -> RunRef:
        file = next(self._files)
        path = state_name(spec.name, self._shards, self._manifest.shards, file)
        encoded = encode(run)
        create(self._store, path, memoryview(encoded.data))
        return RunRef(
            path=path,
            rows=len(run),
            bytes=encoded.data.size,
            checksum=encoded.checksum,
            epoch=file.epoch,
            tombstones=0 if run.tombstones is None else int(run.tombstones.sum()),
            hashes=HashRange(int(run.hashes[0]), int(run.hashes[-1])),
        )

    def _views(self, spec: StateTableSpec) -> list[View]:
        refs = [ref for shard in self._shards for ref in self._refs(spec, shard)]
        return [self._engine.runs.view(self._store, ref, spec.schema) for ref in refs]

    def _refs(self, spec: StateTableSpec, shard: Shard) -> tuple[RunRef, ...]:
        lists = self._manifest.runs.get(spec.name, ())
        return lists[shard] if shard < len(lists) else ()

    def _range(self, shard: Shard) -> HashRange:
        size = (HASH_MAX + 1) // self._manifest.shards
        return HashRange(shard * size, (shard + 1) * size - 1)


def _with(news: RunRef, refs: tuple[RunRef, ...], mine: HashRange) -> tuple[RunRef, ...]:
    lo, hi = max(news.hashes.lo, mine.lo), min(news.hashes.hi, mine.hi)
    return (replace(news, clip=HashRange(lo, hi)), *refs) if lo <= hi else refs
