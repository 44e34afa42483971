"""When Spark aggregates rows before it shuffles them: by what the last epoch had."""

from dataclasses import replace

import pytest

from dagster_ckpt.protocol.manifest.manifest import Statistics
from dagster_ckpt.runtime.micro_batch.epoch_plans import Shuffled, Touch
from tests.worlds.manifests import a_manifest

ROWS, GROUPS, FEW_GROUPS = Shuffled


@pytest.mark.parametrize(
    ("rows", "keys", "best"),
    [
        (1_000, 1_000, FEW_GROUPS),
        (20_000, 19_000, ROWS),
        (100_000, 38_000, FEW_GROUPS),
        (200_000, 90_000, ROWS),
        (1_000_000, 100_000, FEW_GROUPS),
        (1_000_000, 200_000, ROWS),
        (1_000_000, 900_000, ROWS),
        (3_000_000, 200_000, GROUPS),
    ],
)
def test_an_epoch_says_what_would_have_been_fastest(rows: int, keys: int, best: Shuffled) -> None:
    updated = replace(a_manifest(), statistics=Statistics(rows_in=rows, rows_out=2 * keys))
    assert Touch.of(updated) == Touch(rows, keys)
    assert Touch(rows, keys).best is best
