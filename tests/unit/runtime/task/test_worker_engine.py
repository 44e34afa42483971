"""Streams with different options may alternate in one worker process, a task of each at a time."""

import gc
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from weakref import ref

import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.runtime.task import worker_engine
from dagster_ckpt.runtime.task.worker_engine import CacheOptions, EngineOptions, exempt_from_gc, process_engine
from dagster_ckpt.storage.stores.local import LocalObjectStore
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from dagster_ckpt.storage.stores.object_store import ObjectStore
from tests.worlds.far_store import FarStore

FAR = FarStore(MemoryObjectStore("open runs outlive other options"))
SMALL, LARGE = (EngineOptions(memory_limit_bytes=mebibytes << 20) for mebibytes in (64, 512))


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_engine, "_kept", {})


@pytest.fixture
def local(tmp_path: Path) -> ObjectStore:
    return LocalObjectStore(tmp_path, SystemClock().unique)


@pytest.mark.parametrize("is_local", [True, False])
def test_they_are_kept_and_each_stream_has_its_own_limits(local: ObjectStore, is_local: bool) -> None:
    store = local if is_local else FAR
    small, large, again = (process_engine(options, store) for options in (SMALL, LARGE, SMALL))
    assert small.runs is large.runs is again.runs
    assert [each.budget.limit_bytes >> 20 for each in (small, large, again)] == [64, 512, 64]
    assert process_engine(SMALL, store) is again


def test_a_write_may_take_as_long_as_an_epoch_of_its_stream(local: ObjectStore) -> None:
    assert [process_engine(replace(SMALL, timeout_ms=ms), local).io.timeout_ms for ms in (5_000, 7_000)] == [
        5_000,
        7_000,
    ]


def test_local_ones_are_kept_whatever_else_is_worked_meanwhile(local: ObjectStore) -> None:
    first = process_engine(SMALL, local)
    process_engine(LARGE, FAR)
    threads = process_engine(replace(SMALL, io_threads=2, cache=CacheOptions("/elsewhere")), local)
    assert first.runs is threads.runs


def test_remote_runs_are_reopened_for_another_cache(tmp_path: Path) -> None:
    one, other = (process_engine(EngineOptions(cache=CacheOptions(str(tmp_path / name))), FAR) for name in "ab")
    assert one.runs is not other.runs


def test_a_forked_child_gets_a_new_engine(local: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    parents = process_engine(SMALL, local)
    monkeypatch.setattr(os, "getpid", lambda: 7)
    childs = process_engine(SMALL, local)
    assert childs is not parents
    assert childs.runs is not parents.runs


@pytest.fixture
def first_task() -> Iterator[None]:
    gc.unfreeze()
    exempt_from_gc.cache_clear()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("first_task")
def test_what_a_process_has_loaded_is_exempt_from_gc_after_its_first_task() -> None:
    loaded = {"a": ["module"]}
    exempt_from_gc()
    frozen = gc.get_freeze_count()
    assert frozen > 1000
    assert not any(each is loaded for each in gc.get_objects())
    later = {"of": ["the next task"]}
    exempt_from_gc()
    assert gc.get_freeze_count() <= frozen
    assert any(each is later for each in gc.get_objects())


@pytest.mark.usefixtures("first_task")
def test_garbage_is_freed_before_the_rest_is_exempt() -> None:
    garbage = _Cycle()
    freed = ref(garbage)
    del garbage
    gc.disable()
    try:
        exempt_from_gc()
    finally:
        gc.enable()
    assert freed() is None


class _Cycle:
    def __init__(self) -> None:
        self.itself = self
