"""Objects as files of a local (or shared POSIX) file system.

An object is written to a hidden temporary file beside its final name, fsynced, and then linked (create) or renamed
(put) to it: a reader sees all of it or nothing, and `link` has exactly one winner. A crash can leave a hidden temporary
file behind; it is never listed, never named again and harms nothing (`discard_leftovers` removes it).

Files and folders get the process's ordinary permissions (umask): the code server, the workers and a colleague's
notebook are often different users of one group, and only the administrator knows. `umask 077` makes a store private.
"""

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from dagster_ckpt.errors import InvalidPipelineError, StoreUnavailableError
from dagster_ckpt.protocol.object_names import is_object_name
from dagster_ckpt.storage.stores.object_store import ObjectMissingError

_ADVICE = {
    errno.ENOSPC: "free some space on the disk, then try again",
    errno.EDQUOT: "the quota is used up; free some space, then try again",
    errno.EACCES: "give this process's user the permission, then try again",
    errno.EROFS: "mount it writable, then try again",
    errno.EIO: "the disk reports an error; check it before you try again",
}
_TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.tmp")
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


class LocalObjectStore:
    """`root` is an absolute folder, made when first written to. `unique` names temporary files."""

    def __init__(self, root: Path, unique: Callable[[], str]) -> None:
        assert root.is_absolute(), f"a relative root would move with the working directory. root={root}"
        self._root = root
        self._unique = unique
        # Folders whose own entry, and all above it up to the root, this process has fsynced.
        self._durable: set[Path] = set()

    @property
    def url(self) -> str:
        return f"file://{self._root}"

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        path = self._path(name)
        with _answering(path), self._write_hidden(path.parent, data) as temporary:
            try:
                os.link(temporary, path)
            except FileExistsError:
                # NFS reports this when the reply to our successful link was lost; then our file has two names.
                if temporary.stat().st_nlink != 2:
                    return False
            except OSError as error:
                if error.errno in _NO_HARD_LINKS:
                    raise InvalidPipelineError(
                        f"this file system has no hard links, so a file cannot be created atomically: "
                        f"keep the checkpoints on another one. folder={path.parent}, reason={error.strerror}"
                    ) from error
                raise
            self._settle(path.parent)
        return True

    def put(self, name: str, data: bytes | memoryview) -> None:
        path = self._path(name)
        with _answering(path), self._write_hidden(path.parent, data) as temporary:
            temporary.replace(path)
            self._settle(path.parent)

    def get(self, name: str) -> bytes:
        path = self._path(name)
        with _answering(path), _present(name):
            return path.read_bytes()

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        assert offset >= 0, offset
        assert length >= 0, length
        path = self._path(name)
        with _answering(path), _present(name), path.open("rb") as file:
            file.seek(offset)
            return file.read(length)

    def exists(self, name: str) -> bool:
        try:
            self.size(name)
        except ObjectMissingError:
            return False
        return True

    def size(self, name: str) -> int:
        path = self._path(name)
        with _answering(path), _present(name):
            if path.is_dir():
                raise IsADirectoryError
            return path.stat().st_size

    def modified_ms(self, name: str) -> int:
        path = self._path(name)
        with _answering(path), _present(name):
            if path.is_dir():
                raise IsADirectoryError
            # Not the time of the write: a writer may sleep for long before it links the file to its name.
            return path.stat().st_ctime_ns // 1_000_000

    def delete(self, name: str) -> None:
        path = self._path(name)
        with _answering(path), suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
            path.unlink()
            # Without it, a crash of the host could bring back a later object but not an earlier one.
            _fsync_folder(path.parent)

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        folder, below = (self._path(prefix), f"{prefix}/") if prefix else (self._root, "")
        yield from self._walk(folder, below, after)

    def folders(self, prefix: str) -> Iterator[str]:
        folder = self._path(prefix) if prefix else self._root
        for entry in _entries(folder):
            if is_object_name(entry.name) and entry.is_dir():
                yield f"{prefix}/{entry.name}" if prefix else entry.name

    def discard_leftovers(self, prefix: str, before_ms: int) -> int:
        found = 0
        top = self._path(prefix) if prefix else self._root
        for folder, _, files in os.walk(top):
            for leftover in (Path(folder) / name for name in files if _TEMPORARY.fullmatch(name)):
                with _answering(leftover), suppress(FileNotFoundError):
                    if leftover.stat().st_mtime_ns // 1_000_000 < before_ms:
                        leftover.unlink()
                        found += 1
        return found

    def settle(self, folder: str) -> None:
        path = self._path(folder)
        with _answering(path), suppress(FileNotFoundError):
            self._settle(path)

    def local_path(self, name: str) -> Path | None:
        return self._path(name)

    def _path(self, name: str) -> Path:
        if not is_object_name(name):
            raise ValueError(f"not a name inside the store. name={name!r}")
        return self._root / name

    def _walk(self, folder: Path, below: str, after: str) -> Iterator[str]:
        for entry in _entries(folder):
            name = below + entry.name
            if entry.is_dir():
                if is_object_name(name):
                    yield from self._walk(folder / entry.name, f"{name}/", after)
            elif name > after and is_object_name(name):
                yield name

    @contextmanager
    def _write_hidden(self, folder: Path, data: bytes | memoryview) -> Iterator[Path]:
        """A hidden file of these bytes, fsynced; gone afterwards unless it was renamed."""
        temporary = folder / f".{self._unique()}.tmp"
        try:
            with self._create_hidden(temporary) as file:
                file.write(data)
                file.flush()
                # If this fails the file is abandoned: a second fsync would succeed without having written anything.
                os.fsync(file.fileno())
            yield temporary
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    def _create_hidden(self, temporary: Path) -> BinaryIO:
        try:
            return temporary.open("xb")
        except FileNotFoundError:
            self._make(temporary.parent)
            return temporary.open("xb")

    def _make(self, folder: Path) -> None:
        """Make a folder and those above it, each durable before anything is put into it."""
        if not folder.parent.exists():
            self._make(folder.parent)
        folder.mkdir(exist_ok=True)
        _fsync_folder(folder.parent)
        self._durable.discard(folder)

    def _settle(self, folder: Path) -> None:
        """Make the folder's entries durable and, once per process, the entries of the folder and its parents.

        The process that created those folders may have died before it could do so.
        """
        _fsync_folder(folder)
        while folder not in self._durable and folder != self._root:
            _fsync_folder(folder.parent)
            self._durable.add(folder)
            folder = folder.parent


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _entries(folder: Path) -> list["os.DirEntry[str]"]:
    """What the folder holds, leftovers of a crash too; nothing if it is missing."""
    with _answering(folder), suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        return list(entries)
    return []


@contextmanager
def _present(name: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise ObjectMissingError(name) from error


@contextmanager
def _answering(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "see what is wrong with it, then try again")
        raise StoreUnavailableError(
            f"the file system refused: {advice}. reason={error.strerror or type(error).__name__}, file={path}"
        ) from error
