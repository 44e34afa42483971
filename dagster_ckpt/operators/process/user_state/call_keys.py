"""The keys of one call of a process function, and look-ups of given keys among them."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.lsm.columns import Mask, Positions, concat, flat, flatten, row_numbers, take, value_codes
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.operators.process.user_state.user_tables import with_columns

_SPELLED_MAX = 200


@dataclass(frozen=True)
class CallKeys:
    """The n distinct keys of a call's rows or timers: the call may access the state of these keys alone.

    The hashes of other keys are unknown here, and another key may belong to another task.
    """

    rows: pa.Table
    """The key columns of the call's rows."""
    which: Positions
    """The key of each of these rows: a number below n."""
    hashes: Hashes
    """The hash of each key, ascending."""
    keys: pa.Table
    """Each key once."""
    written: Mask
    """Whether the call has put state for each key; set by the code that puts it."""

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
        """The key number of each row of a table, which may have other columns too.

        Raises `InvalidPipelineError` for a key that is not one of these; `where` is the end of the message.
        """
        asked = with_columns(given, self.rows.schema, where)
        found = self._key_numbers(asked)
        foreign = np.flatnonzero(found >= len(self))
        if len(foreign):
            raise InvalidPipelineError(
                "a call can access only the state of the keys of its rows or timers: take the keys from "
                f"there. key={row_text(asked, int(foreign[0]))}, others={len(foreign) - 1}, {where}"
            )
        return found

    def check_output(self, made: pa.Table, where: str) -> None:
        """Raise `InvalidPipelineError` if the output of the call has a key that is not one of these.

        `made` has all key columns. The error names the column that was changed.
        """
        asked = pa.Table.from_arrays(made.select(self.rows.schema.names).columns, schema=self.rows.schema)
        foreign = np.flatnonzero(self._key_numbers(asked) >= len(self))
        if len(foreign):
            row = int(foreign[0])
            raise InvalidPipelineError(
                "key columns are emitted unchanged, and this key is not one of the rows or timers of the call: give "
                f"a changed column another name in `output`. column={self._new_column(asked, row)}, "
                f"key={row_text(asked, row)}, others={len(foreign) - 1}, {where}"
            )

    def _new_column(self, asked: pa.Table, row: int) -> str:
        """The first column whose value no key of the call has; all columns if only their combination is new."""
        for name in asked.column_names:
            codes = value_codes(concat([flat(asked.column(name).slice(row, 1)), flat(self.keys.column(name))]))
            if not (codes[1:] == codes[0]).any():
                return str(name)
        return ", ".join(asked.column_names)

    def _key_numbers(self, asked: pa.Table) -> Positions:
        """The key number of each row; n or more for a key that is not one of these."""
        if asked.equals(self.rows):
            return self.which
        columns = [flat(column) for column in pa.concat_tables([self.keys, asked]).columns]
        everything = pa.Table.from_arrays(columns, schema=self.keys.schema)
        groups = key_order(row_numbers(columns), everything)
        found = np.empty(everything.num_rows, dtype=np.int64)
        # The order of equal rows is stable, so the first of them is a known key, if there is one.
        found[groups.order] = np.repeat(groups.order[groups.starts], groups.sizes)
        return found[len(self) :]


def distinct(which: Positions, count: int) -> tuple[Positions, Positions]:
    """The numbers below `count` that occur, ascending, and the place of each number among them."""
    occurs = np.zeros(count, dtype=np.bool_)
    occurs[which] = True
    places = np.cumsum(occurs) - 1
    return np.flatnonzero(occurs), places[which]


def row_text(rows: pa.Table, row: int) -> str:
    """One row, for messages."""
    [values] = rows.slice(row, 1).to_pylist()
    text = repr(values)
    return text if len(text) <= _SPELLED_MAX else f"{text[:_SPELLED_MAX]}..."
