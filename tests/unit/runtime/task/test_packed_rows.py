"""Changes on their way to the next step as Arrow tables: each row reaches the task of its key, once and as it was."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from dagster_ckpt.lsm.key_hash import key_hashes
from dagster_ckpt.operators.shared.net_changes import CHANGE_FIELD
from dagster_ckpt.runtime.spark import wide_rows
from dagster_ckpt.runtime.task import packed_rows
from dagster_ckpt.runtime.task.arrow_work import ArrowWork, ColumnAt, LeftToSparkError, Remainder, Widened
from dagster_ckpt.runtime.task.packed_rows import PACKED, PackedRows, pack_refusal, unpack
from dagster_ckpt.runtime.task.row_intake import rows_by_input
from dagster_ckpt.runtime.task.shard_assignment import ShardAssignment

TASKS = ShardAssignment.keyed(8, 3)
SCHEMA = pa.schema([("g", pa.int64()), ("name", pa.string()), (CHANGE_FIELD.name, pa.string())])
OTHER = pa.schema([("h", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
WORK = ArrowWork((Remainder(Widened(ColumnAt(0), pa.int64()), 7), ColumnAt(1), ColumnAt(2)))


def changes(count: int) -> pa.Table:
    numbers = [None if number % 11 == 5 else number - 50 for number in range(count)]
    kinds = pa.array(["insert" if number % 3 else "delete" for number in range(count)]).cast(CHANGE_FIELD.type)
    names = [None if number % 5 == 0 else f"n{number}" for number in range(count)]
    return pa.table({"k": pa.array(numbers, pa.int32()), "name": names, CHANGE_FIELD.name: kinds})


def arrived(
    batches: Sequence[pa.RecordBatch], schemas: Sequence[pa.Schema]
) -> dict[int, list[tuple[int, dict[str, object]]]]:
    """By task, the number of each row's input and the row."""
    found: dict[int, list[tuple[int, dict[str, object]]]] = {}
    for batch in batches:
        assert batch.schema.equals(PACKED)
        [task] = set(batch.column(0).to_pylist())
        for rows in unpack([batch]):
            for number, hashes, its in rows_by_input(pa.Table.from_batches([rows]), schemas):
                assert its.schema.equals(schemas[number])
                assert set(TASKS.tasks_in(hashes).tolist()) == {task}
                assert np.array_equal(hashes, key_hashes(its.select([0])))
                found.setdefault(task, []).extend((number, row) for row in its.to_pylist())
    return found


def truncated(number: int, by: int) -> int:
    return number - by * int(number / by)


def expected(rows: pa.Table) -> list[dict[str, object]]:
    return [
        {**{name: row[name] for name in SCHEMA.names[1:]}, "g": None if row["k"] is None else truncated(row["k"], 7)}
        for row in rows.to_pylist()
    ]


def by_text(rows: Sequence[dict[str, object]]) -> list[str]:
    return sorted(str(sorted(row.items())) for row in rows)


def test_each_row_reaches_the_task_of_its_key() -> None:
    rows = changes(500)
    packed = PackedRows(WORK, (SCHEMA,), 0, ("g",), TASKS)
    found = arrived(list(packed.batches(rows)), (SCHEMA,))
    assert len(found) == TASKS.tasks
    assert by_text([row for rows in found.values() for _, row in rows]) == by_text(expected(rows))


def test_rows_of_several_inputs_arrive_as_their_own() -> None:
    schemas, rows = (SCHEMA, OTHER), changes(200)
    others = pa.table({"h": [3, None, 4], "at": pa.array([1, 2, None], pa.timestamp("us", "UTC"))})
    batches = [
        *PackedRows(WORK, schemas, 0, ("g",), TASKS).batches(rows),
        *PackedRows(ArrowWork((ColumnAt(0), ColumnAt(1))), schemas, 1, ("h",), TASKS).batches(others),
    ]
    every = [each for of_task in arrived(batches, schemas).values() for each in of_task]
    assert by_text([row for number, row in every if number == 0]) == by_text(expected(rows))
    assert by_text([row for number, row in every if number == 1]) == by_text(others.to_pylist())


def test_tables_of_both_inputs_fit_together() -> None:
    schemas = (SCHEMA, SCHEMA)
    batches = [b for n in (0, 1) for b in PackedRows(WORK, schemas, n, ("g",), TASKS).batches(changes(9))]
    assert len(pa.Table.from_batches(list(unpack(batches)))) == 18


def test_without_keys_and_columns_the_rows_still_count() -> None:
    nothing = pa.schema([])
    [batch] = PackedRows(ArrowWork(()), (nothing,), 0, (), TASKS).batches(changes(30))
    [rows] = unpack([batch])
    [(_, hashes, _)] = rows_by_input(pa.Table.from_batches([rows]), (nothing,))
    assert len(hashes) == 30
    assert batch.column(0).to_pylist()[0] == TASKS.tasks_in(hashes)[0]


def test_no_changes_are_no_row() -> None:
    assert not list(PackedRows(WORK, (SCHEMA,), 0, ("g",), TASKS).batches(changes(0)))


def test_empty_rows_bound_the_bytes_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark puts so many rows into a batch, however large they are."""
    assert packed_rows._BATCH_ROWS >= wide_rows._ROWS_MAX
    monkeypatch.setattr(packed_rows, "_BYTES_MAX", 2_000)
    monkeypatch.setattr(packed_rows, "_BATCH_BYTES", 20_000)
    monkeypatch.setattr(packed_rows, "_BATCH_ROWS", 100)
    one_task = ShardAssignment.keyed(1, 1)
    packed = list(PackedRows(WORK, (SCHEMA,), 0, ("g",), one_task).batches(changes(5_000)))
    assert len(packed) > 10
    values = pa.concat_arrays([batch.column(1) for batch in packed])
    sizes = [len(value or b"") for value in values.to_pylist()]
    most = max(sum(sizes[start : start + 100]) for start in range(len(sizes)))
    assert most <= 20_000 + max(sizes)
    assert sum(each.num_rows for each in unpack(packed)) == 5_000


def test_a_refusal_reaches_the_first_task_in_place_of_rows() -> None:
    [batch] = pack_refusal(LeftToSparkError("times in nanoseconds"))
    assert batch.schema.equals(PACKED)
    assert set(batch.column(0).to_pylist()) == {0}
    with pytest.raises(LeftToSparkError, match=r"^times in nanoseconds$"):
        list(unpack([batch]))
