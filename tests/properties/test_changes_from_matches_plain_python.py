"""Changes of a table, shuffled, sent again and cut into any epochs and batches, against a dict."""

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.operators.rows.changes_from import OUTDATED, REPEATED, ChangesFrom
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from tests.unit.operators.keyed_streams import SHARDS, TIME, Row, Stream, in_any_order, replayed
from tests.worlds.examples import examples

KEYS = ("k", "part")
TABLE = ("v", "k", "f", "part")
SCHEMA = pa.schema(
    [
        *[("v", pa.int64()), ("k", pa.string()), ("f", pa.float64()), ("part", pa.int16()), ("_kind", pa.string())],
        *[("file", pa.string()), ("pos", pa.int64()), ("is_put", pa.int8()), ("at", TIME)],
    ]
)
LOGS = st.lists(
    st.fixed_dictionaries(
        {
            "_kind": st.sampled_from(["put", "put", "delete"]),
            "v": st.sampled_from([1, 2, 2**63 - 1, None]),
            "k": st.sampled_from(["a", "b"]),
            "f": st.sampled_from([float("nan"), 0.0, -0.0, None]),
            "part": st.sampled_from([1, None]),
            "again": st.integers(0, 2),
        }
    ),
    max_size=30,
)
Key = tuple[Any, ...]


def sent(log: list[Row], chance: Any, reach: int) -> list[Row]:
    """The changes of a log as they arrive: some again, each at most `reach` places from its own."""
    numbered = [
        {**row, "file": ("m", "n", None)[2 - 2 * number // len(log)], "pos": number, "is_put": 1, "at": number}
        for number, row in enumerate(log)
    ]
    copies = [(row["pos"] + chance.uniform(0, reach), row) for row in numbered for _ in range(row.pop("again") + 1)]
    return [row for _, row in sorted(copies, key=lambda each: each[0])]


def cut(rows: list[Row], chance: Any) -> list[list[list[Row]]]:
    """The rows in epochs of batches, in order."""
    epochs: list[list[list[Row]]] = [[[]]]
    for row in rows:
        if chance.random() < 0.3:
            epochs[-1].append([])
        if chance.random() < 0.3:
            epochs.append([[]])
        epochs[-1][-1].append(row)
    return epochs


@dataclass
class Oracle:
    """The newest change of each key, and the key's row if that is not a delete."""

    newest: dict[Key, Row] = field(default_factory=dict)

    def take(self, row: Row) -> None:
        key = tuple(row[name] for name in KEYS)
        if key not in self.newest or self.newest[key]["pos"] < row["pos"]:
            self.newest[key] = row

    def table(self) -> list[str]:
        rows = [{name: row[name] for name in TABLE} for row in self.newest.values() if row["_kind"] == "put"]
        return in_any_order(rows)


def build(deletes_expire_after_us: int | None = None) -> ChangesFrom:
    options = (("file", "pos"), ("is_put",), "at", deletes_expire_after_us)
    return ChangesFrom.build(KEYS, InputSpec((), SCHEMA), TABLE, *options)


def agree(stream: Stream, epochs: list[list[list[Row]]]) -> None:
    table: list[Row] = []
    oracle = Oracle()
    for batches in (*epochs, []):
        before = dict(oracle.newest)
        for row in (row for batch in batches for row in batch):
            oracle.take(row)
        changes = stream.epoch(*(pa.Table.from_pylist(batch, schema=SCHEMA) for batch in batches))
        table = replayed(table, changes)
        assert in_any_order(table) == oracle.table()
        assert in_any_order(stream.table()) == oracle.table(), "the change log leads to the table"
        assert len(changes) == len({(*(change[key] for key in KEYS), change["_change_type"]) for change in changes})
        known = [
            (row["pos"], before[key]["pos"])
            for batch in batches
            for row in batch
            if (key := tuple(row[name] for name in KEYS)) in before
        ]
        # With several batches a key's row may have been replaced within the epoch before it is compared.
        if len(batches) <= 1:
            assert stream.counters[OUTDATED] == sum(pos < kept for pos, kept in known)
            assert stream.counters[REPEATED] == sum(pos == kept for pos, kept in known)
        assert stream.counters[OUTDATED] <= sum(pos < kept for pos, kept in known)


@examples(150, 30)
@given(LOGS, st.randoms(), st.sampled_from([0, 3, 30]), st.sampled_from([1, 2, 1000]))
def test_the_table_is_the_newest_of_each_key(log: list[Row], chance: Any, reach: int, distinct: int) -> None:
    agree(Stream(build(), distinct=distinct), cut(sent(log, chance, reach), chance))


@examples(40, 8)
@given(
    LOGS,
    st.randoms(),
    st.sampled_from([0, 30]),
    st.sampled_from([1, 1000]),
    st.sampled_from([[SHARDS], [SHARDS[:1], SHARDS[1:]]]),
    st.sampled_from([1 << 12, 1 << 28]),
)
def test_the_same_over_the_real_engine(
    log: list[Row], chance: Any, reach: int, distinct: int, tasks: list[tuple[Any, ...]], memory_bytes: int
) -> None:
    stream = Stream.on_engine(build(), 0, distinct, tasks, memory_bytes)
    agree(stream, cut(sent(log, chance, reach), chance))


@examples(100, 20)
@given(LOGS, st.randoms(), st.sampled_from([0, 3, 8]), st.booleans())
def test_the_table_is_the_same_where_tombstones_expire_after_all_that_may_come_late(
    log: list[Row], chance: Any, reach: int, on_engine: bool
) -> None:
    operator = build(deletes_expire_after_us=reach + 1)
    stream = Stream.on_engine(operator, 0, 1000, [SHARDS], 1 << 28) if on_engine else Stream(operator)
    rows = sent([{**row, "again": 0} for row in log], chance, reach)
    agree(stream, cut(rows, chance))
    assert stream.late == []
