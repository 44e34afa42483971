"""The aggregates of `Stream.aggregate`: `agg.count()`, `agg.sum("column")` and so on.

Nulls are skipped, as in SQL; only `count()` without a column counts every row. An aggregate over only nulls is null (a
count is 0, a list is empty). NaN is greater than any other number and equal to itself, as in Spark. Result
types are Spark's.

With `since="now"` an aggregate that is added to a running stream begins with the next epoch, and keeps what the stream
has: its value is of the rows since then, and null for a key that has had none since. Leave `since` where it is
afterwards: it never begins again.
"""

from dagster_ckpt.operators.aggregates.aggregation import *
from dagster_ckpt.operators.aggregates.functions.approximate import *
from dagster_ckpt.operators.aggregates.functions.bits import *
from dagster_ckpt.operators.aggregates.functions.counts import *
from dagster_ckpt.operators.aggregates.functions.distinct import *
from dagster_ckpt.operators.aggregates.functions.edges import *
from dagster_ckpt.operators.aggregates.functions.pairs import *
from dagster_ckpt.operators.aggregates.functions.spreads import *
from dagster_ckpt.operators.aggregates.functions.totals import *
from dagster_ckpt.operators.aggregates.functions.values import *
