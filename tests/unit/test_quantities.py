from datetime import timedelta

import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.quantities import milliseconds, size_bytes


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("500ms", 500),
        ("5s", 5_000),
        ("1.5 seconds", 1_500),
        ("10 minutes", 600_000),
        ("5min", 300_000),
        ("12 hours", 43_200_000),
        ("1 Day", 86_400_000),
        (timedelta(seconds=2), 2_000),
    ],
)
def test_a_duration_is_read_as_people_write_it(written: str | timedelta, meant: int) -> None:
    assert milliseconds(written, "checkpoint_interval") == meant


@pytest.mark.parametrize(
    "written", ["", "5", "-5s", "0s", "soon", "5 parsecs", "5 s s", timedelta(0), timedelta(-1), 5, "9" * 400 + "s"]
)
def test_what_is_no_duration_above_zero_is_refused_by_the_name_of_its_option(written: object) -> None:
    with pytest.raises(InvalidPipelineError, match=r"^checkpoint_interval must be .* checkpoint_interval="):
        milliseconds(written, "checkpoint_interval")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("written", "meant"), [(4096, 4096), ("512", 512), ("256 MiB", 2**28), ("1GB", 10**9), ("1.5 kib", 1536)]
)
def test_a_size_is_read_as_people_write_it(written: str | int, meant: int) -> None:
    assert size_bytes(written, "memory_limit") == meant


@pytest.mark.parametrize("written", ["", "-1 MiB", 0, -5, "much", "5 s", "0", True, 10**30, "9" * 400 + " TiB"])
def test_what_is_no_size_above_zero_is_refused_by_the_name_of_its_option(written: str | int) -> None:
    with pytest.raises(InvalidPipelineError, match=r"^memory_limit must be .* memory_limit="):
        size_bytes(written, "memory_limit")


def test_what_may_be_nothing_may_be_0() -> None:
    assert size_bytes("0", "cache_limit", least=0) == size_bytes("0 GiB", "cache_limit", least=0) == 0


def test_a_size_below_the_least_is_refused() -> None:
    assert size_bytes("1 MiB", "memory_limit", least=2**20) == 2**20
    with pytest.raises(InvalidPipelineError, match=r"at least 1048576\. memory_limit='1023 KiB'"):
        size_bytes("1023 KiB", "memory_limit", least=2**20)
