"""An aggregate that begins later than its stream: it has state of its own, of the rows since then alone.

In rows of the state that are older than the aggregate its columns are null, as they are in files that lack them. They
have values from the key's first row since then on. So does the count of rows, which shows whether there was one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from dagster_ckpt.operators.aggregates.aggregation import NOW
from dagster_ckpt.operators.aggregates.kinds.accumulator import Accumulator, Columns, GroupedRows, Keeps
from dagster_ckpt.operators.aggregates.kinds.counts import RowCount
from dagster_ckpt.operators.aggregates.kinds.partials import Partial, PartialAccumulator, SqlName
from dagster_ckpt.operators.aggregates.spec import AggregatePlan
from dagster_ckpt.operators.shared.arrays.nulls import has_value
from dagster_ckpt.operators.shared.state_columns import ROWS
from dagster_ckpt.protocol.transitions.later_columns import later

SINCE = b"dagster_ckpt.since"
"""In the metadata of an output column: the number of the epoch after which it begins."""


def plan_since(plan: AggregatePlan, since: str | int) -> AggregatePlan:
    """The aggregate of a plan, begun at `since`. It shares its state with none that begins at another time."""
    own = tuple(dict.fromkeys((RowCount(), *plan.accumulators)))
    names = [field.name for each in own for field in each.fields]

    def result(state: Columns) -> pa.Array:
        there = has_value(state[later(ROWS, since)])
        if there.all():
            return plan.result(_Own(state, since))
        rows = pa.array(there)
        values = plan.result({name: state[later(name, since)].filter(rows) for name in names}) if there.any() else None
        if values is None:
            return pa.nulls(len(there), plan.field.type)
        return values.take(pa.array(np.cumsum(there) - 1, mask=~there))

    field = plan.field.with_nullable(True).with_metadata({SINCE: str(since)})
    begun = (_PartialSince(each, since) if isinstance(each, PartialAccumulator) else Since(each, since) for each in own)
    return AggregatePlan(field, tuple(begun), result)


@dataclass(frozen=True)
class Since(Accumulator):
    """An accumulator of the rows since then. It merges with the others that begin with it as they do by themselves."""

    inner: Accumulator
    since: str | int

    @property
    def keeps(self) -> Keeps:
        begun = self.since if self.since == NOW else f"epoch {self.since}"
        return replace(self.inner.keeps, words=f"{self.inner.keeps.words} since {begun}")

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return tuple(pa.field(later(field.name, self.since), field.type) for field in self.inner.fields)

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        return self.inner.of_rows(rows)

    def merge(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        there = has_value(new[later(ROWS, self.since)])
        if there.all():
            return self.inner.merge(_Own(old, self.since), _Own(new, self.since))
        # Sessions that merge may both be older.
        before = tuple(old[field.name] for field in self.fields)
        if not there.any():
            return before
        rows = pa.array(there)
        was, now = (
            {name: column.filter(rows) for name, column in _Own(side, self.since).items()} for side in (old, new)
        )
        merged = self.inner.merge(was, now)
        of_both = np.where(there, np.cumsum(there) - 1, there.sum() + np.arange(len(there)))
        return tuple(pa.concat_arrays(pair).take(pa.array(of_both)) for pair in zip(merged, before, strict=True))


@dataclass(frozen=True)
class _PartialSince(Since, PartialAccumulator):
    """The same, where SQL may compute it of rows before they reach their task."""

    inner: PartialAccumulator

    @property
    def in_place(self) -> bool:
        return self.inner.in_place

    def partials(self, name: SqlName) -> tuple[Partial, ...]:
        return self.inner.partials(name)

    def of_partials(self, columns: tuple[pa.Array, ...], groups: int) -> tuple[pa.Array, ...]:
        return self.inner.of_partials(columns, groups)


@dataclass(frozen=True)
class _Own(Mapping[str, pa.Array]):
    """The columns that begin at `since`, under the names that they have without it."""

    state: Columns
    since: str | int

    def __getitem__(self, name: str) -> pa.Array:
        return self.state[later(name, self.since)]

    def __iter__(self) -> Iterator[str]:
        end = later("", self.since)
        return (name.removesuffix(end) for name in self.state if name.endswith(end))

    def __len__(self) -> int:
        return len(list(iter(self)))
