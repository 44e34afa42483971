"""Merging is work of every epoch; a write stall is only that for which the rows of this one have to wait."""

from dataclasses import dataclass, replace

import numpy as np

from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.state.engine import Engine
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from tests.unit.state.epochs import EAGER, NEVER, Epochs, engine
from tests.worlds.clock import StillClock


@dataclass
class Ticking(StillClock):
    """Time passes at each read of the clock."""

    def __post_init__(self) -> None:
        super().__init__()

    def monotonic_ms(self) -> int:
        self.sleep_ms(1)
        return super().monotonic_ms()


def ticking(engine: Engine) -> Engine:
    return replace(engine, clock=Ticking())


def spread(keys: list[str | None]) -> Hashes:
    return np.array([hash_of(key) for key in keys], dtype=np.uint64)


def hash_of(key: str | None) -> int:
    return int((key or "k0")[1:]) * 0x9E3779B97F4A7C15 % 2**64


def written(epochs: Epochs, number: int) -> int:
    """Commit an epoch of some rows; how long intake waited in it."""
    state = epochs.begin()
    epochs.put(state, **{f"k{number * 10 + each}": each for each in range(10)})
    epochs.commit(state)
    return state.metrics.stall_ms


def test_a_slice_in_each_epoch_is_no_stall() -> None:
    epochs = Epochs(MemoryObjectStore("no stall"), hash_of=spread, engine=ticking(engine(EAGER)))
    assert [written(epochs, number) for number in range(12)] == [0] * 12


def test_working_off_what_is_far_too_much_is_a_stall() -> None:
    epochs = Epochs(MemoryObjectStore("stall"), hash_of=spread, engine=ticking(engine(NEVER)))
    for number in range(30):
        assert written(epochs, number) == 0
    epochs.engine = ticking(engine(EAGER))
    assert written(epochs, 30) > 0


def test_writing_early_is_no_stall_and_merging_what_an_epoch_wrote_is() -> None:
    epochs = Epochs(MemoryObjectStore("own"), engine=ticking(engine(NEVER, memory_bytes=1, levels_max=4)))
    state = epochs.begin()
    stalls = []
    for number in range(4):
        epochs.put(state, **{f"k{number}": number})
        state.relieve()
        stalls.append(state.metrics.stall_ms)
    assert stalls[:3] == [0, 0, 0]
    assert stalls[3] > 0
