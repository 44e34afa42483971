"""Top N: the best rows of each key in an order."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.lsm.columns import Positions, flat, to_mask
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.lsm.value_hashes import value_hashes
from dagster_ckpt.operators.operator import NONE_LATE, Changes, EpochContext, LiveRows, Operator, Origins
from dagster_ckpt.operators.rows.deduplicate import Keep
from dagster_ckpt.operators.rows.row_places import RANKED, RowPlaces
from dagster_ckpt.operators.rows.row_ranks import RowRanks, value_names
from dagster_ckpt.operators.shared import expiry_checks
from dagster_ckpt.operators.shared.checks import pipeline_checks, updating_checks
from dagster_ckpt.operators.shared.net_changes import inserts, kept_rows
from dagster_ckpt.operators.shared.ranked import best_rows
from dagster_ckpt.operators.shared.ranked.best_rows import BestRows
from dagster_ckpt.operators.shared.ranked.order_by import OrderColumn, RowOrder, order_columns
from dagster_ckpt.operators.shared.ranked.rank_tree import COPIES, INNER
from dagster_ckpt.operators.shared.row_order import check_total_order
from dagster_ckpt.operators.shared.zsets import epoch_rows
from dagster_ckpt.operators.shared.zsets.epoch_rows import EpochRows
from dagster_ckpt.operators.shared.zsets.zset import ZSet
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline

NAME = "top"
ARRIVED = "arrived"
"""The rows of the epoch, net. There if rows are retracted."""
EMITTED = "emitted"
"""The changes of the epoch, net."""
COUNT_MAX = 10_000
"""The most rows of a key: each look-up reads some sixteen times as many."""


class Ties(StrEnum):
    """How rows that are equal in the order columns are counted."""

    ROWS = "rows"
    RANK = "rank"
    DENSE_RANK = "dense_rank"


@dataclass(frozen=True, slots=True)
class Best:
    """Which rows of a key to keep, not yet checked against an input: the first `n` by `by`, see `order_columns`.

    `rank` is the name of a column with the place of each row, or None.
    """

    n: int
    by: str | Sequence[str]
    ties: str = Ties.ROWS
    rank: str | None = None

    @classmethod
    def for_deduplicate(cls, keep: str, by: Sequence[str]) -> "Best":
        """What deduplication keeps of each key: the row that is first, or last, by these columns; null loses to any.

        Without columns it is the first in the order of all columns: some row, but always the same. Raises
        `InvalidPipelineError`.
        """
        if keep not in tuple(Keep):
            raise InvalidPipelineError(f"keep must be 'first' or 'last'. keep={keep!r}")
        if not by and keep == Keep.LAST:
            raise InvalidPipelineError(
                "deduplicate with keep='last' needs an order: name the columns that say which row is the newest, such "
                "as by='version'. by=None"
            )
        columns = [OrderColumn(name, descending=keep == Keep.LAST) for name in by]
        return cls(1, [column.spelling() for column in columns])


@dataclass(frozen=True)
class Top(Operator):
    """The rows of each key whose place in an order is at most `Best.n`, as rows that come and go.

    `Best.ties`: the place is ROW_NUMBER, RANK or DENSE_RANK. By ROW_NUMBER, rows that are equal in the order columns
    are ordered by all columns (`row_order`), so the result does not depend on the order of arrival. Only rows that
    come, go or get another rank are emitted.
    """

    pipeline: Pipeline
    rows: RowPlaces | RowRanks
    arrived: EpochRows | None
    emitted: EpochRows

    @classmethod
    def build(
        cls,
        keys: tuple[str, ...],
        source: InputSpec,
        best: Best,
        *,
        input_key: tuple[str, ...] | None = None,
        updating: bool = False,
        where: str | None = None,
    ) -> "Top":
        """Check the operator; raises `InvalidPipelineError`. The output has all columns of the input, then the rank's.

        `input_key` are columns that identify a row of the input, if there
        are such. `updating`: `_change_type` marks each input row as added or retracted; `where` is then the text of the
        condition that selected the rows.
        """
        if updating:
            updating_checks.check_changes(source.schema)
        schema = pa.schema([field for field in source.schema if not (updating and field.name == CHANGE_TYPE)])
        field = None if best.rank is None else pa.field(_checked_name(best.rank, schema), pa.int32(), nullable=False)
        output = schema if field is None else schema.append(field)
        _check(keys, schema, output, best)
        order = _order(best, keys, schema)
        rows = _rows(keys, schema, order, best, field, appends=not updating)
        key_fields, others = _split(keys, schema)
        arrived = EpochRows.of(ARRIVED, key_fields, others) if updating else None
        emitted = EpochRows.of(EMITTED, key_fields, [*others, *([] if field is None else [field])])
        pipeline = Pipeline(
            operator=NAME,
            parameters={
                "n": best.n,
                "by": [column.spelling() for column in order],
                "ties": str(best.ties),
                "rank": best.rank,
                "input_key": None if input_key is None else list(input_key),
                updating_checks.ROW_KEY: _row_key(best, input_key),
                **(updating_checks.parameters(where) if updating else {}),
            },
            inputs=(source,),
            keys=keys,
            tables=(*rows.specs, *([] if arrived is None else [arrived.spec]), emitted.spec),
            output=output,
        )
        return cls(pipeline, rows, arrived, emitted)

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline) -> "Top":
        """The same operator from its fingerprint."""
        options: dict[str, Any] = pipeline.parameters
        input_key = options["input_key"]
        return cls.build(
            pipeline.keys,
            pipeline.inputs[0],
            Best(options["n"], options["by"], options["ties"], options["rank"]),
            input_key=None if input_key is None else tuple(input_key),
            updating=options.get(updating_checks.UPDATING, False),
            where=options.get(updating_checks.WHERE),
        )

    @property
    def origins(self) -> Origins:
        """A rank is computed from the order columns."""
        options: dict[str, Any] = self.pipeline.parameters
        by = order_columns(NAME, options["by"], self.pipeline.inputs[0].schema)
        ranked = {} if options["rank"] is None else {options["rank"]: [(0, column.name) for column in by]}
        return {**super().origins, **ranked}

    def on_rows(self, number: int, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        delta = ZSet.of_changes(hashes, rows, self._columns)
        if self.arrived is None:
            self._change([delta.consolidate(value_hashes(delta.rows.columns, hashes))], state, context)
        else:
            self.arrived.add(delta, state, context)
        return NONE_LATE

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        if self.arrived is not None:
            for piece in self.arrived.net(state, context):
                self._change([piece], state, context)
                yield inserts(self.pipeline.output.empty_table())
        for piece in self.emitted.net(state, context):
            yield piece.to_changes(self.pipeline.output.names)

    def rows_kept(self, live: LiveRows) -> Iterator[tuple[int, pa.Table]]:
        """Those of a tree's leaves: an inner node repeats rows of its children."""
        assert isinstance(self.rows, RowPlaces), "ties by rank are kept otherwise"
        for piece in live(self.rows.best.spec.name):
            copies = flat(piece.column(COPIES)).to_numpy() * ~to_mask(flat(piece.column(INNER)))
            yield 0, kept_rows(piece, copies, self.pipeline.inputs[0].schema)

    @property
    def _columns(self) -> list[str]:
        """The columns of the input, those of the key first."""
        columns = [name for name in self.pipeline.output.names if name != self.pipeline.parameters["rank"]]
        return [*self.pipeline.keys, *(name for name in columns if name not in self.pipeline.keys)]

    def _change(self, pieces: Iterable[ZSet], state: State, context: EpochContext) -> None:
        for more in self.rows.apply(pieces, state, context):
            self.emitted.add(more, state, context)


def _split(keys: tuple[str, ...], schema: pa.Schema) -> tuple[list[pa.Field], list[pa.Field]]:
    """The columns of the key, and the others."""
    return [schema.field(key) for key in keys], [field for field in schema if field.name not in keys]


def _order(best: Best, keys: tuple[str, ...], schema: pa.Schema) -> tuple[OrderColumn, ...]:
    columns = order_columns(NAME, best.by, schema) if best.by else ()
    for column in columns:
        if column.name in keys:
            raise InvalidPipelineError(
                "all rows of a key are equal in its columns: order them by others. "
                f"by={column.name}, keys={', '.join(keys)}"
            )
    return columns


def _rows(
    keys: tuple[str, ...],
    schema: pa.Schema,
    by: tuple[OrderColumn, ...],
    best: Best,
    rank: pa.Field | None,
    *,
    appends: bool,
) -> RowPlaces | RowRanks:
    key_fields, others = _split(keys, schema)
    if best.ties == Ties.ROWS:
        order = RowOrder(by, tuple(field.name for field in others))
        return RowPlaces(BestRows.of(RANKED, key_fields, others, order, best.n, appends=appends), best.n, rank)
    dense = best.ties == Ties.DENSE_RANK
    expiry_checks.check_names_are_free(schema, list(value_names(len(by))))
    return RowRanks.of(key_fields, others, by, best.n, rank, dense=dense, appends=appends)


def _row_key(best: Best, input_key: tuple[str, ...] | None) -> list[str] | None:
    """The columns that, with the keys, identify a row of the output; None if there are none."""
    if best.ties == Ties.ROWS and best.n == 1:
        return []
    if input_key is not None:
        return list(input_key)
    return [best.rank] if best.ties == Ties.ROWS and best.rank is not None else None


def _checked_name(rank: object, schema: pa.Schema) -> str:
    if not isinstance(rank, str) or not rank or rank.startswith("_"):
        raise InvalidPipelineError(f"rank= is the name of a new column, which does not begin with _. rank={rank!r}")
    if rank.casefold() in {name.casefold() for name in schema.names}:
        raise InvalidPipelineError(f"the input has a column of this name already: choose another. rank={rank}")
    return rank


def _check(keys: tuple[str, ...], schema: pa.Schema, output: pa.Schema, best: Best) -> None:
    pipeline_checks.check_columns(output)
    pipeline_checks.check_storable(output)
    pipeline_checks.check_keys(keys, schema)
    check_total_order(schema)
    pipeline_checks.check_hashable(schema, "rows are found by all their columns")
    if best.ties not in tuple(Ties):
        raise InvalidPipelineError(f"ties= is one of {', '.join(Ties)}. ties={best.ties!r}")
    if not _is_count(best.n):
        raise InvalidPipelineError(f"top takes how many rows of a key to keep, from 1 to {COUNT_MAX}. n={best.n!r}")
    expiry_checks.check_names_are_free(schema, [*best_rows.ADDED, *epoch_rows.ADDED])


def _is_count(n: object) -> bool:
    return isinstance(n, int) and not isinstance(n, bool) and 1 <= n <= COUNT_MAX
