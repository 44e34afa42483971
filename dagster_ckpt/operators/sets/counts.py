"""How many equal rows there are, of each input."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.lsm.columns import Positions, flat, take
from dagster_ckpt.lsm.runs.deltas import chosen
from dagster_ckpt.lsm.table import Found, State, Touched
from dagster_ckpt.operators.sets.whole_rows import Net
from dagster_ckpt.operators.shared.state_columns import whole_number
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec


@dataclass(frozen=True)
class Counts:
    """A state table with each distinct row and its count in each input. A row that no input has is not in it.

    The rows of an epoch arrive in any order, so a count may fall below 0 within an epoch, but not at its end. `once`:
    the inputs whose rows are never retracted and of which only matters whether a row is there; their counts end at 1.
    """

    spec: StateTableSpec
    once: tuple[bool, ...]

    @classmethod
    def of(cls, name: str, schema: pa.Schema, inputs: int, once: tuple[bool, ...] = ()) -> "Counts":
        """The state table of this name, for inputs with these columns."""
        numbers = [whole_number(number) for number in cls.names(inputs)]
        return cls(StateTableSpec(name, pa.schema([*schema, *numbers]), tuple(schema.names)), once or (False,) * inputs)

    @staticmethod
    def names(inputs: int) -> list[str]:
        """The columns with the counts."""
        return [f"_rows_{number}" for number in range(inputs)]

    def add(self, number: int, net: Net, state: State) -> None:
        """Change the counts of rows of an input."""
        if not len(net.more):
            return
        table = state.table(self.spec.name)
        found = table.get(net.hashes, net.rows)
        before = self.counts_of(found)
        counts = before.copy()
        counts[number] += net.more
        if self.once[number]:
            counts[number] = np.minimum(counts[number], 1)
        some = (counts != 0).any(axis=0)
        put = np.flatnonzero(some & (counts != before).any(axis=0))
        gone = np.flatnonzero(~some & found.present)
        if len(put):
            columns = [*take(net.rows, put).columns, *map(pa.array, counts[:, put])]
            rows = pa.Table.from_arrays(columns, schema=self.spec.schema)
            table.put(net.hashes[put], rows, before=chosen(found, put))
        if len(gone):
            table.delete(net.hashes[gone], take(net.rows, gone), before=chosen(found, gone))

    def touched(self, state: State) -> Iterator[Touched]:
        """What the epoch changed, after all its rows. Raises `CorruptStateError` if more was retracted than added."""
        for touched in state.table(self.spec.name).touched():
            wrong = (self.counts_of(touched.after) < 0).any(axis=0)
            if wrong.any():
                raise CorruptStateError(
                    "rows were retracted that were never added, so the state does not fit its inputs: rebuild it from "
                    f"the beginning with rollback(0). table={self.spec.name}, rows={int(np.count_nonzero(wrong))}"
                )
            yield touched

    def counts_of(self, found: Found) -> Positions:
        """The counts of each input, one row of the result for each; 0 where nothing was found."""
        counts = np.zeros((len(self.once), len(found.present)), dtype=np.int64)
        for number, name in enumerate(self.names(len(self.once))):
            counts[number, found.present] = flat(found.rows.column(name)).to_numpy()
        return counts
