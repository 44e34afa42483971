"""This process's temporary folder, in a folder that belongs to its user alone.

Scratch checkpoints are in it, and all that Spark's JVM writes: shuffle files, sockets, native libraries that it loads.
In a shared folder, some of that is readable by others, and writable by members of the group where the umask is 002.

    <temporary folder>/dagster-ckpt-<user's number>    0700; never removed, so no other user can make a path below it
        <random>                                       one process's
            lock                                       held (flock) until the process ends
            elsewhere                                  Spark's folders in `spark.local.dir`, a path a line

The next start removes the folders of processes that have ended. Crash here: anything half made is removed with them.
"""

import atexit
import fcntl
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, MutableMapping
from contextlib import suppress
from pathlib import Path

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.spark.class_archive import JAVA_OPTIONS
from dagster_ckpt.state.remote.private_folder import private_folder

SOCKETS = "PYSPARK_UDS_MODE"
"""The variable that has a JVM of Spark, and its Python, use Unix sockets in the JVM's temporary folder. It is not a
setting of Spark, which executors on other hosts would have too."""

_LOCK, _ELSEWHERE = "lock", "elsewhere"
_NAME = f"dagster-ckpt-{os.geteuid()}"
_OPTION = "-Djava.io.tmpdir="
_OUR_OPTION = re.compile(rf'"{re.escape(_OPTION)}[^"]*/{_NAME}/[^"/]+" ?')
_SOCKET_BYTES_MAX = 107
_SOCKET_NAME_BYTES = len("/.01234567-89ab-cdef-0123-456789abcdef.sock")
_SPARK_FOLDER = re.compile(r"(?:blockmgr|spark)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PROC = Path("/proc")

_folders: dict[tuple[int, str], Path] = {}
"""By process, since a fork has a copy of its parent's, and by temporary folder."""


def process_folder() -> Path:
    """The folder, made where it is not there.

    Raises `InvalidPipelineError` where another user has prepared the user's folder, and `OSError` where the temporary
    folder cannot be written to.
    """
    place = os.getpid(), tempfile.gettempdir()
    folder = _folders.get(place)
    if folder is None or not folder.is_dir():
        folder = _folders[place] = _new_folder()
    return folder


def use_process_folder(environ: MutableMapping[str, str]) -> None:
    """Make a JVM that Spark starts later use the folder for its temporary files, and for its sockets.

    Another temporary folder that the user gives Java stays, without sockets. Where the folder cannot be had, Spark
    decides: by TCP, and in the shared folder. No effect once a JVM runs.
    """
    if _has_jvm(environ):
        return
    options = environ.get(JAVA_OPTIONS, "")
    given = _OUR_OPTION.sub("", options)  # one that a parent process has set is of its folder
    if _OPTION in given:
        return
    with suppress(OSError, InvalidPipelineError):  # a run says it, which needs the folder
        folder = process_folder()
        option = f'"{_OPTION}{folder}"'
        is_inherited = given != options and option not in options
        if option not in options:
            environ[JAVA_OPTIONS] = f"{option} {given}".strip()
        if len(os.fsencode(folder)) + _SOCKET_NAME_BYTES <= _SOCKET_BYTES_MAX:
            environ.setdefault(SOCKETS, "true")
        elif is_inherited:  # the parent's path was short enough
            environ.pop(SOCKETS, None)


def note_elsewhere(folders: Iterable[Path]) -> None:
    """Let a later start remove these folders of Spark's too, if this process ends without doing so."""
    lines = [str(folder) for folder in folders]
    (process_folder() / _ELSEWHERE).write_text("\n".join(lines), encoding="utf-8", errors="surrogateescape")


def remove_abandoned() -> None:
    """Remove what this user's processes that have ended have left. Raises as `process_folder`."""
    own = process_folder()
    for root in own.parent.iterdir():
        if root == own:
            continue
        with suppress(OSError), open(_open_lock(root), "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while the process lives, or another one removes it
            if not _is_named(root):
                _remove(root)


def _new_folder() -> Path:
    user = Path(tempfile.gettempdir()).absolute() / _NAME
    while True:
        with private_folder(user, "TMPDIR") as descriptor:
            # For as long as the process lives: systemd-tmpfiles does not clean a folder that is locked.
            fcntl.flock(os.dup(descriptor), fcntl.LOCK_SH)
        root = Path(tempfile.mkdtemp(prefix="", dir=user))
        # Before it is locked, the folder looks abandoned: another process may remove it.
        with suppress(FileNotFoundError):
            lock = _open_lock(root)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.fstat(lock).st_nlink:
                atexit.register(_remove_unused, root, os.getpid())
                return root
            os.close(lock)


def _open_lock(root: Path) -> int:
    return os.open(root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _remove_unused(root: Path, process: int) -> None:
    """Remove the folder of a process that had no JVM: one that it had may end after it."""
    if os.getpid() == process and [each.name for each in root.glob("*")] == [_LOCK]:
        shutil.rmtree(root, ignore_errors=True)


def _is_named(root: Path) -> bool:
    """Whether a process has the folder on its command line: a JVM that outlives its Python, or that a child started."""
    name = os.fsencode(root)
    for file in _PROC.glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has just ended, or is hidden from this user
            if name in file.read_bytes():
                return True
    return False


def _remove(root: Path) -> None:
    with suppress(FileNotFoundError):
        noted = (root / _ELSEWHERE).read_text(encoding="utf-8", errors="surrogateescape")
        for folder in map(Path, noted.split("\n")):
            if _SPARK_FOLDER.fullmatch(folder.name):  # a crash may have cut the last line
                shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(root, ignore_errors=True)


def _has_jvm(environ: MutableMapping[str, str]) -> bool:
    """Whether PySpark has a JVM already, by its own start or by `spark-submit`."""
    module = sys.modules.get("pyspark.core.context")
    return "PYSPARK_GATEWAY_PORT" in environ or (module is not None and module.SparkContext._gateway is not None)  # noqa: SLF001
