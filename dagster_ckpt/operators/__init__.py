"""Stateful operators over Arrow tables: rows and state in, changes and state out. Pure.

Reading order. Begin with `operator`, then `aggregates/aggregate`. No room of operators imports from another, only what
is in `shared/` and in `aggregates/`.

    operator        what an operator is
    step            an operator as a step: without keys, with a table, under other names
    registry        from the pipeline in a manifest back to its operator
    kept_names      a step under the names that its state has, where the code has new ones
    since_now       `since="now"` as the epoch after which an aggregate begins
    partial_aggregate  the aggregate of rows that Spark has aggregated before
    local_aggregate  the aggregate of rows that are grouped where they are read
    output_times    how far behind the watermark a step emits rows
    explained/      what the steps of a stream keep and what limits it, in words
    column_lineage  which input columns the table's columns are made from
    agg             the aggregates that users name: `agg.count()`, `agg.sum("column")`
    over            the functions over a partition that users name: `over.row_number()`, `over.lag("column")`

Rooms of operators
    aggregates/  aggregates of groups; one row for each key, updated as rows arrive
    windows/     one row for each key and window or session
    joins/       rows of two inputs that match by key and time
    rows/        whole rows: append, deduplicate, copies of a table, changes of one elsewhere
    sets/        distinct rows, union, intersection and difference
    process/     the user's own operator, vectorised

What they share
    shared/      arrays, checks, windows of time, late rows, bounded memory
"""

from dagster_ckpt.operators import agg, over
from dagster_ckpt.operators.aggregates.aggregate import RunningAggregate
from dagster_ckpt.operators.aggregates.registry import spark_function
from dagster_ckpt.operators.aggregates.spec import AggregateSpec
from dagster_ckpt.operators.operator import Changes, EpochContext, Operator
from dagster_ckpt.operators.registry import counters_of, from_pipeline
from dagster_ckpt.operators.rows.append import AppendOnly

__all__ = [
    "AggregateSpec",
    "AppendOnly",
    "Changes",
    "EpochContext",
    "Operator",
    "RunningAggregate",
    "agg",
    "counters_of",
    "from_pipeline",
    "over",
    "spark_function",
]
