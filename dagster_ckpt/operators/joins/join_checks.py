"""What a join may be: each error names the columns, the reason, and what to do."""

from collections.abc import Iterable, Sequence

import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.joins.join_types import LEFT, RIGHT, JoinType
from dagster_ckpt.operators.joins.sides import JoinSide, Side
from dagster_ckpt.operators.shared.checks import pipeline_checks, window_checks
from dagster_ckpt.operators.shared.event_time_range import LENGTH_US_MAX
from dagster_ckpt.operators.shared.late_rows import check_late
from dagster_ckpt.operators.shared.window_kinds import FixedWindow, Session
from dagster_ckpt.protocol.manifest.manifest import InputSpec

_INPUTS = ("left", "right")


def checked_sides(
    inputs: Sequence[InputSpec],
    keys: Sequence[tuple[str, ...]],
    event_times: Sequence[str | None],
    how: str,
    late: str,
) -> tuple[JoinType, tuple[Side, Side]]:
    """The join type and its two sides, if they are compatible."""
    assert len(inputs) == len(keys) == len(event_times) == len(_INPUTS), "a join has two inputs"
    type_ = join_type(how)
    times = [_time(*each) for each in zip(_INPUTS, event_times, inputs, strict=True)]
    check_keys(inputs, keys)
    _check_times(inputs, times)
    for source in inputs:
        check_late(late, source.schema)
    left, right = (
        Side.of(number, source, key, time, type_)
        for number, source, key, time in zip((LEFT, RIGHT), inputs, keys, times, strict=True)
    )
    return type_, (left, right)


def join_type(how: str) -> JoinType:
    """The join type of this name."""
    try:
        return JoinType(how)
    except ValueError:
        types = ", ".join(JoinType)
        raise InvalidPipelineError(f"there is no such join type: choose one of {types}. how={how!r}") from None


def check_bounds(lower_us: int, upper_us: int) -> None:
    """The lower bound is not above the upper one, and both are in range."""
    if lower_us > upper_us:
        raise InvalidPipelineError(
            f"no row can match, because the lower bound is above the upper one: exchange them. "
            f"lower={lower_us} us, upper={upper_us} us"
        )
    for name, bound_us in (("lower", lower_us), ("upper", upper_us)):
        if abs(bound_us) > LENGTH_US_MAX:
            raise InvalidPipelineError(
                f"a bound is at most 36,000 years away from 0: choose a nearer one. {name}={bound_us} us"
            )


def check_expire_after(expire_after_us: int) -> None:
    """The time is not negative."""
    if expire_after_us < 0:
        raise InvalidPipelineError(
            f"rows cannot expire before they arrive: choose a time of 0 or more. expire_after={expire_after_us} us"
        )


def window_of_join(window: object) -> FixedWindow:
    """The window, if both inputs share its windows."""
    if isinstance(window, Session):
        raise InvalidPipelineError(
            "each input has separate sessions, so both have none in common: join by tumbling or "
            f"hopping windows, or use interval_join. window={window!r}"
        )
    return window_checks.fixed_window(window)


def check_names(sides: tuple[JoinSide, JoinSide], how: JoinType, added: Iterable[str], state: Iterable[str]) -> None:
    """The names of the output columns are distinct, and none is one of the state's.

    `added` are columns that the join adds to the output, `state` those that it adds to its state.
    """
    left, right = sides
    for side in sides:
        for name in set(side.schema.names).intersection(state):
            raise InvalidPipelineError(
                f"the join's state has a column of this name: rename yours. column={name}, input={side.name}"
            )
    shown = {name.casefold(): "left" for name in left.schema.names}
    shared = {mine for mine, theirs in zip(left.keys, right.keys, strict=True) if mine == theirs}
    for name in right.schema.names if how.gives_pairs else []:
        if name.casefold() in shown and name not in shared:
            raise InvalidPipelineError(
                f"both inputs have a column of this name, which is not one and the same key of both: rename one of "
                f"them before the join. column={name}"
            )
        shown.setdefault(name.casefold(), "right")
    for name in added:
        if name in shown:
            raise InvalidPipelineError(
                f"a window join adds a column of this name itself: rename yours. column={name}, input={shown[name]}"
            )


def check_output(output: pa.Schema) -> None:
    """The output can be written to the change log."""
    pipeline_checks.check_columns(output)
    pipeline_checks.check_storable(output)


def _time(input_: str, event_time: str | None, source: InputSpec) -> str:
    if event_time is None:
        raise InvalidPipelineError(
            f"a join needs event time on both sides: call with_watermark(column, delay) before it. input={input_}"
        )
    pipeline_checks.check_event_time(event_time, source.schema)
    return event_time


def check_keys(inputs: Sequence[InputSpec], keys: Sequence[tuple[str, ...]]) -> None:
    """Both inputs have keys, equally many and of equal types."""
    left, right = keys
    for input_, key in zip(_INPUTS, keys, strict=True):
        if not key:
            raise InvalidPipelineError(
                f"a join needs key columns on both sides: call key_by(column, ...) before it. input={input_}, keys=()"
            )
    if len(left) != len(right):
        raise InvalidPipelineError(
            "the keys are compared in pairs: give key_by as many columns on the left as on the right. "
            f"left={', '.join(map(str, left))}; right={', '.join(map(str, right))}"
        )
    for key, source in zip(keys, inputs, strict=True):
        pipeline_checks.check_keys(key, source.schema)
    for mine, theirs in zip(left, right, strict=True):
        _check_types("keys", (mine, theirs), inputs)


def _check_times(inputs: Sequence[InputSpec], times: Sequence[str]) -> None:
    _check_types("event times", times, inputs)


def _check_types(what: str, names: Sequence[str], inputs: Sequence[InputSpec]) -> None:
    types = [source.schema.field(name).type for name, source in zip(names, inputs, strict=True)]
    if types[LEFT] != types[RIGHT]:
        raise InvalidPipelineError(
            f"{what} of different types are never compared: cast one of them. left={names[LEFT]} ({types[LEFT]}), "
            f"right={names[RIGHT]} ({types[RIGHT]})"
        )
