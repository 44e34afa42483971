"""The keys of one call of a process function, and which of them its code means."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.lsm.columns import Mask, Positions, flat, flatten, joined, row_numbers, take, value_codes
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.operators.process.user_state.user_tables import with_columns

_SPELLED_MAX = 200


@dataclass(frozen=True)
class CallKeys:
    """The n distinct keys of the rows, or timers, that a call is given: for them alone it may reach state.

    No other key's hash is known here, and another key may be of another task.
    """

    rows: pa.Table
    """The key columns of the call's rows."""
    which: Positions
    """Of each of these rows, its key: a number below n."""
    hashes: Hashes
    """Of each key, ascending."""
    keys: pa.Table
    """Each key once."""
    written: Mask
    """Of each key whether the call has put any state for it; whoever puts some says so."""

    @classmethod
    def of(cls, hashes: Hashes, rows: pa.Table) -> "CallKeys":
        """The keys of rows with these hashes; `rows` has the key columns alone."""
        rows = flatten(rows)
        groups = key_order(hashes, rows)
        first = groups.order[groups.starts]
        which = np.empty(len(hashes), dtype=np.int64)
        which[groups.order] = np.repeat(np.arange(len(first)), groups.sizes)
        return cls(rows, which, hashes[first], take(rows, first), np.zeros(len(first), dtype=np.bool_))

    def __len__(self) -> int:
        return len(self.hashes)

    def find(self, given: object, where: str) -> Positions:
        """The number of the key of each row of a table, which may have other columns too.

        Raises `InvalidPipelineError` for a key that is none of these; `where` is the end of the message.
        """
        asked = with_columns(given, self.rows.schema, where)
        found = self._found(asked)
        foreign = np.flatnonzero(found >= len(self))
        if len(foreign):
            raise InvalidPipelineError(
                "state can be reached only for keys of the rows, or timers, of this very call: take the keys from "
                f"there. key={spelled(asked, int(foreign[0]))}, others={len(foreign) - 1}, {where}"
            )
        return found

    def check_output(self, made: pa.Table, where: str) -> None:
        """Refuse rows that come out of the call with the key columns, and with a key that is none of these.

        `made` has all key columns. Raises `InvalidPipelineError`, with the column that was changed.
        """
        asked = pa.Table.from_arrays(made.select(self.rows.schema.names).columns, schema=self.rows.schema)
        foreign = np.flatnonzero(self._found(asked) >= len(self))
        if len(foreign):
            row = int(foreign[0])
            raise InvalidPipelineError(
                "key columns come out as they went in, and this key is none of the rows, or timers, of the call: give "
                f"what you make of it another name in `output`. column={self._changed(asked, row)}, "
                f"key={spelled(asked, row)}, others={len(foreign) - 1}, {where}"
            )

    def _changed(self, asked: pa.Table, row: int) -> str:
        """The first column whose value no key of the call has; where they are only mixed up, all."""
        for name in asked.column_names:
            codes = value_codes(joined([flat(asked.column(name).slice(row, 1)), flat(self.keys.column(name))]))
            if not (codes[1:] == codes[0]).any():
                return str(name)
        return ", ".join(asked.column_names)

    def _found(self, asked: pa.Table) -> Positions:
        """The number of the key of each row; for another key one that is none."""
        if asked.equals(self.rows):
            return self.which
        columns = [flat(column) for column in pa.concat_tables([self.keys, asked]).columns]
        everything = pa.Table.from_arrays(columns, schema=self.keys.schema)
        groups = key_order(row_numbers(columns), everything)
        found = np.empty(everything.num_rows, dtype=np.int64)
        # Equal rows stay in their order, so the first of them is the known one, where there is one.
        found[groups.order] = np.repeat(groups.order[groups.starts], groups.sizes)
        return found[len(self) :]


def distinct(which: Positions, count: int) -> tuple[Positions, Positions]:
    """The numbers below `count` that occur, ascending, and of each number its place among them."""
    occurs = np.zeros(count, dtype=np.bool_)
    occurs[which] = True
    places = np.cumsum(occurs) - 1
    return np.flatnonzero(occurs), places[which]


def spelled(rows: pa.Table, row: int) -> str:
    """One row, for people."""
    [values] = rows.slice(row, 1).to_pylist()
    text = repr(values)
    return text if len(text) <= _SPELLED_MAX else f"{text[:_SPELLED_MAX]}..."
