"""The state of steps over whole rows, and of the table of a last step."""

from collections.abc import Iterator

from dagster_ckpt.operators.explained.kept import (
    NUMBER_OF_KEYS,
    ONE_EPOCH,
    ONE_ROW,
    Bound,
    Kept,
    Limit,
    behind,
    expiring,
    for_each,
    grows_with,
    of_each,
    of_now,
    updates,
)
from dagster_ckpt.operators.rows.changes_from import ROWS, TOMBSTONES, ChangesFrom
from dagster_ckpt.operators.rows.deduplicate import Deduplicate, Keep
from dagster_ckpt.operators.rows.first_rows import NEW, SEEN, FirstRows
from dagster_ckpt.operators.rows.materializer import Materializer
from dagster_ckpt.operators.rows.over.over import ARRIVED, EMITTED, ORDERED, OverPartition
from dagster_ckpt.operators.rows.row_ranks import RowRanks
from dagster_ckpt.operators.rows.top import Top
from dagster_ckpt.operators.sets.distinct import Distinct
from dagster_ckpt.operators.sets.set_operation import SetOperation
from dagster_ckpt.operators.sets.union_all import EPOCH, UnionAll
from dagster_ckpt.operators.sets.whole_rows import changing
from dagster_ckpt.operators.shared.time_to_live import EXPIRIES
from dagster_ckpt.protocol.manifest.row_key import row_key

_CAME_AND_WENT = "the rows that came and went"
_EMITTED = "the changes to emit"
_INPUT_NOW = of_now("rows that the input has")
_ROWS = grows_with("the rows")


def of_table(table: Materializer, of_step: Limit) -> Kept:
    """The table of a stream whose last step keeps none by itself. `of_step` limits what the step keeps."""
    limit = of_step if of_step.bound is Bound.CONSTANT else Limit(of_step.bound, "the rows of the table")
    return _table(table, limit)


def of_copy(operator: Materializer) -> Iterator[Kept]:
    """The copy of a table."""
    yield _table(operator, _INPUT_NOW)


def of_deduplicate(operator: Deduplicate, of: str) -> Iterator[Kept]:
    """The tables of the first or the newest row of each key."""
    rows, which = operator.rows, "first" if operator.pipeline.parameters["keep"] == Keep.FIRST else "newest"
    number = NUMBER_OF_KEYS if of else ONE_ROW
    if isinstance(rows, FirstRows):
        limit = behind(rows.expire_after_us, "the row")
        yield Kept(SEEN, f"the event time of the emitted row{of_each(of)}", limit)
        yield Kept(NEW, "the rows to emit", ONE_EPOCH)
        return
    limit = number if rows.ttl is None else expiring(rows.ttl.expire_after_us)
    yield Kept(rows.spec.name, f"the {which} row{of_each(of)}", limit)
    if rows.ttl is not None:
        yield Kept(EXPIRIES, f"the time to look{for_each(of)} whether it has expired", limit)


def of_changes_from(operator: ChangesFrom) -> Iterator[Kept]:
    """The tables of a table elsewhere whose changes come in."""
    after_us = operator.deletes_expire_after_us
    deletes = grows_with("the deleted keys") if after_us is None else behind(after_us, "the delete")
    yield Kept(ROWS, "the newest row of each key", of_now("keys that have a row"))
    yield Kept(TOMBSTONES, "the keys that were deleted, so that an older change does not bring them back", deletes)


def of_top(operator: Top, of: str) -> Iterator[Kept]:
    """The tables of the first rows of each key."""
    updating, n = updates(operator.pipeline), operator.pipeline.parameters["n"]
    few = Limit(Bound.KEYS, f"{n} for each key") if of else Limit(Bound.CONSTANT, f"at most {n} rows")
    limit = _INPUT_NOW if updating else few
    if isinstance(operator.rows, RowRanks):
        values, ties = operator.rows.specs
        what = f"distinct values of {', '.join(operator.rows.by)}"
        all_ = f"the {what}{of_each(of)}: the first {n} and, behind them, all others"
        yield Kept(values.name, all_ if updating else f"the first {n} {what}{of_each(of)}", limit)
        rows = f"the rows{of_each(of)} with these values"
        yield Kept(ties.name, rows, _INPUT_NOW if updating else grows_with("the rows that tie"))
    else:
        [spec] = operator.rows.specs
        all_ = f"all rows{of_each(of)}: the first {n} and, behind them, all others"
        yield Kept(spec.name, all_ if updating else f"the first {n} rows{of_each(of)}", limit)
    if operator.arrived is not None:
        yield Kept(operator.arrived.spec.name, _CAME_AND_WENT, ONE_EPOCH)
    yield Kept(operator.emitted.spec.name, _EMITTED, ONE_EPOCH)


def of_over(operator: OverPartition, of: str) -> Iterator[Kept]:
    """The tables of functions over a partition."""
    more = ", with totals of the rows before" if operator.tree.more else ""
    limit = _INPUT_NOW if updates(operator.pipeline) else _ROWS
    yield Kept(ORDERED, f"all rows{of_each(of)} in their order{more}", limit)
    yield Kept(ARRIVED, _CAME_AND_WENT, ONE_EPOCH)
    yield Kept(EMITTED, _EMITTED, ONE_EPOCH)


def of_distinct(operator: Distinct) -> Iterator[Kept]:
    """The table of distinct rows."""
    [spec] = operator.pipeline.tables
    if operator.pipeline.appends:
        yield Kept(spec.name, "each distinct row", grows_with("the distinct rows"))
    else:
        yield Kept(spec.name, "each distinct row, with its count", _INPUT_NOW)


def of_set_operation(operator: SetOperation) -> Iterator[Kept]:
    """The table of the rows of both inputs. A row stays for as long as an input has it."""
    change = [changing(source) for source in operator.pipeline.inputs]
    limit = of_now("distinct rows that the inputs have") if all(change) else grows_with("the distinct rows")
    if any(change) and not all(change):
        appending = "left" if change[1] else "right"
        limit = grows_with(f"the distinct rows of the {appending} input, which only appends")
    what = "whether each input has it" if all(operator.counts.once) else "its count in each input"
    yield Kept(operator.counts.spec.name, f"each distinct row of both inputs, with {what}", limit)


def of_union_all(_: UnionAll) -> Iterator[Kept]:
    """The table of the rows of an epoch."""
    yield Kept(EPOCH, _CAME_AND_WENT, ONE_EPOCH)


def _table(table: Materializer, limit: Limit) -> Kept:
    found_by = "each row by its key" if row_key(table.pipeline) is not None else "each distinct row with its count"
    return Kept(table.rows.spec.name, f"the stream's table, {found_by}", limit)
