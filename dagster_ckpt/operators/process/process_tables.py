"""How a process function's state lies in tables. All names here are part of the state's format."""

from collections.abc import Mapping

import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions
from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.operators.process.state_kinds import ListState, StateKind
from dagster_ckpt.operators.shared.state_columns import HASH, hash_column, whole_number
from dagster_ckpt.protocol.manifest.manifest import SortKind, StateTableSpec

TIMERS = "timers"
"""When which keys have a timer."""
SEEN = "seen"
"""When each key had its last row, where state expires."""
EXPIRY = "expiry"
"""When to look whether a key's state has expired: one entry for each key in `SEEN`."""
OUT = "out"
"""Rows that came out while rows were taken in. It is empty between epochs."""

TIME = "_time"
INDEX = "_index"
ROWS = "_rows"
LAST = "_last"
NUMBER = "_number"
OWN_COLUMNS = (TIME, HASH, INDEX, ROWS, LAST, NUMBER)
"""What state tables have beside the user's columns."""

_NUMBER_TYPE = pa.timestamp("us")


def state_table(name: str) -> str:
    """The table with the rows of the state that the user named so."""
    return f"state_{name}"


def size_table(name: str) -> str:
    """The table with the number of rows that each key has in the list state that the user named so."""
    return f"size_{name}"


def tables_of_state(declared: Mapping[str, StateKind], keys: pa.Schema) -> list[StateTableSpec]:
    """The tables of what the user declared.

    The rows of a list lie under hashes of their own, told by their places in the list: under the key's hash a long list
    would make each look-up of one of its rows a search through all of them.
    """
    names = tuple(keys.names)
    tables = []
    for name, kind in declared.items():
        if isinstance(kind, ListState):
            rows = pa.schema([*keys, whole_number(INDEX), *kind.schema])
            tables.append(StateTableSpec(state_table(name), rows, (*names, INDEX)))
            tables.append(StateTableSpec(size_table(name), pa.schema([*keys, whole_number(ROWS)]), names))
        else:
            tables.append(StateTableSpec(state_table(name), pa.schema([*keys, *kind.schema]), names))
    return tables


def timeline(name: str, keys: pa.Schema, time: pa.DataType) -> StateTableSpec:
    """Times of keys: a key may have several, and each once."""
    schema = pa.schema([pa.field(TIME, time, nullable=False), *keys, whole_number(HASH)])
    return StateTableSpec(name, schema, (TIME, *keys.names), SortKind.TIME, TIME)


def seen_table(keys: pa.Schema, time: pa.DataType) -> StateTableSpec:
    """The time of each key's last row; null where it is not known, since the watermark had not begun either."""
    return StateTableSpec(SEEN, pa.schema([*keys, pa.field(LAST, time)]), tuple(keys.names))


def out_table(output: pa.Schema) -> StateTableSpec:
    """Rows by number, as if that were a time: they come out as they went in, in pieces, and are let go at no cost."""
    schema = pa.schema([pa.field(NUMBER, _NUMBER_TYPE, nullable=False), *output])
    return StateTableSpec(OUT, schema, (NUMBER,), SortKind.TIME, NUMBER)


def entries(spec: StateTableSpec, times_us: Positions, hashes: Hashes, keys: pa.Table) -> pa.Table:
    """The rows of a timeline for n keys, each with its time and hash."""
    times = pa.array(times_us).view(spec.schema.field(TIME).type)
    return pa.Table.from_arrays([times, *keys.columns, hash_column(hashes)], schema=spec.schema)
