"""How far behind its watermark a step may emit rows: what the next step has to wait for.

A step that keeps rows back emits them with event times that its watermark has long passed. For the next step they are
in time nevertheless, so that one's watermark is as far behind.
"""

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.joins.interval_join import IntervalJoin
from dagster_ckpt.operators.joins.regular.regular_join import RegularJoin
from dagster_ckpt.operators.joins.window_join import WindowedJoin
from dagster_ckpt.operators.operator import Operator
from dagster_ckpt.operators.shared.window_kinds import WINDOW_END, WINDOW_START
from dagster_ckpt.operators.windows.session_aggregate import SessionAggregate
from dagster_ckpt.operators.windows.window_aggregate import WindowAggregate
from dagster_ckpt.operators.windows.window_of_table import WindowOfTable


def output_lag_us(operator: Operator, column: str) -> int:
    """How far behind the operator's watermark the times in an output column may be, in microseconds.

    0 for a column of which the operator knows nothing. Raises `InvalidPipelineError` where there is no bound.
    """
    match operator:
        case SessionAggregate() if column == WINDOW_START:
            raise InvalidPipelineError(
                "a session may have begun any time before it ends, so no watermark follows from its start: call "
                f"with_watermark on its end. column={WINDOW_START}, instead={WINDOW_END}"
            )
        case WindowAggregate() | WindowOfTable() if column == WINDOW_START:
            return operator.window.size_us
        case WindowedJoin() if column in (WINDOW_START, *operator.event_times):
            return operator.horizon_us
        case IntervalJoin() if column in operator.event_times:
            return operator.interval.horizon_us
        case RegularJoin():
            raise InvalidPipelineError(
                "a join without expire_after may find a partner for a row however old it is, so no watermark follows "
                f"from its rows: give expire_after, or use interval_join. column={column}"
            )
        case _:
            return 0
