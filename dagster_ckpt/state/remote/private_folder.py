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


def refuse_unsafe(folder: Path, setting: str) -> None:
    """Raise `InvalidPipelineError` where `private_folder` would; nothing is made where there is no such folder.

    A folder that cannot be accessed at all is no error: then there is no cache.
    """
    with suppress(OSError):
        folder.lstat()
        with private_folder(folder, setting):
            pass


@contextmanager
def private_folder(folder: Path, setting: str) -> Iterator[int]:
    """A descriptor of the folder, made (0700) where it is not there; names are opened relative to it.

    `setting` is the user's setting that decides where it is. Raises `InvalidPipelineError` for a folder that another
    user could have prepared or can read: that user could then change or read what is kept in it. Any other failure is
    the file system's `OSError`.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # No link is followed, and the checks are on the open descriptor: what was checked is what is used.
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        reason = _REASONS.get(error.errno or 0)
        if reason is None:
            raise
        raise _refusal(folder, setting, reason) from error
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid():
            raise _refusal(folder, setting, f"it belongs to another user (number {status.st_uid})")
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise _refusal(
                folder, setting, f"others may enter it (mode {stat.S_IMODE(status.st_mode):04o}; chmod 700 it)"
            )
        yield descriptor
    finally:
        os.close(descriptor)


def _refusal(folder: Path, setting: str, reason: str) -> InvalidPipelineError:
    return InvalidPipelineError(
        "this folder keeps what no other user may read or change, so it must be this user's own: "
        f"{reason}. Choose another one with {setting}, or remove it. folder={folder}"
    )
