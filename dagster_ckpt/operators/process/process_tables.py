"""The state tables of a process function. All names here are part of the state's format."""

from collections.abc import Mapping

import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions
from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.operators.process.state_kinds import ListState, StateKind
from dagster_ckpt.operators.shared.state_columns import HASH, hash_column, whole_number
from dagster_ckpt.protocol.manifest.manifest import SortKind, StateTableSpec

TIMERS = "timers"
"""The times of each key's timers."""
SEEN = "seen"
"""The time of each key's last row, if state expires."""
EXPIRY = "expiry"
"""When to check whether a key has expired: one entry for each key in `SEEN`."""
OUT = "out"
"""The output of `on_rows`. Empty between epochs."""

TIME = "_time"
INDEX = "_index"
ROWS = "_rows"
LAST = "_last"
NUMBER = "_number"
OWN_COLUMNS = (TIME, HASH, INDEX, ROWS, LAST, NUMBER)
"""The columns that state tables add to the user's."""

_NUMBER_TYPE = pa.timestamp("us")


def state_table(name: str) -> str:
    """The name of the table with the rows of a state."""
    return f"state_{name}"


def size_table(name: str) -> str:
    """The name of the table with the number of rows of each key in a list state."""
    return f"size_{name}"


def tables_of_state(declared: Mapping[str, StateKind], keys: pa.Schema) -> list[StateTableSpec]:
    """The tables of the declared state.

    The rows of a list are stored under hashes of key and index: under the hash of the key, each look-up of one row
    would search through the whole list.
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
    """A timeline of times of keys: a key may have several, each once."""
    schema = pa.schema([pa.field(TIME, time, nullable=False), *keys, whole_number(HASH)])
    return StateTableSpec(name, schema, (TIME, *keys.names), SortKind.TIME, TIME)


def seen_table(keys: pa.Schema, time: pa.DataType) -> StateTableSpec:
    """The time of each key's last row; null if unknown, when there was no watermark either."""
    return StateTableSpec(SEEN, pa.schema([*keys, pa.field(LAST, time)]), tuple(keys.names))


def out_table(output: pa.Schema) -> StateTableSpec:
    """Rows by number, stored as a time: they keep their order, are read in pieces, and expire at no cost."""
    schema = pa.schema([pa.field(NUMBER, _NUMBER_TYPE, nullable=False), *output])
    return StateTableSpec(OUT, schema, (NUMBER,), SortKind.TIME, NUMBER)


def entries(spec: StateTableSpec, times_us: Positions, hashes: Hashes, keys: pa.Table) -> pa.Table:
    """The rows of a timeline for n keys, each with its time and hash."""
    times = pa.array(times_us).view(spec.schema.field(TIME).type)
    return pa.Table.from_arrays([times, *keys.columns, hash_column(hashes)], schema=spec.schema)
