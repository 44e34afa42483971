"""What is computed of all values of a group, against its definition."""

import numpy as np
import pyarrow as pa
import pytest

from dagster_ckpt.operators.aggregates.bags import bag_functions
from dagster_ckpt.operators.aggregates.bags.bags import Bags

GROUPS = [[1.0, 1.0, 2.5, -3.0], [4.0, 4.0], [], [1e9, 1e9 + 1, 1e9 + 2, 1e9 + 2, 1e9 + 2], [0.5, float("nan")]]


def test_moments_are_those_of_their_definition() -> None:
    numbers = np.repeat(np.arange(len(GROUPS)), [len(each) for each in GROUPS])
    values = pa.array([value for each in GROUPS for value in each])
    bags = Bags.of(len(GROUPS), numbers, [values], np.ones(len(values), dtype=np.int64))
    lean, tails = bag_functions.skewness(bags).to_pylist(), bag_functions.kurtosis(bags).to_pylist()
    for at, each in enumerate(map(np.array, GROUPS)):
        if len(set(each)) < 2:
            assert (lean[at], tails[at]) == (None, None)
            continue
        apart = each - each.mean()
        second = (apart**2).mean()
        assert lean[at] == pytest.approx((apart**3).mean() / second**1.5, nan_ok=True)
        assert tails[at] == pytest.approx((apart**4).mean() / second**2 - 3, nan_ok=True)


def test_groups_without_values_have_none() -> None:
    bags = Bags.of(2, np.zeros(0, dtype=np.int64), [pa.array([], pa.float64())], np.zeros(0, dtype=np.int64))
    for function in (bag_functions.skewness, bag_functions.kurtosis, bag_functions.mode):
        assert function(bags).to_pylist() == [None, None]
    assert bag_functions.percentile_disc(0.5)(bags).to_pylist() == [None, None]
    assert bag_functions.values(distinct=True)(bags).to_pylist() == [[], []]
