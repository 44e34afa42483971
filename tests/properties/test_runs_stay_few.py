"""Epochs of any sizes, over and over: merging keeps up, whatever it takes for small runs and for large ones."""

from hypothesis import example, given
from hypothesis import strategies as st

from dagster_ckpt.lsm.compaction.compaction import CompactionLimits
from tests.worlds.examples import examples
from tests.worlds.merge_costs import Costs

LIMITS = CompactionLimits(depth_max=8, small_rows=100, slice_rows_min=400, search_rows=50, tier_runs=6)
SIZES = st.sampled_from([4, 10, 40, 80, 99, 100, 101, 150, 300, 1000, 5000]) | st.integers(4, 3000)


@given(
    keys=st.sampled_from([None, 4, 100, 2000, 100_000]),
    pattern=st.lists(SIZES, min_size=1, max_size=7),
    flushes=st.sampled_from([1, 1, 1, 2, 4]),
    shards=st.sampled_from([1, 4]),
)
@example(keys=None, pattern=[4, 10], flushes=4, shards=1)  # parts of bursts piled up
@examples(25, 10)
def test_whatever_the_epochs_are_like(keys: int | None, pattern: list[int], flushes: int, shards: int) -> None:
    costs = Costs(keys, rows=keys or 0, shards=shards, limits=LIMITS)
    for number in range(120):
        costs.epoch(min(pattern[number % len(pattern)], keys or 5000), flushes)
    assert max(costs.epochs.mean_depth) <= 30
    assert max(costs.epochs.deepest) <= 80
