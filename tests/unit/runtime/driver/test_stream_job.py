from dataclasses import replace

import pytest

from dagster_ckpt.runtime.driver.stream_job import JobOptions

OPTIONS = JobOptions(backoff_ms=1_000, backoff_ms_max=30_000)


def test_each_failure_in_a_row_waits_twice_as_long_up_to_a_bound() -> None:
    assert [OPTIONS.pause_ms(failures, 1.0) for failures in range(1, 8)] == [
        1_000,
        2_000,
        4_000,
        8_000,
        16_000,
        30_000,
        30_000,
    ]
    assert OPTIONS.pause_ms(1_000_000, 1.0) == 30_000


@pytest.mark.parametrize("failures", [1, 3, 9])
def test_half_of_the_pause_is_random(failures: int) -> None:
    longest_ms = OPTIONS.pause_ms(failures, 1.0)
    assert OPTIONS.pause_ms(failures, 0.0) == longest_ms / 2
    assert OPTIONS.pause_ms(failures, 0.5) == longest_ms * 3 / 4


def test_no_back_off_is_no_pause() -> None:
    assert replace(OPTIONS, backoff_ms=0).pause_ms(5, 1.0) == 0
