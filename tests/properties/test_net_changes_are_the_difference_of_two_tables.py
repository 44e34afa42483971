"""Any epochs of an updating stream, with keys that share hashes, logged by runs, by files, or first by these."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.ids import Shard, Term
from dagster_ckpt.operators.rows.deduplicate import Deduplicate
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE, DELETE, EPOCH, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE
from dagster_ckpt.protocol.manifest.manifest import ChangeRef, InputSpec, Manifest, SourceIdentity
from dagster_ckpt.protocol.object_names import FileId
from dagster_ckpt.state.committed import change_log, table_snapshot
from dagster_ckpt.state.committed.point_reads import rows_of_keys
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from dagster_ckpt.tables import Share, net_changes, raw_changes, table_rows
from tests.unit.state.epochs import Epochs, engine
from tests.unit.state.model import Tasks, hashes_of
from tests.worlds.clock import StillClock
from tests.worlds.examples import examples

Row = tuple[Any, ...]
COLUMNS = pa.schema([("k", pa.string()), ("part", pa.int32()), ("v", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
OPERATOR = Deduplicate.build(
    ("k", "part"), InputSpec((SourceIdentity("parquet", "file:///d"),), COLUMNS), "last", event_time="at"
)
RAW = pa.schema([*COLUMNS, (EPOCH, pa.int64()), (CHANGE_TYPE, pa.string())])
NET = RAW.remove(RAW.get_field_index(EPOCH))
KEY_LIST: list[Row] = [(name, part) for name in ("", "a", "b", "ab", None) for part in (0, 1)]
KEYS = st.sampled_from(KEY_LIST)
OPERATIONS = st.dictionaries(KEYS, st.integers(0, 2) | st.none(), max_size=7)
"""In an epoch keys get a row with this value, or lose the one they have."""
STORES = count()


def table(rows: Iterable[Row], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


@dataclass
class Made:
    """The manifests of epochs, the empty one first, and the store they lie in."""

    store: MemoryObjectStore
    manifests: list[Manifest]

    def table(self, at: int, shares: int = 1) -> list[Row]:
        parts = [Share(number, shares) for number in range(shares)]
        return [row for part in parts for row in rows_of(self._rows(at, part))]

    def changes(self, after: int, until: int, shares: int = 1, *, net: bool) -> list[Row]:
        parts = [Share(number, shares) for number in range(shares)]
        return [row for part in parts for row in rows_of(self._changes(after, until, part, net=net))]

    def got(self, keys: list[Row], at: int, distinct: int) -> list[Row]:
        """The rows that are found by these keys."""
        [spec] = OPERATOR.pipeline.tables
        asked = table(keys, pa.schema([spec.schema.field(name) for name in spec.keys]))
        found = rows_of_keys(self.store, self.manifests[at], spec.name, hashes_of(keys, distinct), asked)
        return rows_of(found.rows.to_batches())

    def _rows(self, at: int, part: Share) -> Iterable[pa.RecordBatch]:
        return table_rows(self.store, StillClock(), self.manifests[at], COLUMNS, part)

    def _changes(self, after: int, until: int, part: Share, *, net: bool) -> Iterable[pa.RecordBatch]:
        read, schema = (net_changes, NET) if net else (raw_changes, RAW)
        return read(self.store, StillClock(), self.manifests[after + 1 : until + 1], schema, part)


def made(epochs: list[dict[Row, int | None]], distinct: int, filed: int, memory_bytes: int = 1 << 28) -> Made:
    """The epochs as a stream; the first `filed` of them have files as their change log."""
    store = MemoryObjectStore(f"changes-{next(STORES)}")
    [spec] = OPERATOR.pipeline.tables
    stream = Epochs(store, (spec,), engine=engine(None, memory_bytes), shards=4, logged=spec.name)
    stream.manifests = [replace(stream.newest, pipeline=OPERATOR.pipeline)]
    for number, operations in enumerate(epochs):
        before = stream.newest
        tasks = Tasks([stream.begin([0, 1]), stream.begin([2, 3])], [[0, 1], [2, 3]])
        puts = [(*key, value, None) for key, value in operations.items() if value is not None]
        gone = [key for key, value in operations.items() if value is None]
        for (state, mine), rows in (
            (part, puts) for part in tasks.parts(hashes_of([row[:2] for row in puts], distinct))
        ):
            hashes = hashes_of([rows[at][:2] for at in mine], distinct)
            state.table(spec.name).put(hashes, table([rows[at] for at in mine], spec.schema))
            state.relieve()
        for state, mine in tasks.parts(hashes_of(gone, distinct)):
            keys = table([gone[at] for at in mine], pa.schema([spec.schema.field(name) for name in spec.keys]))
            state.table(spec.name).delete(hashes_of([gone[at] for at in mine], distinct), keys)
        manifest = stream.commit(*tasks.states)
        if number < filed:
            stream.manifests[-1] = replace(manifest, changes=filed_changes(store, before, manifest))
    return Made(store, stream.manifests)


def filed_changes(store: MemoryObjectStore, before: Manifest, after: Manifest) -> tuple[ChangeRef, ...]:
    """The epoch's changes as a file, as the first release wrote them."""
    table = OPERATOR.table
    assert table is not None
    written = [
        change_log.write(store, FileId(Term(1), after.epoch, Shard(0), 99, number), table.changes_of(piece).rows)
        for number, piece in enumerate(table_snapshot.changes_of(store, [after], table.name))
    ]
    return tuple(ref for ref in written if ref is not None)


def in_python(was: dict[Row, Row], now: dict[Row, Row]) -> Counter[Row]:
    """The difference of two tables."""
    found = Counter[Row]()
    for key in {*was, *now}:
        if key not in now:
            found[*was[key], DELETE] += 1
        elif key not in was:
            found[*now[key], INSERT] += 1
        elif was[key] != now[key]:
            found[*was[key], UPDATE_PREIMAGE] += 1
            found[*now[key], UPDATE_POSTIMAGE] += 1
    return found


@given(
    epochs=st.lists(OPERATIONS, min_size=1, max_size=6),
    distinct=st.sampled_from([1, 2, 1000]),
    filed=st.sampled_from([0, 0, 0, 2, 6]),
    memory_bytes=st.sampled_from([1, 1 << 28]),
    data=st.data(),
)
@examples(60)
def test_net_is_the_difference_and_raw_changes_make_the_table(
    epochs: list[dict[Row, int | None]], distinct: int, filed: int, memory_bytes: int, data: st.DataObject
) -> None:
    stream = made(epochs, distinct, filed, memory_bytes)
    truth: list[dict[Row, Row]] = [{}]
    for operations in epochs:
        now = truth[-1] | {key: (*key, value, None) for key, value in operations.items()}
        truth.append({key: row for key, row in now.items() if row[2] is not None})
    after = data.draw(st.integers(0, len(epochs)), "after")
    until = data.draw(st.integers(after, len(epochs)), "until")
    shares = data.draw(st.integers(1, 3), "shares")
    assert Counter(stream.table(until, shares)) == Counter(truth[until].values())
    assert Counter(stream.changes(after, until, shares, net=True)) == in_python(truth[after], truth[until])
    assert stream.got([*KEY_LIST, *KEY_LIST[:2]], until, distinct) == [
        truth[until][key] for key in (*KEY_LIST, *KEY_LIST[:2]) if key in truth[until]
    ]
    raw = stream.changes(after, until, shares, net=False)
    for number in range(after, until):
        of_epoch = Counter((*row[:4], row[5]) for row in raw if row[4] == number + 2)
        assert of_epoch == in_python(truth[number], truth[number + 1])
