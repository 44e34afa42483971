"""Real processes on one folder: they read, fill, evict and are killed, and no reader ever sees a wrong byte."""

import multiprocessing
import os
import random
import signal
import time
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

from dagster_ckpt.lsm.file.run_file import encode
from dagster_ckpt.lsm.runs.run import Run
from dagster_ckpt.protocol.manifest.manifest import RunRef
from dagster_ckpt.storage.stores.local import LocalObjectStore
from tests.worlds.far_runs import SCHEMA, reader, same, some_run, stored
from tests.worlds.far_store import FarStore

FORK = multiprocessing.get_context("fork")
RUNS = [some_run(20_000, seed) for seed in range(6)]
PROCESSES = 2
ROUNDS = 30


def far_store(folder: Path) -> FarStore:
    return FarStore(LocalObjectStore(folder / "store", lambda: f"{os.getpid()}-{time.monotonic_ns()}"))


def on_disk(folder: Path) -> int:
    total = 0
    for file in (folder / "cache").glob("*.run"):
        with suppress(FileNotFoundError):
            total += file.stat().st_blocks * 512
    return total


def begun(target: object, *args: object) -> BaseProcess:
    child = FORK.Process(target=target, args=args)  # type: ignore[arg-type]
    child.start()
    return child


def read_often(folder: Path, refs: list[RunRef], limit: int, seed: int) -> None:
    store, chance = far_store(folder), random.Random(seed)
    for _ in range(ROUNDS):
        process = reader(folder / "cache", limit)
        for _ in range(4):
            number = chance.randrange(len(RUNS))
            assert same(process.runs.run(store, refs[number], SCHEMA), RUNS[number])


def write_for_ever(folder: Path, ref: RunRef, run: Run) -> None:
    store, data = far_store(folder), encode(run).data
    while True:
        for file in (folder / "cache").glob("*.run"):
            file.unlink()
        reader(folder / "cache").runs.keep(store, ref.path, ref.checksum, data)


def test_processes_that_fill_and_evict_at_once_see_right_bytes_alone(tmp_path: Path) -> None:
    refs = [stored(far_store(tmp_path), f"state/{number}.arrow", run) for number, run in enumerate(RUNS)]
    limit = 3 * refs[0].bytes
    children = [begun(read_often, tmp_path, refs, limit, seed) for seed in range(PROCESSES)]
    greatest = 0
    while any(child.is_alive() for child in children):
        greatest = max(greatest, on_disk(tmp_path))
        time.sleep(0.005)
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * PROCESSES
    # One block more for each process that was about to write what it had counted when another one looked.
    assert greatest <= limit + PROCESSES * refs[0].bytes
    reader(tmp_path / "cache", limit).cache.room_for(0)
    assert 0 < on_disk(tmp_path) <= limit


def test_a_process_killed_while_it_writes_leaves_nothing_that_is_believed(tmp_path: Path) -> None:
    run = some_run(200_000)
    ref = stored(far_store(tmp_path), "state/some.arrow", run)
    whole = ref.bytes - 4096
    parts, end = 0, time.monotonic() + 120
    while parts < 3:
        assert time.monotonic() < end, "none was killed in the middle of a file"
        child = begun(write_for_ever, tmp_path, ref, run)
        while not 0 < on_disk(tmp_path) < whole and time.monotonic() < end:
            pass  # the file is there in part for a moment only
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        parts += 0 < on_disk(tmp_path) < whole
        store = far_store(tmp_path)
        assert same(reader(tmp_path / "cache").runs.run(store, ref, SCHEMA), run)
        assert on_disk(tmp_path) >= whole
        store.forget()
        assert same(reader(tmp_path / "cache").runs.run(store, ref, SCHEMA), run)
        assert store.requests == []
