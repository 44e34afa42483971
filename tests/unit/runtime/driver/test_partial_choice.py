"""When Spark aggregates rows before it shuffles them: by what the last epochs had, and not by each of them."""

from dataclasses import replace

import pytest

from dagster_ckpt.protocol.manifest.manifest import Statistics
from dagster_ckpt.runtime.driver.partial_choice import PartialChoice, Touch
from tests.worlds.manifests import a_manifest

MANY, FEW, BETWEEN, SMALL = Touch(1_000_000, 10_000), Touch(1_000_000, 900_000), Touch(1_000_000, 250_000), Touch(99, 1)


def choice(touch: Touch) -> PartialChoice:
    counted = Statistics(rows_in=touch.rows, rows_out=2 * touch.keys)
    return PartialChoice(replace(a_manifest(), statistics=counted))


@pytest.mark.parametrize(("touch", "says"), [(MANY, True), (FEW, False), (BETWEEN, None), (SMALL, False)])
def test_an_epoch_says_what_would_have_been_faster(touch: Touch, says: bool | None) -> None:
    assert touch.says is says


def test_a_stream_begins_with_what_its_last_epoch_says() -> None:
    assert choice(MANY).partial
    assert not choice(FEW).partial
    assert not choice(Touch(0, 0)).partial


def test_it_changes_only_where_several_epochs_agree() -> None:
    chosen = choice(FEW)
    for touch in (MANY, FEW, MANY, BETWEEN, MANY, Touch(0, 0), SMALL, MANY):
        chosen.saw(touch)
        assert not chosen.changes
    chosen.saw(MANY)
    assert chosen.changes
    chosen.change()
    assert (chosen.partial, chosen.changes) == (True, False)


def test_a_stream_that_changes_often_changes_ever_more_slowly() -> None:
    chosen, epochs = choice(FEW), list[int]()
    for _ in range(8):
        count = 0
        while not chosen.changes:
            chosen.saw(FEW if chosen.partial else MANY)
            count += 1
        epochs.append(count)
        chosen.change()
    assert epochs == [2, 4, 8, 16, 32, 64, 64, 64]
