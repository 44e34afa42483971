"""Any history of a bag of rows: inserts, deletes and updates, in any order, cut into batches and epochs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import pyarrow as pa
from hypothesis import strategies as st

from tests.unit.operators.keyed_streams import Row

KIND = pa.field("_change_type", pa.string(), nullable=False)
DELETE, FLEETING = "delete", "fleeting"


@dataclass
class Bag:
    """The rows of a table, in the order in which they came."""

    schema: pa.Schema
    rows: list[Row] = field(default_factory=list)

    def epoch(self, steps: Sequence[tuple[str, int, Row]], size: int, random: Random) -> list[pa.Table]:
        """The changes that these steps make, as batches of `size` rows in any order."""
        changes = list[Row]()
        for kind, at, row in steps:
            if kind == FLEETING:  # comes and goes
                changes += [{**row, KIND.name: "insert"}, {**row, KIND.name: "delete"}]
            elif kind == "insert" or not self.rows:
                self.rows.append(row)
                changes.append({**row, KIND.name: "insert"})
            elif kind == DELETE:
                changes.append({**self.rows.pop(at % len(self.rows)), KIND.name: "delete"})
            else:
                changes.append({**self.rows.pop(at % len(self.rows)), KIND.name: "update_preimage"})
                changes.append({**row, KIND.name: "update_postimage"})
                self.rows.append(row)
        random.shuffle(changes)
        schema = self.schema.append(KIND)
        batches = [changes[start : start + size] for start in range(0, len(changes), size)]
        return [pa.Table.from_pylist(batch, schema=schema) for batch in batches]


def histories(rows: st.SearchStrategy[Row]) -> st.SearchStrategy[list[list[tuple[str, int, Row]]]]:
    """Epochs of steps for `Bag.epoch`."""
    kinds = st.sampled_from(["insert", "insert", "insert", "update", DELETE, DELETE, FLEETING])
    return st.lists(st.lists(st.tuples(kinds, st.integers(0, 30), rows), max_size=9), min_size=1, max_size=6)


SIZES = st.sampled_from([1, 3, 100])
RANDOMS = st.randoms(use_true_random=False)
