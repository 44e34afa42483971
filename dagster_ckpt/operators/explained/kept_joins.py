"""The state of joins."""

from collections.abc import Iterator

from dagster_ckpt.operators.explained.kept import (
    NUMBER_OF_KEYS,
    ONE_EPOCH,
    OPEN_WINDOWS,
    Kept,
    behind,
    grows_with,
    of_now,
)
from dagster_ckpt.operators.joins.arrivals import arrivals
from dagster_ckpt.operators.joins.interval_join import IntervalJoin
from dagster_ckpt.operators.joins.join_types import LEFT, RIGHT, JoinType
from dagster_ckpt.operators.joins.regular.regular_join import RegularJoin
from dagster_ckpt.operators.joins.sides import JoinSide
from dagster_ckpt.operators.joins.window_join import WindowedJoin


def of_regular_join(operator: RegularJoin) -> Iterator[Kept]:
    """The tables of a join of tables as they are."""
    for side in operator.sides:
        if side.number == LEFT or operator.how.gives_pairs:
            limit = of_now(f"rows that the {side.name} input has") if side.changes else grows_with("the rows")
            rows, *index = side.tables
            yield Kept(rows.name, f"the rows of the {side.name} input, by key", limit)
            for spec in index:
                yield Kept(spec.name, "the same rows by all their columns, so that a row that goes is found", limit)
    counted = [operator.sides[number] for number in operator.counts.numbers]
    for spec in operator.counts.specs:
        whose = f"the {counted[0].name} input" if len(counted) == 1 else "each input"
        limit = NUMBER_OF_KEYS
        if all(side.changes for side in counted):
            limit = of_now(f"keys that {whose.replace('each', 'either')} has")
        yield Kept(spec.name, f"how many rows {whose} has of each key", limit)
    for side in operator.sides:
        yield Kept(side.arrivals.name, _arrivals_text(side), ONE_EPOCH)


def of_interval_join(operator: IntervalJoin) -> Iterator[Kept]:
    """The tables of a join within an interval of event time."""
    how, interval = operator.how, operator.interval
    for number, kept in enumerate(operator.states):
        side = kept.side
        limit = behind(interval.upper_us if number == LEFT else -interval.lower_us)
        rows, unmatched = f"the rows of the {side.name} input", " that have no match so far"
        # An anti join emits rows from the table of unmatched ones; the right of a semi join is never emitted.
        which = "key and event time of " if how is JoinType.ANTI or (number == RIGHT and not how.gives_pairs) else ""
        by_key = f"{which}{rows}{unmatched if how.ends_with_a_match(number) else ''}, by key"
        yield Kept(arrivals(side), _arrivals_text(side), ONE_EPOCH)
        yield Kept(side.name, by_key, limit)
        for spec in kept.specs[2:]:
            yield Kept(spec.name, f"{rows}{unmatched}, by event time", limit)


def of_window_join(operator: WindowedJoin) -> Iterator[Kept]:
    """The tables of a join within windows, or of rows with one event time."""
    for kept in operator.states:
        rows, *timeless = kept.specs
        what = f"the rows of the {kept.side.name} input"
        if operator.window is None:
            yield Kept(rows.name, what, behind(0))
        else:
            each = ", once for each window that they are in" if operator.window.windows_of_a_row > 1 else ""
            yield Kept(rows.name, f"{what} in open windows{each}", OPEN_WINDOWS)
        for spec in timeless:
            yield Kept(spec.name, f"{what} that came without an event time", ONE_EPOCH)


def _arrivals_text(side: JoinSide) -> str:
    return f"the rows of the {side.name} input that came and went"
