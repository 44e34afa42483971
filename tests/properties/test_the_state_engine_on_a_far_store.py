"""The machine of `test_the_state_engine_is_a_dict` again, where a run comes from far, block by block.

Once without a cache: what was not asked for is rubbish, so whoever uses a byte too early believes that. Once with one
that is far too small: runs go from it at any time, also while they are open.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize

from dagster_ckpt.lsm.compaction.compaction import CompactionLimits
from dagster_ckpt.lsm.file import run_file
from dagster_ckpt.state import engine as state_engine
from dagster_ckpt.state.engine import Engine as StateEngine
from dagster_ckpt.state.engine import OpenRuns
from dagster_ckpt.state.remote import remote_bytes
from dagster_ckpt.state.remote.remote_bytes import PAGE, MemoryPlace
from dagster_ckpt.state.remote.run_cache import RunCache
from tests.properties.test_the_state_engine_is_a_dict import LIMITS, Engine
from tests.worlds.examples import examples

FOLDERS: list[Path] = []
EXAMPLES = count()


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path) -> None:
    """Removed by pytest long after the test: files may still be written when the machine stops."""
    FOLDERS.append(tmp_path)


@pytest.fixture(autouse=True)
def _tiny_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_file, "BLOCK_BYTES", 64)
    monkeypatch.setattr(state_engine, "_WHOLE_BYTES_MAX", 0)


class WithoutACache(Engine):
    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(remote_bytes, "PAGE", 64)
        self.patch.setattr(remote_bytes, "_GAP_BYTES_MAX", 0)
        begin = MemoryPlace.__init__

        def full_of_rubbish(place: MemoryPlace, size: int) -> None:
            begin(place, size)
            place.put(0, b"\xa5" * size)

        self.patch.setattr(MemoryPlace, "__init__", full_of_rubbish)

    def teardown(self) -> None:
        self.patch.undo()


def with_a_cache(without: Callable[[], StateEngine], folder: Path) -> StateEngine:
    return replace(without(), runs=OpenRuns(cache=RunCache(folder, 5 * PAGE)))


class WithASmallCache(Engine):
    """Every engine that the machine begins is a process of its own on one cache, of a few runs."""

    @initialize(
        distinct=st.sampled_from([2, 1000]),
        limits=LIMITS,
        memory_bytes=st.sampled_from([1, 1 << 28]),
        logged=st.sampled_from(["groups", None]),
    )
    def start(self, distinct: int, limits: CompactionLimits, memory_bytes: int, logged: str | None) -> None:
        super().start(distinct, limits, memory_bytes, logged)
        self.new_engine = partial(with_a_cache, self.new_engine, FOLDERS[-1] / f"cache-{next(EXAMPLES)}")
        self.epochs.engine = self.new_engine()
        self._begin([])


SMALL = examples(20, 8, stateful_step_count=30)

TestWithoutACache = WithoutACache.TestCase
TestWithoutACache.settings = SMALL
TestWithASmallCache = WithASmallCache.TestCase
TestWithASmallCache.settings = SMALL
