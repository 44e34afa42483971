from dagster_ckpt.operators import agg
from dagster_ckpt.operators.aggregate import RunningAggregate
from dagster_ckpt.operators.append import AppendOnly
from dagster_ckpt.operators.operator import Changes, EpochContext, Operator
from dagster_ckpt.operators.rebuilt import counters_of, from_pipeline

__all__ = [
    "AppendOnly",
    "Changes",
    "EpochContext",
    "Operator",
    "RunningAggregate",
    "agg",
    "counters_of",
    "from_pipeline",
]
