from dagster_ckpt.operators.joins.how import JoinType
from dagster_ckpt.operators.joins.interval import IntervalJoin
from dagster_ckpt.operators.joins.windowed import WindowedJoin

__all__ = ["IntervalJoin", "JoinType", "WindowedJoin"]
