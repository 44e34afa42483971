"""A stream on a local disk whose host may crash before any fsync: what was confirmed is there afterwards, and whole."""

import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.protocol.epochs import retention
from dagster_ckpt.protocol.epochs.lineage import lineage
from dagster_ckpt.protocol.epochs.retention import files_named
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.protocol.object_names import folder_of, parse_manifest_name, parts_of_name
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.operations.collector import Collector
from dagster_ckpt.storage.retention_refs.pins import read_pins, write_pin
from dagster_ckpt.storage.stores import local, probe
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.stores.local import LocalObjectStore
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.writer.opening import Takeover
from dagster_ckpt.storage.writer.stream_writer import StreamWriter, open_stream
from tests.simulation.disk import Disk
from tests.worlds.clock import StillClock
from tests.worlds.streams import an_edit, an_opening

FOLDER = folder_of(parts_of_name("flights/delay_by_carrier"))
AT_ONCE_MS = -1_000
EPOCHS = 12
MIXED = 1


class LostError(AssertionError):
    """A crash has taken what was confirmed, or has left what must never be seen."""


@dataclass
class Host:
    """A writer on a disk, and what it was told. At each crash somebody else opens what is left of the disk."""

    folder: Path
    seed: int
    clock: StillClock = field(default_factory=StillClock)
    files: dict[str, bytes] = field(default_factory=dict)
    confirmed: Manifest | None = None
    pinned: str | None = None
    crashes: int = 0
    disk: Disk = field(init=False)

    def __post_init__(self) -> None:
        (self.folder / "disk").mkdir()
        self.disk = Disk(self.folder / "disk", self.crash)
        self._chance = Random(self.seed)

    def live(self) -> None:
        small = patch.object(retention, "MANIFESTS_KEPT", 3), patch.object(probe, "ROUNDS", 0)
        with self.disk.plugged_in(), small[0], small[1], patch.object(probe, "_proved", set()):
            root = self._root(self.folder / "disk")
            writer = self._opened(root)
            for number in range(EPOCHS):
                if number == 6:
                    writer = self._opened(root)
                self._commit(writer)
                if number == 3:
                    write_pin(self._chain(root), "kept", lineage(writer.manifest)[-1])
                    self.pinned = "kept"
                if number % 5 == 4:
                    Collector(self._chain(root), root, AT_ONCE_MS).collect(writer.term)
            self.crash()

    def crash(self) -> None:
        """Look at what would be left: all that is not durable is lost, or some of it."""
        for chance in (None, *[self._chance] * MIXED):
            self.crashes += 1
            left = self.folder / f"left-{self.crashes}"
            self.disk.crash(left, chance)
            self._judge(self._root(left))
            shutil.rmtree(left)

    def _judge(self, root: ObjectStore) -> None:
        store = folder_store(root, FOLDER)
        try:
            versions = sorted(version for name in store.list("") if (version := parse_manifest_name(name)))
            newest = self._chain(root).newest()
        except CorruptStateError as error:
            raise LostError(f"the newest manifest is damaged: {error}") from error
        if versions != list(range(versions[0], versions[-1] + 1) if versions else []):
            raise LostError(f"the manifests have a gap: {versions}")
        confirmed = 0 if self.confirmed is None else self.confirmed.version
        if (0 if newest is None else newest.version) < confirmed:
            raise LostError(f"version {confirmed} was confirmed, and {newest and newest.version} is the newest")
        if newest is None:
            return
        if newest.version == confirmed and newest != self.confirmed:
            raise LostError(f"version {confirmed} is another's")
        retained = [self._chain(root).read(entry.version) for entry in newest.retained]
        pins = read_pins(self._chain(root))
        if self.pinned is not None and [pin.name for pin in pins] != [self.pinned]:
            raise LostError(f"a confirmed pin is lost: {pins}")
        kept = [pin.manifest for pin in pins if pin.name == self.pinned]
        for name in set().union(*map(files_named, (newest, *retained, *kept))):
            if not store.exists(name) or store.get(name) != self.files[name]:
                raise LostError(f"a file that a manifest names is lost: {name}")

    def _opened(self, root: ObjectStore) -> StreamWriter:
        store = folder_store(root, FOLDER)
        opening = an_opening(f"run-{self.clock.unique()}", retained=3, take_over=Takeover.ALWAYS)
        writer = open_stream(store, opening, self.clock)
        writer.heartbeat.stop()
        self.confirmed = writer.manifest
        return writer

    def _commit(self, writer: StreamWriter) -> None:
        edit, store = an_edit(writer.manifest), writer.store
        for ack in edit.acks:
            for name in (*(run.path for table in ack.tables for run in table.runs), *(c.path for c in ack.changes)):
                if store.put_if_absent(name, name.encode()):
                    self.files[name] = name.encode()
        self.confirmed = writer.commit(edit)

    def _root(self, folder: Path) -> ObjectStore:
        return LocalObjectStore(folder / "made" / "later", self.clock.unique)

    def _chain(self, root: ObjectStore) -> ManifestChain:
        return ManifestChain(folder_store(root, FOLDER), self.clock)


@pytest.mark.parametrize("seed", range(2))
def test_a_host_crash_before_any_fsync_loses_nothing_confirmed(tmp_path: Path, seed: int) -> None:
    host = Host(tmp_path, seed)
    host.live()
    assert host.disk.fsyncs > 200
    assert host.crashes > 2 * 200


def _only_the_folder(store: LocalObjectStore, folder: Path) -> None:
    local._fsync_folder(folder)


def _with_no_fsync(store: LocalObjectStore, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)


def _unlinked(store: LocalObjectStore, name: str) -> None:
    store._path(name).unlink(missing_ok=True)


def _is_file(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode)


def _is_folder(status: os.stat_result) -> bool:
    return stat.S_ISDIR(status.st_mode)


@pytest.mark.parametrize("ignored", [_is_file, _is_folder], ids=["files are not fsynced", "folders are not fsynced"])
def test_a_store_that_leaves_out_an_fsync_is_caught(tmp_path: Path, ignored: Callable[[os.stat_result], bool]) -> None:
    host = Host(tmp_path, 0)
    host.disk.ignored = ignored
    with pytest.raises(LostError):
        host.live()


@pytest.mark.parametrize(
    "mutant",
    [{"_make": _with_no_fsync, "_settle": _only_the_folder}, {"delete": _unlinked}],
    ids=["new folders are not made durable", "a delete is not made durable"],
)
def test_a_store_that_forgets_a_folder_is_caught(tmp_path: Path, mutant: dict[str, Any]) -> None:
    host = Host(tmp_path, 0)
    with patch.multiple(LocalObjectStore, **mutant), pytest.raises(LostError):
        host.live()
