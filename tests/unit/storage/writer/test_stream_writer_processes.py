"""Real processes on a real folder: they take the stream from each other and are killed, and one history comes of it."""

import multiprocessing
import os
import random
import signal
import time
from itertools import pairwise
from pathlib import Path

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import FencedError
from dagster_ckpt.ids import Version
from dagster_ckpt.protocol.manifest.manifest import ManifestKind
from dagster_ckpt.protocol.transitions.manifest_rules import check_successor
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.stores.address import open_store
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.writer.opening import Takeover
from dagster_ckpt.storage.writer.stream_writer import open_stream
from tests.worlds.streams import a_holder, an_edit, an_opening

FORK = multiprocessing.get_context("fork")
WRITERS = 3
SECONDS = 1.2


def _stream(folder: Path) -> ObjectStore:
    return folder_store(open_store(f"file://{folder}"), "a.stream")


def _write(folder: Path, name: str, told: Path) -> None:
    """Take the stream again and again; write down each epoch after it was reported as committed."""
    store, clock = _stream(folder), SystemClock()
    end_ms = clock.monotonic_ms() + 30_000
    life = 0
    with told.open("a") as file:
        while clock.monotonic_ms() < end_ms:
            life += 1
            opening = an_opening(f"{name}-{life}", take_over=Takeover.ALWAYS, holder=a_holder(name))
            writer = open_stream(store, opening, clock)
            try:
                for _ in range(random.randrange(1, 30)):
                    manifest = writer.commit(an_edit(writer.manifest))
                    file.write(f"{manifest.version} {manifest.nonce}\n")
                    file.flush()
            except FencedError:
                pass
            finally:
                writer.close("this life is over")


def test_processes_that_fence_each_other_and_are_killed_leave_one_history(tmp_path: Path) -> None:
    names = iter(f"writer-{number}" for number in range(100))

    def started() -> multiprocessing.process.BaseProcess:
        name = next(names)
        child = FORK.Process(target=_write, args=(tmp_path / "store", name, tmp_path / name))
        child.start()
        return child

    children = [started() for _ in range(WRITERS)]
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        time.sleep(0.15)
        victim = children.pop(random.randrange(WRITERS))
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGKILL)
        victim.join()
        children.append(started())
    for child in children:
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join()

    chain = ManifestChain(_stream(tmp_path / "store"), SystemClock())
    newest = chain.newest()
    assert newest is not None
    history = [chain.read(Version(version)) for version in range(1, newest.version + 1)]
    check_successor(None, history[0])
    for before, after in pairwise(history):
        check_successor(before, after)
    truth = {manifest.version: manifest.nonce for manifest in history}
    heard = [line.split() for told in tmp_path.glob("writer-*") for line in told.read_text().splitlines() if line]
    assert all(truth[Version(int(version))] == nonce for version, nonce in heard), "no epoch that was reported is lost"
    assert len(heard) > 20
    assert len({manifest.term for manifest in history}) > 3
    assert sum(manifest.kind is ManifestKind.EPOCH for manifest in history) >= len(heard)
