import dagster as dg
import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.integration.step.turns import _starts_children, mode_of_run
from dagster_ckpt.runtime.run_mode import Mode

NOW, CONTINUOUS = Mode.AVAILABLE_NOW, Mode.CONTINUOUS


@pytest.mark.parametrize(
    ("asked", "own", "streams", "mode"),
    [
        (None, NOW, ["a"], NOW),
        (None, CONTINUOUS, ["a"], CONTINUOUS),
        (NOW, CONTINUOUS, ["a"], NOW),
        (CONTINUOUS, NOW, ["a"], CONTINUOUS),
        (None, CONTINUOUS, ["a", "b"], NOW),
        (NOW, CONTINUOUS, ["a", "b"], NOW),
    ],
)
def test_a_stream_alone_works_as_asked_and_several_work_through_what_is_there(
    asked: Mode | None, own: Mode, streams: list[str], mode: Mode
) -> None:
    assert mode_of_run(asked, own, streams) is mode


def test_a_continuous_stream_asked_for_beside_another_is_refused() -> None:
    with pytest.raises(InvalidPipelineError, match=r"mode=continuous, streams=a, b"):
        mode_of_run(CONTINUOUS, CONTINUOUS, ["b", "a"])


@pytest.mark.parametrize(
    ("executor", "config", "children"),
    [
        (dg.multi_or_in_process_executor.name, {}, True),
        (
            dg.multi_or_in_process_executor.name,
            {"execution": {"config": {"multiprocess": {"max_concurrent": 2}}}},
            True,
        ),
        (dg.multi_or_in_process_executor.name, {"execution": {"config": {"in_process": {}}}}, False),
        (dg.multiprocess_executor.name, {}, True),
        (dg.in_process_executor.name, {}, False),
        ("execute_in_process_executor", {}, False),
    ],
)
def test_only_the_multiprocess_executor_gives_a_step_a_process_of_its_own(
    executor: str, config: dict[str, object], children: bool
) -> None:
    assert _starts_children(executor, config) is children
