"""A value state, for the keys of one call of a process function."""

import numpy as np
import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.lsm.columns import Positions, flat, take
from dagster_ckpt.lsm.runs.deltas import select
from dagster_ckpt.lsm.table import Found, StateTable
from dagster_ckpt.operators.process.user_state.call_keys import CallKeys, distinct, row_text
from dagster_ckpt.operators.process.user_state.user_tables import with_columns_alone

PRESENT = "_present"


class Values:
    """At most one row for each key. Valid only during one call, and for the keys of its rows or timers.

    All methods take a table with the key columns, and raise `InvalidPipelineError` for a table that does not fit.
    """

    def __init__(self, table: StateTable, schema: pa.Schema, keys: CallKeys, where: str) -> None:
        """`schema` has the columns besides the key's; `where` names the state, for messages."""
        self._table = table
        self._schema = schema
        self._keys = keys
        self._where = where
        self._got: tuple[Positions, Found] | None = None
        """The keys of the last `get` and their rows, where nothing was written since."""

    def get(self, keys: pa.Table) -> pa.Table:
        """A row for each of n keys, in their order: the state's columns, null if it has none, and `_present`.

        Keys may repeat; columns other than the key's are ignored.
        """
        asked, back = distinct(self._keys.find(keys, self._where), len(self._keys))
        found = self._table.get(self._keys.hashes[asked], take(self._keys.keys, asked))
        self._got = asked, found
        present = found.present[back]
        columns = found.rows.select(self._schema.names).columns
        if found.present.all():
            values = [flat(column).take(pa.array(back)) for column in columns]
        else:
            rows = pa.array((np.cumsum(found.present) - 1)[back], mask=~present)
            values = [flat(column).take(rows) for column in columns]
        fields = [field.with_nullable(True) for field in self._schema]
        schema = pa.schema([*fields, pa.field(PRESENT, pa.bool_(), nullable=False)])
        return pa.Table.from_arrays([*values, pa.array(present)], schema=schema)

    def put(self, rows: pa.Table) -> None:
        """Set the rows of n distinct keys: the key's and the state's columns, in any order."""
        keys = self._keys.rows.schema
        rows = with_columns_alone(rows, pa.schema([*keys, *self._schema]), self._where)
        which = self._keys.find(rows, self._where)
        repeated = np.bincount(which, minlength=len(self._keys))[which] > 1
        if repeated.any():
            key = row_text(rows.select(keys.names), int(np.argmax(repeated)))
            raise InvalidPipelineError(
                "a key has one row in a value state, and here it is put more than once: combine its rows first, "
                f"or use a ListState. key={key}, {self._where}"
            )
        self._table.put(self._keys.hashes[which], rows, before=self._before(which))
        self._keys.written[which] = True

    def delete(self, keys: pa.Table) -> None:
        """Delete the rows of these keys; keys may repeat, and a key without a row is no error."""
        gone, _ = distinct(self._keys.find(keys, self._where), len(self._keys))
        self._table.delete(self._keys.hashes[gone], take(self._keys.keys, gone), before=self._before(gone))

    def _before(self, which: Positions) -> Found | None:
        """The rows of these keys, where the last `get` has them all; good for one write."""
        got, self._got = self._got, None
        if got is None or not np.isin(which, got[0]).all():
            return None
        asked, found = got
        return select(found, np.searchsorted(asked, which))
