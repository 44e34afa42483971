"""Processes as Linux shows them in /proc: who is below whom, what they run, how much memory they hold."""

import os
from collections.abc import Collection
from pathlib import Path

_PROC = Path("/proc")


def children(pid: int) -> list[int]:
    """The living processes right below this one; none where it has ended."""
    found: list[int] = []
    try:
        # A process started by a thread is that thread's child.
        for task in (_PROC / str(pid) / "task").iterdir():
            found += map(int, (task / "children").read_text().split())
    except OSError:
        pass  # it ended while we looked
    return [child for child in found if state(child) not in {"", "Z"}]


def tree(pid: int) -> list[int]:
    """The process itself and all below it, at any depth, each after its parent."""
    return [pid, *(each for child in children(pid) for each in tree(child))]


def sessions() -> dict[int, int]:
    """Every living process of this machine, with its session: the process that all of a service's stem from."""
    found = {int(entry.name): _stat(int(entry.name)) for entry in _PROC.iterdir() if entry.name.isdecimal()}
    # "state ppid pgrp session": a process that was killed and not buried yet is none.
    return {pid: int(fields[3]) for pid, fields in found.items() if fields and fields[0] != "Z"}


def holds_write_lock(pids: Collection[int], folder: Path) -> bool:
    """Whether one of them holds a lock for writing on a file below the folder, such as a SQLite database."""
    inodes = {_inode(path) for path in folder.rglob("*.db*")}
    for line in (_PROC / "locks").read_text().splitlines():
        # "1: POSIX  ADVISORY  WRITE 4711 fd:00:123456 120 120"; the kind of one that only waits for it is an arrow.
        _, kind, _, access, pid, where = line.split()[:6]
        if kind == "POSIX" and access == "WRITE" and int(pid) in pids and int(where.rpartition(":")[2]) in inodes:
            return True
    return False


def _inode(path: Path) -> int:
    """0 where it is gone: whoever held it has let go."""
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0


def state(pid: int) -> str:
    """R, S, T and so on (man 5 proc); empty where there is no such process."""
    fields = _stat(pid)
    return fields[0] if fields else ""


def program(pid: int) -> str:
    """The name of the program that it runs, such as `java`; empty where it has ended."""
    try:
        return (_PROC / str(pid) / "exe").readlink().name
    except OSError:
        return ""


def command(pid: int) -> str:
    """Its command line, the arguments joined with blanks; empty where it has ended."""
    return _read(pid, "cmdline").replace("\0", " ").strip()


def processor_ms(pid: int) -> float:
    """Processor time that it has used, with that of its children that have ended; 0 where it has ended itself."""
    fields = _stat(pid)
    # "state ppid ... utime stime cutime cstime": the fields 14 to 17 of man 5 proc, the first here is the third.
    return sum(map(int, fields[11:15])) * 1_000 / os.sysconf("SC_CLK_TCK") if fields else 0.0


def resident_bytes(pid: int) -> int:
    """What it holds in memory, mapped files included; 0 where it has ended."""
    for line in _read(pid, "status").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


_LISTENS = "0A"


def listens_at(pid: int, port: int) -> bool:
    """Whether the process listens at that TCP port, in its own network namespace."""
    inodes = {
        fields[9]
        for name in ("tcp", "tcp6")
        for fields in map(str.split, _read(pid, f"net/{name}").splitlines()[1:])
        if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port
    }
    try:
        return any(_links_to(file, inodes) for file in (_PROC / str(pid) / "fd").iterdir())
    except OSError:
        return False


def _links_to(file: Path, inodes: Collection[str]) -> bool:
    try:
        return str(file.readlink()).removeprefix("socket:[").removesuffix("]") in inodes
    except OSError:
        return False  # closed while we looked


def _stat(pid: int) -> list[str]:
    """The fields from the third on; the name before them may hold blanks and brackets."""
    return _read(pid, "stat").rpartition(")")[2].split()


def _read(pid: int, name: str) -> str:
    try:
        return (_PROC / str(pid) / name).read_text()
    except OSError:
        return ""
