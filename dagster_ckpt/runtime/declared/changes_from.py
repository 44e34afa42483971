"""`changes_from`: a source of changes, such as a database's log, becomes a stream whose table is the database's."""

from collections.abc import Sequence
from typing import Literal

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from dagster_ckpt.errors import InvalidPipelineError, did_you_mean
from dagster_ckpt.operators.operator import Operator
from dagster_ckpt.operators.rows.changes_from import NAME, ChangesFrom
from dagster_ckpt.quantities import Duration, microseconds
from dagster_ckpt.runtime.declared.change_formats import (
    CHANGED_AT,
    FORMATS,
    Format,
    Wanted,
)
from dagster_ckpt.runtime.declared.step_parts import EventTime, StepInput
from dagster_ckpt.runtime.declared.stream import StatefulStep, Stream


def changes_from(  # noqa: PLR0913  (options, by name)
    df: DataFrame,
    format: Literal["debezium", "delta-cdf", "op-column"],  # noqa: A002  (as Spark's readers call it)
    *,
    key: str | Sequence[str],
    sequence: str | Sequence[str] | None = None,
    schema: str | StructType | None = None,
    op: str = "op",
    exclude: str | Sequence[str] = (),
    time: str | None = None,
    deletes_expire_after: Duration | None = None,
) -> Stream:
    """The table that these changes make: inserted, updated and deleted rows, as they are at their source.

        changes_from(records, "debezium", schema="id long, name string", key="id")

    Return it as it is. Streams that read this asset follow its updates and deletes, as those of any other.

    `df` has, for `"debezium"`, the events' columns `before`, `after`, `op` and `source`, or with `schema`, the table's
    columns, the events as JSON in the column `value`, as Kafka delivers them; for `"delta-cdf"` what Delta's change
    data feed gives; for `"op-column"` rows with a column `op` that says insert, update or delete.

    The newest change of a key wins: the one with the greatest `sequence`, one column or several that are compared in
    turn. None: the log position that Debezium's connector for PostgreSQL, MySQL or SQL Server sends, or Delta's
    `_commit_version`. Older changes that come later are dropped and counted, and so are those that come again. A
    deleted key keeps its sequence, so that an older change does not bring the row back: for ever, or until
    `deletes_expire_after` has passed by `time`, the column with the time of a change. `exclude` names columns that the
    table leaves out.

    Raises `InvalidPipelineError` for columns that are not there or do not fit. A stream stops with one at a change that
    it cannot apply, such as a truncate, or two different changes of a key with one sequence.
    """
    if not isinstance(df, DataFrame):
        raise InvalidPipelineError(
            "changes_from takes a DataFrame of a source's changes; a stream's table can be returned or filtered as it "
            f"is. found={type(df).__name__}"
        )
    timed = deletes_expire_after is not None
    expire_after_us = (
        None if deletes_expire_after is None else microseconds(deletes_expire_after, "deletes_expire_after")
    )
    keys = _names(key)
    if not keys:
        raise InvalidPipelineError("changes need the key of the table: name its columns, such as key='id'. key=()")
    wanted = Wanted(keys, _names(sequence or ()), schema, op, _names(exclude), time, timed)
    rows = FORMATS[_format(format)](df, wanted)

    def build(inputs: Sequence[StepInput]) -> Operator:
        [changes] = inputs
        return ChangesFrom.build(
            keys, changes.spec, rows.columns, rows.sequence, rows.ties, changes.event_time, expire_after_us
        )

    step = StatefulStep(NAME, build, compared_columns=rows.sequence)
    return Stream(rows.frame, EventTime(CHANGED_AT, 0) if timed else None, keys, step=step)


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _format(name: str) -> Format:
    formats = [str(each) for each in Format]
    if name not in formats:
        raise InvalidPipelineError(
            f"unknown format of changes.{did_you_mean(name, formats)} format={name!r}, formats={', '.join(formats)}"
        )
    return Format(name)
