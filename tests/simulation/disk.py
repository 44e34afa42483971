"""A local disk whose host loses its power: what was not fsynced is lost, wholly or in part.

The model is the strictest that POSIX allows. The bytes of a file are durable as they were when the file was fsynced;
the entries of a folder as they were when the folder was. All else may be there after the crash or not, each by itself.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from unittest.mock import patch

Entry = tuple[int, bool]
"""An inode, and whether it is a folder's."""


@dataclass
class Disk:
    """The folder `root`, itself durable. `before_fsync` is called right before anything more becomes durable.

    `ignored` says of which fsyncs the disk does nothing: what a store would be that left them out.
    """

    root: Path
    before_fsync: Callable[[], None] = lambda: None
    ignored: Callable[[os.stat_result], bool] = lambda _: False
    fsyncs: int = 0
    _files: dict[int, bytes] = field(default_factory=dict)
    _folders: dict[int, dict[str, Entry]] = field(default_factory=dict)
    _held: list[int] = field(default_factory=list)

    @contextmanager
    def plugged_in(self) -> Iterator[None]:
        """While it lasts this process's fsyncs are the disk's."""
        fsync = os.fsync
        try:
            with patch.object(os, "fsync", lambda descriptor: self._fsync(descriptor, fsync)):
                yield
        finally:
            for descriptor in self._held:
                os.close(descriptor)

    def crash(self, into: Path, chance: Random | None = None) -> None:
        """Lay out what is left of it. `chance` decides of each thing that is not durable; None: all of it is lost."""
        self._lay_out(self.root.stat().st_ino, self.root, into, chance)

    def _fsync(self, descriptor: int, fsync: Callable[[int], None]) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if not path.is_relative_to(self.root):
            fsync(descriptor)
            return
        self.before_fsync()
        status = os.fstat(descriptor)
        if self.ignored(status):
            return
        self.fsyncs += 1
        self._held.append(os.dup(descriptor))  # as long as it is open its inode is no other's
        if stat.S_ISDIR(status.st_mode):
            self._folders[status.st_ino] = _entries(path)
        else:
            self._files[status.st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()

    def _lay_out(self, inode: int, live: Path | None, into: Path, chance: Random | None) -> None:
        into.mkdir(exist_ok=True)
        durable, there = self._folders.get(inode, {}), {} if live is None else _entries(live)
        for name in sorted({*durable, *there}):
            entry = durable.get(name)
            if chance is not None and there.get(name) != entry and chance.random() < 0.5:
                entry = there.get(name)
            if entry is None:
                continue
            (its, is_folder), path = entry, None
            if live is not None and there.get(name) == entry:
                path = live / name
            if is_folder:
                self._lay_out(its, path, into / name, chance)
            else:
                (into / name).write_bytes(self._bytes(its, path, chance))

    def _bytes(self, inode: int, live: Path | None, chance: Random | None) -> bytes:
        if inode in self._files:
            return self._files[inode]
        if chance is None or live is None:
            return b""
        data = live.read_bytes()
        return data[: chance.randrange(len(data) + 1)]


def _entries(folder: Path) -> dict[str, Entry]:
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        return {entry.name: (entry.inode(), entry.is_dir(follow_symlinks=False)) for entry in entries}
    return {}
