"""Drive an operator of any number of inputs that append or change, and compare its output as a bag of rows.

Rows are hashed as Spark hashes them. Each epoch is a restart, over dicts or over tasks of the real engine.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.ids import Epoch, Nonce, Shard, StreamUuid, Term, Version
from dagster_ckpt.lsm.key_hash import key_hashes
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators import EpochContext, Operator, from_pipeline
from dagster_ckpt.operators.operator import change_log_table, keys_of_inputs
from dagster_ckpt.operators.rows.append import AppendOnly
from dagster_ckpt.operators.step import OperatorStep
from dagster_ckpt.protocol.manifest.manifest import Manifest, Owner, Pipeline
from dagster_ckpt.protocol.object_names import FileId
from dagster_ckpt.protocol.transitions.edits import Beginning, Stamp, first_manifest
from dagster_ckpt.state.committed.table_snapshot import live_rows
from dagster_ckpt.state.engine import Engine
from dagster_ckpt.state.memory_budget import MemoryBudget
from dagster_ckpt.state.task_state import open_state
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from tests.unit.operators.dict_state import DictState

Row = dict[str, Any]
Bag = Counter[str]
"""How often there is each row, spelled: NaN is like NaN, and -0.0 is not like 0.0."""
Batch = tuple[int, pa.Table]
"""Rows of one input, by its number."""

SHARDS = (Shard(0), Shard(1))
ONE_TASK, TWO_TASKS = (SHARDS,), (SHARDS[:1], SHARDS[1:])
STORES = count()


def spelled(row: Row) -> str:
    return repr(sorted(row.items()))


def bag_of(rows: Iterable[Row]) -> Bag:
    return Counter(map(spelled, rows))


def _spelled_without_kind(change: Row) -> str:
    return spelled({name: value for name, value in change.items() if name != "_change_type"})


def check_net(changes: Sequence[Row]) -> None:
    """No row is both added and taken away."""
    sides: dict[bool, set[str]] = {True: set(), False: set()}
    for change in changes:
        sides[change["_change_type"] in {"delete", "update_preimage"}].add(_spelled_without_kind(change))
    assert not sides[True] & sides[False], "the changes of an epoch are net"


def sum_of(changes: Iterable[Row]) -> Bag:
    """The bag that these changes make of nothing, without the rows that it does not have."""
    bag = Bag()
    for change in changes:
        bag[_spelled_without_kind(change)] += -1 if change["_change_type"] in {"delete", "update_preimage"} else 1
    return Bag({row: times for row, times in bag.items() if times})


def again(operator: Operator) -> Operator:
    """The operator of a process that knows the manifest alone."""
    parameters = json.loads(json.dumps(operator.pipeline.parameters))
    rebuilt = from_pipeline(replace(operator.pipeline, parameters=parameters))
    assert not isinstance(rebuilt, AppendOnly)
    found = rebuilt if isinstance(operator, OperatorStep) else rebuilt.operator
    assert type(found) is type(operator)
    assert found.pipeline == operator.pipeline
    return found


@dataclass
class Changing:
    """An operator, fed epoch by epoch. `changes` are those of all epochs; `tasks`: over the real engine."""

    operator: Operator
    tasks: Sequence[tuple[Shard, ...]] = ()
    memory_bytes: int = 1 << 20
    rebuilds: bool = True
    piece: int = 1000
    changes: list[Row] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    pieces: int = 0
    more_rows: int = 0
    number: int = 0

    def __post_init__(self) -> None:
        pipeline = self.operator.pipeline
        self.dicts = DictState.of(pipeline)
        for table in self.dicts.tables.values():
            table.piece = self.piece
        self.store = MemoryObjectStore(f"changing-{next(STORES)}")
        beginning = Beginning("s", StreamUuid("u"), Owner("i", "s"), pipeline, len(SHARDS))
        self.manifest: Manifest = first_manifest(beginning, Stamp(Nonce("n"), 0))

    @property
    def pipeline(self) -> Pipeline:
        return self.operator.pipeline

    def epoch(self, *batches: Batch) -> list[Row]:
        """The epoch's changes."""
        if self.rebuilds:
            self.operator = again(self.operator)
        self.number += 1
        self.counters.clear()
        self.pieces = 0
        changes = list(self._in_engine(batches) if self.tasks else self._in_dicts(batches))
        check_net(changes)
        self.changes += changes
        return changes

    def table(self) -> list[Row]:
        """The stream's table."""
        table = self.operator.table
        assert table is not None
        rows: list[Row] = table.rows(self.live(table.name)).to_pylist()
        return rows

    def live(self, table: str) -> pa.Table:
        """The rows of a state table."""
        return live_rows(self.store, self.manifest, table) if self.tasks else self.dicts.tables[table].live()

    def held(self) -> dict[str, int]:
        """How many rows each state table has."""
        return {spec.name: self.live(spec.name).num_rows for spec in self.pipeline.tables}

    def _in_dicts(self, batches: Sequence[Batch]) -> Iterator[Row]:
        context = EpochContext(Epoch(self.number), SHARDS, len(SHARDS), None, self.memory_bytes, self.counters)
        yield from self._through(self.dicts, context, batches)
        self.dicts.next_epoch()

    def _in_engine(self, batches: Sequence[Batch]) -> Iterator[Row]:
        epoch = Epoch(self.manifest.version + 1)
        runs: dict[str, list[Any]] = {spec.name: [() for _ in SHARDS] for spec in self.pipeline.tables}
        for shards in self.tasks:
            engine = Engine(SystemClock(), budget=MemoryBudget(self.memory_bytes))
            context = EpochContext(epoch, shards, len(SHARDS), None, engine.budget.soft_bytes, self.counters)
            file = FileId(Term(1), epoch, shards[0], attempt=0)
            with open_state(self.store, self.manifest, shards, file, engine, change_log_table(self.operator)) as state:
                state.compact()
                yield from self._through(state, context, batches, state.relieve)
                for shard, tables in state.flush().items():
                    for table in tables:
                        runs[table.table][shard] = table.runs
        lists = {name: tuple(of_shards) for name, of_shards in runs.items()}
        self.manifest = replace(self.manifest, version=Version(epoch), epoch=epoch, runs=lists)

    def _through(
        self, state: State, context: EpochContext, batches: Sequence[Batch], relieve: Any = lambda: None
    ) -> Iterator[Row]:
        shards = np.array(context.shards, dtype=np.uint64)
        for number, batch in batches:
            rows = batch.select(self.pipeline.inputs[number].schema.names)
            hashes = self.hashes(number, batch)
            mine = np.flatnonzero(np.isin(hashes >> np.uint64(63), shards))
            late = self.operator.on_rows(
                number, hashes[mine], rows.take(pa.array(mine)).combine_chunks(), state, context
            )
            assert len(late) == 0, "without a watermark no row is late"
            relieve()
        for changes in self.operator.finish(state, context):
            assert changes.count == changes.rows.num_rows
            self.pieces += 1
            self.more_rows += changes.more_rows or 0
            yield from changes.rows.to_pylist()
            relieve()

    def hashes(self, number: int, rows: pa.Table) -> Hashes:
        return key_hashes(rows.select(list(keys_of_inputs(self.pipeline)[number])))
