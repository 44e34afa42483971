"""A folder that belongs to this process's user alone."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dagster_ckpt.errors import InvalidPipelineError

_REASONS = {
    errno.EEXIST: "there is something else of that name",
    errno.ENOTDIR: "it is no folder, or a link to one",
    errno.ELOOP: "it is a link",
}


def refuse_unsafe(folder: Path) -> None:
    """Raise `InvalidPipelineError` where `private_folder` would; nothing is made where there is no such folder.

    A folder that cannot be accessed at all is no error: then there is no cache.
    """
    with suppress(OSError):
        folder.lstat()
        with private_folder(folder):
            pass


@contextmanager
def private_folder(folder: Path) -> Iterator[int]:
    """A descriptor of the folder, made (0700) where it is not there; names are opened relative to it.

    Raises `InvalidPipelineError` for a folder that another user could have prepared or can read: that user could then
    change or read the state's bytes. Any other failure is the file system's `OSError`.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # No link is followed, and the checks are on the open descriptor: what was checked is what is used.
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        reason = _REASONS.get(error.errno or 0)
        if reason is None:
            raise
        raise _refused(folder, reason) from error
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid():
            raise _refused(folder, f"it belongs to another user (number {status.st_uid})")
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise _refused(folder, f"others may enter it (mode {stat.S_IMODE(status.st_mode):04o}; chmod 700 it)")
        yield descriptor
    finally:
        os.close(descriptor)


def _refused(folder: Path, reason: str) -> InvalidPipelineError:
    return InvalidPipelineError(
        f"the cache keeps the stream's state, so its folder must be this user's own: {reason}. Choose another one with "
        f"cache_dir, or remove it. cache_dir={folder}"
    )
