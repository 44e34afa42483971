"""When Spark aggregates rows before it shuffles them: by what the last epochs had, and not by each of them."""

from dataclasses import replace

import pytest

from dagster_ckpt.protocol.manifest.manifest import Statistics
from dagster_ckpt.runtime.driver.partial_choice import PartialChoice, Shuffled, Touch
from tests.worlds.manifests import a_manifest

ROWS, GROUPS, FEW_GROUPS = Shuffled
ALL, MANY, FEW, SMALL = Touch(1_000_000, 900_000), Touch(1_000_000, 110_000), Touch(1_000_000, 10_000), Touch(99, 1)


def choice(touch: Touch) -> PartialChoice:
    counted = Statistics(rows_in=touch.rows, rows_out=2 * touch.keys)
    return PartialChoice(replace(a_manifest(), statistics=counted))


@pytest.mark.parametrize(
    ("touch", "now", "best"),
    [
        (ALL, ROWS, ROWS),
        (ALL, FEW_GROUPS, ROWS),
        (MANY, ROWS, GROUPS),
        (MANY, FEW_GROUPS, GROUPS),
        (FEW, ROWS, FEW_GROUPS),
        (FEW, GROUPS, FEW_GROUPS),
        (SMALL, FEW_GROUPS, ROWS),
        (Touch(1_000_000, 250_000), ROWS, ROWS),
        (Touch(1_000_000, 250_000), GROUPS, GROUPS),
        (Touch(1_000_000, 70_000), FEW_GROUPS, FEW_GROUPS),
        (Touch(1_000_000, 70_000), GROUPS, GROUPS),
        (Touch(1_000_000, 70_000), ROWS, GROUPS),
    ],
)
def test_an_epoch_says_what_would_have_been_fastest(touch: Touch, now: Shuffled, best: Shuffled) -> None:
    assert touch.best(now) is best


def test_a_stream_begins_with_what_its_last_epoch_says() -> None:
    assert [choice(touch).now for touch in (FEW, MANY, ALL, Touch(0, 0))] == [FEW_GROUPS, GROUPS, ROWS, ROWS]


def test_it_changes_only_where_several_epochs_agree() -> None:
    chosen = choice(ALL)
    for touch in (FEW, ALL, FEW, MANY, Touch(0, 0), SMALL, FEW):
        chosen.saw(touch)
        assert chosen.next is ROWS
    chosen.saw(FEW)
    assert chosen.next is FEW_GROUPS
    chosen.change()
    assert (chosen.now, chosen.next) == (FEW_GROUPS, FEW_GROUPS)


def test_a_stream_that_changes_often_changes_ever_more_slowly() -> None:
    chosen, epochs = choice(ALL), list[int]()
    for _ in range(8):
        count = 0
        while chosen.next is chosen.now:
            chosen.saw(FEW if chosen.now is ROWS else ALL)
            count += 1
        epochs.append(count)
        chosen.change()
    assert epochs == [2, 4, 8, 16, 32, 64, 64, 64]
