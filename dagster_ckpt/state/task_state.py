"""The state of one task within one epoch: all of its shards together, and how they become durable."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pyarrow as pa

from dagster_ckpt.hash_range import HASH_MAX, HashRange, shard_range
from dagster_ckpt.ids import Shard
from dagster_ckpt.lsm.columns import Positions, flat, flatten, take
from dagster_ckpt.lsm.compaction.compaction import limits_for
from dagster_ckpt.lsm.runs.deltas import select
from dagster_ckpt.lsm.runs.run import build_run, build_tombstones
from dagster_ckpt.lsm.table import Found, FoundAll, Hashes, Touched
from dagster_ckpt.protocol.ack import ShardRuns
from dagster_ckpt.protocol.manifest.manifest import ChangeKind, ChangeRef, Manifest, RunRef, SortKind, StateTableSpec
from dagster_ckpt.protocol.object_names import FileId
from dagster_ckpt.state.engine import Engine
from dagster_ckpt.state.runs.run_layers import Layers, sort_value
from dagster_ckpt.state.runs.run_writer import Folder, RunWriter
from dagster_ckpt.state.runs.table_runs import ShardedTable, TableRuns
from dagster_ckpt.state.sorted_table import SortedTable
from dagster_ckpt.storage.stores.object_store import ObjectStore

_SIGN = np.uint64(2**63)
_PIECE_BYTES_MAX = 512 * 1024 * 1024
"""However much memory there is: an Arrow column of strings holds 2 GiB, and a larger file gains nothing."""
_COPIES = 2
"""How many copies of a table's rows are in memory for a moment, while these are merged and sorted."""


class KeyedTable:
    """Implements `lsm.table.StateTable`."""

    def __init__(self, spec: StateTableSpec, rows: SortedTable) -> None:
        self._spec = spec
        self._rows = rows

    def get(self, hashes: Hashes, keys: pa.Table) -> Found:
        order = ascending_order(hashes)
        if order is None:
            return self._rows.get(hashes, flatten(keys))
        found = self._rows.get(hashes[order], take(keys, order))
        present = np.empty_like(found.present)
        present[order] = found.present
        # Row j belongs to the j-th present key by hash: bring the rows into the order of the request.
        asked = order[found.present]
        return Found(present, take(found.rows, np.argsort(asked)))

    def get_all(self, hashes: Hashes, keys: pa.Table) -> FoundAll:
        order = ascending_order(hashes)
        if order is None:
            return self._rows.get_all(hashes, flatten(keys))
        found = self._rows.get_all(hashes[order], take(keys, order))
        asked = order[found.asked]
        back = np.argsort(asked, kind="stable")
        return FoundAll(asked[back], take(found.rows, back))

    def put(self, hashes: Hashes, rows: pa.Table, before: Found | None = None) -> None:
        assert rows.schema.equals(self._spec.schema), f"the rows have other columns. table={self._spec.name}"
        assert self._spec.time is None or rows.column(self._spec.time).null_count == 0, "every row needs a time"
        self._rows.stage(build_run(hashes, rows), _by_hash(before, hashes))

    def delete(self, hashes: Hashes, keys: pa.Table, before: Found | None = None) -> None:
        self._rows.stage(build_tombstones(hashes, keys, self._spec.schema), _by_hash(before, hashes))

    def expire(self, until_us: int) -> None:
        assert self._spec.time is not None, f"the table has no time column. table={self._spec.name}"
        self._rows.expire(until_us)

    def touched_keys(self) -> Iterator[Touched]:
        return self._rows.touched_keys()


def _by_hash(found: Found | None, hashes: Hashes) -> Found | None:
    """The answer in the order of the run that is made of these keys."""
    if found is None:
        return None
    assert len(found.present) == len(hashes), "the rows before are those of just these keys"
    order = ascending_order(hashes)
    return found if order is None else select(found, order)


def ascending_order(hashes: Hashes) -> Positions | None:
    """The positions of the hashes, least first; None where they are in that order."""
    if len(hashes) < 2 or (hashes[1:] >= hashes[:-1]).all():
        return None
    order: Positions = np.lexsort((hashes,))
    return order


class TaskTimeline:
    """Implements `lsm.table.Timeline`. `tables` are the shards' own, `firsts` the least key hash of each."""

    def __init__(self, spec: StateTableSpec, tables: Sequence[SortedTable], firsts: Hashes) -> None:
        assert spec.time in spec.keys, f"a timeline's time is one of its keys. table={spec.name}"
        self._spec = spec
        self._time = spec.time
        self._tables = tables
        self._firsts = firsts

    def put(self, hashes: Hashes, rows: pa.Table) -> None:
        assert rows.schema.equals(self._spec.schema), f"the rows have other columns. table={self._spec.name}"
        for table, times, its_rows in self._by_shard(hashes, rows):
            table.stage(build_run(times, its_rows))

    def delete(self, hashes: Hashes, keys: pa.Table) -> None:
        for table, times, its_keys in self._by_shard(hashes, keys):
            table.stage(build_tombstones(times, its_keys, self._spec.schema))

    def scan(self, from_us: int | None, until_us: int | None) -> Iterator[pa.Table]:
        lo = 0 if from_us is None else sort_value(from_us)
        hi = HASH_MAX if until_us is None else sort_value(until_us) - 1
        if lo <= hi:
            for table in self._tables:
                yield from (run.columns() for run in table.scan(HashRange(lo, hi)))

    def expire(self, until_us: int) -> None:
        for table in self._tables:
            table.expire(until_us)

    def _by_shard(self, hashes: Hashes, rows: pa.Table) -> Iterator[tuple[SortedTable, Hashes, pa.Table]]:
        shards = np.searchsorted(self._firsts, hashes, side="right") - 1
        for shard in np.unique(shards).tolist():
            mine = np.flatnonzero(shards == shard)
            its_rows = take(rows, mine)
            times = flat(its_rows.column(self._time))
            assert times.null_count == 0, "every row needs a time"
            # As a signed number's bits, times before 1970 would come last.
            yield self._tables[shard], times.view(pa.int64()).to_numpy().view(np.uint64) ^ _SIGN, its_rows


@dataclass(frozen=True, slots=True)
class StateMetrics:
    """What the state did in the epoch so far, all shards together; for the ACK.

    `state_rows` is the change in live rows (an estimate for tables whose rows expire), `table_rows` that of the logged
    table (exact), `merged_rows` what compaction wrote, `stall_ms` how long the intake of rows waited for it because the
    depth grew too great.
    """

    state_rows: int = 0
    merged_rows: int = 0
    stall_ms: int = 0
    table_rows: int = 0


@dataclass(frozen=True)
class _TablePart:
    """A table sorted by hash in all shards, or one sorted by time in one of them."""

    shards: Sequence[Shard]
    table: SortedTable
    runs: TableRuns


def open_state(
    store: ObjectStore,
    manifest: Manifest,
    shards: Sequence[Shard],
    file: FileId,
    engine: Engine,
    logged: str | None = None,
    step: int = 0,
) -> "TaskState":
    """The state of adjacent shards as `manifest` shows it, to be changed in the epoch of `file`.

    `store` is the stream's folder. New files are named by `file`, with ascending numbers from that one on; no
    other task may use them. `logged` is the keyed table of that step whose runs are its changes. Nothing is read before
    it is needed: a task without rows in an epoch opens no file.
    """
    assert list(shards) == list(range(shards[0], shards[-1] + 1)), f"a task's shards are adjacent. shards={shards}"
    return TaskState(store, manifest, shards, file, engine, logged, step)


class TaskState:
    """Implements `lsm.table.State`. Belongs to one task, one epoch and one thread.

    Call `compact` first, `relieve` after each chunk of rows, `flush` last; `log` and `metrics` are whole after that.
    Use it as a context manager: its memory is given back on every exit.
    """

    def __init__(
        self,
        store: ObjectStore,
        manifest: Manifest,
        shards: Sequence[Shard],
        file: FileId,
        engine: Engine,
        logged: str | None,
        step: int,
    ) -> None:
        self._store = store
        self._manifest = manifest
        self._shards = shards
        self._file = file
        self._engine = engine
        self._limits = limits_for(manifest.shards, engine.limits)
        pipeline = manifest.pipeline
        self._logged = None if logged is None else pipeline.name_in_runs(step, logged)
        self._writer = RunWriter(store, file, engine)
        self._specs = {
            spec.name: replace(spec, name=pipeline.name_in_runs(step, spec.name))
            for spec in pipeline.steps[step].tables
        }
        self._parts: dict[str, list[_TablePart]] = {}
        self._log: tuple[ChangeRef, ...] = ()
        self._metrics = StateMetrics()
        self._written = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def table(self, name: str) -> KeyedTable:
        spec = self._specs[name]
        assert spec.sort is SortKind.HASH, f"this is a timeline. table={name}"
        [part] = self._parts_of(spec)
        return KeyedTable(spec, part.table)

    def timeline(self, name: str) -> TaskTimeline:
        spec = self._specs[name]
        assert spec.sort is SortKind.TIME, f"this is no timeline. table={name}"
        firsts = np.array([self._range(shard).lo for shard in self._shards], dtype=np.uint64)
        return TaskTimeline(spec, [part.table for part in self._parts_of(spec)], firsts)

    def compact(self) -> None:
        """Merge runs of the epoch before, as compaction chooses; the files are written while rows come in.

        Tables whose rows expire are merged at the epoch's end.
        """
        for spec in self._specs.values():
            for part in self._parts_of(spec):
                if spec.time is None:
                    self._add_stall(part.runs.compact(self._limits, self._engine.clock))

    def relieve(self) -> None:
        """Flush tables while memory is above the soft limit. Call it after each chunk of rows."""
        clock = self._engine.clock
        for part in self._all_parts():
            self._engine.budget.hold(part.table, part.table.nbytes)
        for part in self._all_parts():
            if self._engine.budget.must_flush(part.table):
                self._spill(part)
                began_ms = clock.monotonic_ms()
                if part.runs.merge_own(self._engine.levels_max):
                    self._add_stall(clock.monotonic_ms() - began_ms)

    def write(self) -> None:
        """Begin to write what is still in memory, at the epoch's end; once, when nothing changes any more.

        For a caller that has other work to do before `flush`, which waits.
        """
        assert not self._written, "the epoch has ended"
        self._written = True
        for part in self._all_parts():
            self._make_room(part)
            self._add_stall(part.table.flush(self._limits, self._engine.clock))
            self._engine.budget.hold(part.table, 0)

    def flush(self) -> dict[Shard, tuple[ShardRuns, ...]]:
        """Write what is still in memory and wait for every write; once, at the epoch's end.

        Returns each shard's complete new lists of runs. All new files are durable when this returns. Files that a merge
        has replaced stay: older epochs still read them. A crash leaves new files that no manifest names.
        """
        if not self._written:
            self.write()
        self._writer.wait()
        lists: dict[Shard, list[ShardRuns]] = {shard: [] for shard in self._shards}
        for spec in self._specs.values():
            for part in self._parts_of(spec):
                refs, more_rows = part.table.finish()
                self._metrics = replace(self._metrics, state_rows=self._metrics.state_rows + more_rows)
                if spec.name == self._logged:
                    self._metrics = replace(self._metrics, table_rows=more_rows)
                for shard, its_refs in zip(part.shards, refs, strict=True):
                    lists[shard].append(ShardRuns(spec.name, its_refs))
        merged_rows = sum(part.runs.merged_rows for part in self._all_parts())
        self._metrics = replace(self._metrics, merged_rows=merged_rows)
        if self._logged is not None:
            [part] = self._parts[self._logged]
            self._log = tuple(self._change(ref) for ref in part.runs.log)
        return {shard: tuple(tables) for shard, tables in lists.items()}

    def close(self) -> None:
        """Give back all memory; after `flush`, or instead of it. A write gives back its memory when it ends."""
        for part in self._all_parts():
            self._engine.budget.hold(part.table, 0)
        self._parts.clear()

    @property
    def log(self) -> tuple[ChangeRef, ...]:
        """The runs of the logged table that this epoch wrote, newest first: its change log. Complete after `flush`."""
        return self._log

    @property
    def metrics(self) -> StateMetrics:
        """What was done so far; complete after `flush`."""
        return self._metrics

    def _make_room(self, part: _TablePart) -> None:
        """Wait for files on their way where there is no room beside them to merge what is in memory."""
        bytes_ = _COPIES * part.table.nbytes
        self._engine.budget.make_room(f"a run of {part.runs.name}", bytes_, self._engine.io.timeout_ms)

    def _spill(self, part: _TablePart) -> None:
        self._make_room(part)
        part.table.spill()
        self._engine.budget.hold(part.table, 0)

    def _add_stall(self, stall_ms: int) -> None:
        self._metrics = replace(self._metrics, stall_ms=self._metrics.stall_ms + stall_ms)

    def _all_parts(self) -> list[_TablePart]:
        return [part for parts in self._parts.values() for part in parts]

    def _parts_of(self, spec: StateTableSpec) -> list[_TablePart]:
        if spec.name not in self._parts:
            groups = [self._shards] if spec.sort is SortKind.HASH else [[shard] for shard in self._shards]
            self._parts[spec.name] = [self._part(spec, shards) for shards in groups]
        return self._parts[spec.name]

    def _part(self, spec: StateTableSpec, shards: Sequence[Shard]) -> _TablePart:
        lists = self._manifest.runs.get(spec.name, ())
        ranges = [self._range(shard) if spec.sort is SortKind.HASH else HashRange() for shard in shards]
        table = ShardedTable(
            Folder(spec, shards, self._manifest.shards),
            ranges,
            tuple(lists[shard] if shard < len(lists) else () for shard in shards),
            logged=spec.name == self._logged,
        )
        layers = Layers(spec, table.lists, ranges, self._store, self._engine.runs)
        budget = self._engine.budget
        runs = TableRuns(table, layers, self._writer, budget.chunk_bytes, min(budget.soft_bytes, _PIECE_BYTES_MAX))
        return _TablePart(shards, SortedTable(table, runs), runs)

    def _range(self, shard: Shard) -> HashRange:
        return shard_range(shard, self._manifest.shards)

    def _change(self, run: RunRef) -> ChangeRef:
        return ChangeRef(
            run.path, run.rows, run.bytes, run.checksum, run.epoch, self._shards[0], ChangeKind.RUN, run.times
        )
