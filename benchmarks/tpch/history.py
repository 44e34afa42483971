"""What happens to TPC-H's tables, epoch by epoch: rows are inserted, updated and deleted, or they only come."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from benchmarks.tpch.tables import tables

OP = "op"
"""In a change: what it does with the row, `c`, `u` or `d`."""
VERSION = "version"
"""In a change: the number of its epoch. A key changes at most once in each."""
_DELETED = 0.1
_UPDATED = 0.15


@dataclass(frozen=True)
class History:
    """Of each table the changes in each epoch, and the rows that it has after it."""

    changes: Mapping[str, list[pa.Table]]
    states: Mapping[str, list[pa.Table]]


def history(scale: float, epochs: int, seed: int) -> History:
    """A history in which rows come in any order, tables beside each other, and every epoch changes some of those there.

    An update gives a row other values, also in columns by which queries join and group; a deleted row may come back. An
    order may be there before its customer, and stay when that is deleted.
    """
    chance = np.random.default_rng(seed)
    versions = [tables(scale, seed + epoch) for epoch in range(epochs)]
    changes: dict[str, list[pa.Table]] = {name: [] for name in versions[0]}
    states: dict[str, list[pa.Table]] = {name: [] for name in versions[0]}
    for name in versions[0]:
        _tell(chance, [of_all[name] for of_all in versions], changes[name], states[name])
    return History(changes, states)


def arrivals(scale: float, epochs: int, seed: int) -> Mapping[str, list[pa.Table]]:
    """The rows of each table that come in each epoch. Equal rows may come again: nothing says that keys are unique."""
    chance = np.random.default_rng(seed)
    found = {}
    for name, rows in tables(scale, seed).items():
        arrives = chance.integers(0, epochs, rows.num_rows)
        found[name] = [
            pa.concat_tables([rows.filter(arrives == epoch), *([rows.slice(0, 2)] if epoch == 1 else [])])
            for epoch in range(epochs)
        ]
    return found


def _tell(
    chance: np.random.Generator, versions: list[pa.Table], changes: list[pa.Table], states: list[pa.Table]
) -> None:
    """Append each epoch's changes of one table and its rows behind them. Of a key each version has a row."""
    rows = versions[0].num_rows
    arrives = chance.integers(0, len(versions), rows)
    version = np.full(rows, -1)  # of each key the one that is there
    for epoch in range(len(versions)):
        draw = chance.random(rows)
        there = version >= 0
        came = (arrives == epoch) | ((arrives < epoch) & ~there & (draw < _UPDATED))
        goes = there & (draw < _DELETED)
        updated = there & ~goes & (draw < _DELETED + _UPDATED)
        gone = _of(versions, np.where(goes, version, -1))
        version = np.where(came | updated, epoch, np.where(goes, -1, version))
        ops = np.where(came, "c", "u")[came | updated]
        new = versions[epoch].filter(came | updated)
        changes.append(pa.concat_tables([changed(new, ops, epoch), changed(gone, np.full(len(gone), "d"), epoch)]))
        states.append(_of(versions, version))


def _of(versions: list[pa.Table], version: np.typing.NDArray[np.int64]) -> pa.Table:
    """Each key's row of its version; none where that is -1."""
    return pa.concat_tables([table.filter(version == number) for number, table in enumerate(versions)])


def changed(rows: pa.Table, ops: np.typing.NDArray[np.str_], epoch: int) -> pa.Table:
    """The rows as changes, each with what happens to it, and the epoch."""
    rows = rows.append_column(OP, pa.array(ops, pa.string()))
    return rows.append_column(VERSION, pa.array(np.full(len(rows), epoch), pa.int64()))
