"""A list state, for the keys of one call of a process function."""

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flat, stretches, take
from dagster_ckpt.lsm.table import Found, Hashes, StateTable
from dagster_ckpt.operators.process.process_tables import INDEX, ROWS
from dagster_ckpt.operators.process.user_state.call_keys import CallKeys, distinct
from dagster_ckpt.operators.process.user_state.user_tables import with_columns_alone
from dagster_ckpt.operators.shared.subkeys import subkey_hashes

KEY = "_key"
_INDEX_FIELD = pa.field(INDEX, pa.int64(), nullable=False)
_ROWS_FIELD = pa.field(ROWS, pa.int64(), nullable=False)


class Lists:
    """Any number of rows for each key. Valid only during one call, and for the keys of its rows or timers.

    All methods take a table with the key columns, and raise `InvalidPipelineError` for a table that does not fit.
    """

    def __init__(self, rows: StateTable, sizes: StateTable, schema: pa.Schema, keys: CallKeys, where: str) -> None:
        """`schema` has the columns besides the key's; `where` names the state, for messages."""
        self._rows = rows
        self._sizes = sizes
        self._schema = schema
        self._keys = keys
        self._where = where
        self._got: tuple[Positions, Found] | None = None
        """The keys of the last `get` and their rows, where nothing was written since."""

    def get(self, keys: pa.Table) -> pa.Table:
        """All rows of n keys, key after key: `_key`, the position in `keys` (int64), and the state's columns.

        If a key occurs twice, so do its rows. Columns other than the key's are ignored.
        """
        asked, back = distinct(self._keys.find(keys, self._where), len(self._keys))
        sizes, _ = self._sizes_of(asked)
        owners, hashes, named = self._entries(asked, sizes)
        found = self._rows.get(hashes, named)
        self._got = asked, found
        sizes = np.bincount(owners[found.present], minlength=len(asked))
        starts = (np.cumsum(sizes) - sizes)[back]
        rows = take(found.rows.select(self._schema.names), stretches(starts, starts + sizes[back]))
        positions = pa.array(np.repeat(np.arange(len(back)), sizes[back]))
        schema = pa.schema([pa.field(KEY, pa.int64(), nullable=False), *self._schema])
        return pa.Table.from_arrays([positions, *rows.columns], schema=schema)

    def append(self, rows: pa.Table) -> None:
        """Add rows, any number for each key: the key's and the state's columns, in any order."""
        keys = self._keys.rows.schema
        rows = with_columns_alone(rows, pa.schema([*keys, *self._schema]), self._where)
        which = self._keys.find(rows, self._where)
        asked, back = distinct(which, len(self._keys))
        sizes, found = self._sizes_of(asked)
        more = np.bincount(back, minlength=len(asked))
        places = np.empty(len(back), dtype=np.int64)
        places[np.argsort(back, kind="stable")] = stretches(sizes, sizes + more)
        hashes, named = self._addresses(which, places)
        columns = [*named.columns, *rows.select(self._schema.names).columns]
        self._rows.put(hashes, pa.Table.from_arrays(columns, schema=pa.schema([*named.schema, *self._schema])))
        sized = take(self._keys.keys, asked).append_column(_ROWS_FIELD, pa.array(sizes + more))
        self._sizes.put(self._keys.hashes[asked], sized, before=found)
        self._got = None
        self._keys.written[asked] = True

    def clear(self, keys: pa.Table) -> None:
        """Delete all rows of these keys; keys may repeat, and a key without rows is no error."""
        asked, _ = distinct(self._keys.find(keys, self._where), len(self._keys))
        sizes, found = self._sizes_of(asked)
        _, hashes, named = self._entries(asked, sizes)
        got, self._got = self._got, None
        rows = got[1] if got is not None and np.array_equal(got[0], asked) else None
        self._rows.delete(hashes, named, before=rows)
        self._sizes.delete(self._keys.hashes[asked], take(self._keys.keys, asked), before=found)

    def _sizes_of(self, asked: Positions) -> tuple[Positions, Found]:
        """The number of rows of each of these keys, and the result of the look-up."""
        found = self._sizes.get(self._keys.hashes[asked], take(self._keys.keys, asked))
        sizes = np.zeros(len(asked), dtype=np.int64)
        sizes[found.present] = flat(found.rows.column(ROWS)).to_numpy()
        return sizes, found

    def _entries(self, asked: Positions, sizes: Positions) -> tuple[Positions, Hashes, pa.Table]:
        """All rows of these keys: the position of each row's key, its hash, and its key in the table."""
        owners = np.repeat(np.arange(len(asked)), sizes)
        hashes, named = self._addresses(asked[owners], stretches(np.zeros_like(sizes), sizes))
        return owners, hashes, named

    def _addresses(self, which: Positions, places: Positions) -> tuple[Hashes, pa.Table]:
        """The hashes and table keys of the rows at these places in the lists of these keys."""
        index = pa.array(places)
        keys = take(self._keys.keys, which).append_column(_INDEX_FIELD, index)
        return subkey_hashes(self._keys.hashes[which], [index]), keys
