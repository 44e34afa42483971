"""Rows that come, change and go in three epochs, made of the rows of a table."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.protocol.change_columns import CHANGE_TYPE

EPOCHS = 3


@dataclass(frozen=True)
class ChangingRows:
    """The changes of each epoch, the rows behind it, and the key by which an update has its row, if there is one."""

    changes: list[pa.Table]
    states: list[pa.Table]
    key: tuple[str, ...] | None


def changing(rows: pa.Table) -> ChangingRows:
    """Of three rows one goes and comes back, one changes and changes back, and one comes late and may go again."""
    number = np.arange(len(rows))
    third, odd = number % 3, number % 2 == 1
    key = _key(rows)
    other = _mixed(rows)
    first, second, last = third == 0, third == 1, third == 2
    changed, back, gone = second & odd, first & (number > 0), last & odd
    update = ("delete", "insert") if key is None else ("update_preimage", "update_postimage")
    return ChangingRows(
        [
            _changes((rows, first | second, "insert")),
            _changes(
                (rows, first, "delete"),
                (rows, last, "insert"),
                (rows, changed, update[0]),
                (other, changed, update[1]),
            ),
            _changes(
                (rows, back, "insert"),
                (rows, gone, "delete"),
                (other, changed, update[0]),
                (rows, changed, update[1]),
            ),
        ],
        [
            _rows((rows, first | second)),
            _rows((rows, (second & ~odd) | last), (other, changed)),
            _rows((rows, back | second | (last & ~odd))),
        ],
        key,
    )


def _key(rows: pa.Table) -> tuple[str, ...] | None:
    """The first column, if it can be a key and another can change."""
    column = rows.column(0)
    if rows.num_columns == 1 or pa.types.is_nested(column.type) or pa.types.is_floating(column.type):
        return None
    unique = column.null_count == 0 and len(pc.unique(column)) == len(column)
    return (rows.column_names[0],) if len(rows) and unique else None


def _mixed(rows: pa.Table) -> pa.Table:
    """Each row with the first half of its own columns, a key among them, and the others of the next row."""
    follower = rows.take(np.roll(np.arange(len(rows)), -1))
    own = rows.num_columns // 2  # the only column is none of them, and no key
    columns = [*rows.columns[:own], *follower.columns[own:]]
    return pa.Table.from_arrays(columns, schema=rows.schema)


def _rows(*parts: tuple[pa.Table, npt.NDArray[np.bool_]]) -> pa.Table:
    """Rows that were chosen. Spark takes no column without any chunk, which a filter may leave."""
    chosen = [rows.filter(pa.array(which)) for rows, which in parts]
    return pa.concat_tables([*chosen, chosen[0].schema.empty_table()])


def _changes(*parts: tuple[pa.Table, npt.NDArray[np.bool_], str]) -> pa.Table:
    """Rows that were chosen, with what happens to them."""
    chosen = [(_rows((rows, which)), kind) for rows, which, kind in parts]
    return pa.concat_tables(
        rows.append_column(CHANGE_TYPE, pa.array([kind] * len(rows), pa.string())) for rows, kind in chosen
    )
