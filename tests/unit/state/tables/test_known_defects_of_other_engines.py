"""Page 4 of the design lists what went wrong in the system this learns from. Its numbers are in the names."""

from dataclasses import replace

import pytest

from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.ids import Epoch, Version
from tests.unit.state.epochs import EAGER, NEVER, Epochs, engine, in_memory


@pytest.fixture(params=[EAGER, NEVER], ids=["merged every epoch", "never merged"])
def epochs(request: pytest.FixtureRequest) -> Epochs:
    return in_memory(request.node.name, request.param)


def test_1_state_is_found_after_a_restart_without_a_listing(epochs: Epochs) -> None:
    state = epochs.begin()
    epochs.put(state, a=1, b=2)
    epochs.commit(state)
    epochs.engine = engine()
    assert epochs.get(epochs.begin(), "a", "b", "c") == {"a": 1, "b": 2}
    assert epochs.live() == {"a": 1, "b": 2}


def test_2_a_put_after_a_delete_of_the_same_epoch_is_seen(epochs: Epochs) -> None:
    state = epochs.begin()
    epochs.put(state, a=1)
    epochs.commit(state)
    state = epochs.begin()
    epochs.delete(state, "a")
    epochs.put(state, a=2)
    assert epochs.get(state, "a") == {"a": 2}
    epochs.commit(state)
    assert epochs.live() == {"a": 2}


def test_2_a_delete_after_a_put_of_the_same_epoch_is_seen(epochs: Epochs) -> None:
    state = epochs.begin()
    epochs.put(state, a=1)
    epochs.commit(state)
    state = epochs.begin()
    epochs.put(state, a=2, b=3)
    epochs.delete(state, "a", "b")
    assert epochs.get(state, "a", "b") == {}
    epochs.commit(state)
    assert epochs.live() == {}


def test_3_a_later_tombstone_takes_the_place_of_an_earlier_one(epochs: Epochs) -> None:
    for step in range(3):
        state = epochs.begin()
        epochs.put(state, a=step, b=step)
        epochs.commit(state)
        state = epochs.begin()
        epochs.delete(state, "a")
        epochs.commit(state)
        assert epochs.live() == {"b": step}
        assert epochs.get(epochs.begin(), "a", "b") == {"b": step}


def test_8_a_merge_harms_no_epoch_that_came_before_it(epochs: Epochs) -> None:
    expected = []
    for step in range(8):
        state = epochs.begin()
        epochs.put(state, **{f"k{step}": step, "every": step})
        if step % 3 == 2:
            epochs.delete(state, f"k{step - 1}", "every")
        epochs.commit(state)
        expected.append(epochs.live())
    assert [epochs.live(manifest) for manifest in epochs.manifests[1:]] == expected
    assert expected[2] == {"k0": 0, "k2": 2}


def test_8_a_tombstone_stays_as_long_as_an_older_run_may_hold_its_key() -> None:
    tiers = replace(NEVER, tier_runs=2, small_rows=40)
    epochs = in_memory("tombstone", tiers)
    state = epochs.begin()
    epochs.put(state, **{f"k{number}": number for number in range(50)})
    epochs.commit(state)
    state = epochs.begin()
    epochs.delete(state, "k7")
    epochs.commit(state)
    state = epochs.begin()
    epochs.put(state, new=1)
    epochs.commit(state)
    epochs.commit(epochs.begin())
    (small, large) = epochs.runs_of()
    assert (small.rows, small.tombstones, large.rows) == (2, 1, 50)
    assert "k7" not in epochs.live()
    assert len(epochs.live()) == 50


def test_8_tombstones_go_when_nothing_older_is_left_and_runs_with_them() -> None:
    epochs = in_memory("bottom", EAGER)
    state = epochs.begin()
    epochs.put(state, a=1, b=2)
    epochs.commit(state)
    state = epochs.begin()
    epochs.delete(state, "a")
    epochs.commit(state)
    epochs.commit(epochs.begin())
    (run,) = epochs.runs_of()
    assert (run.rows, run.tombstones) == (1, 0)
    state = epochs.begin()
    epochs.delete(state, "b")
    epochs.commit(state)
    epochs.commit(epochs.begin())
    assert epochs.runs_of() == ()
    assert epochs.newest.statistics.state_rows == 0


def test_9_runs_are_merged_without_being_asked() -> None:
    epochs = in_memory("merged")
    for step in range(40):
        state = epochs.begin()
        epochs.put(state, **{f"k{step}": step})
        epochs.commit(state)
    assert len(epochs.runs_of()) < 16
    assert len(epochs.live()) == 40


def test_11_an_epoch_of_64_bits_is_not_cut(epochs: Epochs) -> None:
    far = 2**40
    epochs.manifests = [replace(epochs.newest, version=Version(far), epoch=Epoch(far))]
    state = epochs.begin()
    epochs.put(state, a=1)
    epochs.commit(state)
    (run,) = epochs.runs_of()
    assert run.epoch == far + 1
    assert str(far + 1) in run.path
    assert epochs.live() == {"a": 1}


def test_a_missing_file_is_named(epochs: Epochs) -> None:
    state = epochs.begin()
    epochs.put(state, a=1)
    epochs.commit(state)
    (run,) = epochs.runs_of()
    epochs.store.delete(run.path)
    with pytest.raises(CorruptStateError, match=f"missing.*file={run.path}"):
        epochs.live()
    with pytest.raises(CorruptStateError, match=f"missing.*file={run.path}"):
        epochs.get(epochs.begin(), "a")
