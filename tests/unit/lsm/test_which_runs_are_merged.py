import pytest

from dagster_ckpt.lsm.compaction import CompactionLimits, Merge, RunSize, choose

LIMITS = CompactionLimits(runs_min=3, ratio=2, bytes_max=1000)


def sizes(*rows: int) -> list[RunSize]:
    return [RunSize(n, n, level=index) for index, n in enumerate(rows)]


@pytest.mark.parametrize(
    ("rows", "merge"),
    [
        ((), None),
        ((1,), None),
        ((1, 1), None),
        ((1, 1, 1), Merge(3, level=3, to_bottom=True)),
        ((1, 1, 1, 7), Merge(3, level=3, to_bottom=False)),
        ((1, 1, 1, 6), Merge(4, level=4, to_bottom=True)),
        ((1, 3, 1, 1), None),
        ((1, 1, 100, 1, 1, 1), None),
        ((300, 300, 300, 300), Merge(3, level=3, to_bottom=False)),
        ((600, 600, 600), None),
        ((2000, 1, 1), None),
    ],
)
def test_the_newest_as_far_down_as_sizes_are_alike(rows: tuple[int, ...], merge: Merge | None) -> None:
    assert choose(sizes(*rows), LIMITS) == merge


def test_runs_stay_few_and_rows_are_rewritten_seldom() -> None:
    """A thousand epochs of new keys: runs and rewrites of a row grow with the logarithm of the state."""
    limits = CompactionLimits(bytes_max=1 << 40)
    runs: list[RunSize] = []
    written = most = 0
    for _ in range(1000):
        runs.insert(0, RunSize(100, 100, 0))
        if merge := choose(runs, limits):
            rows = sum(run.rows for run in runs[: merge.runs])
            runs[: merge.runs] = [RunSize(rows, rows, merge.level)]
            written += rows
        else:
            written += 100
        most = max(most, len(runs))
    assert sum(run.rows for run in runs) == 100_000
    assert most <= 16
    assert written <= 8 * 100_000
