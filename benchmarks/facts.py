"""What a figure depends on beside the code: the machine it was taken on. Nothing that names a host or a folder."""

import hashlib
import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter

_PACKAGES = ("pyspark", "pyarrow", "numpy", "pandas")
_FSYNCS = 20
_FSYNC_BYTES = 65_536

Machine = dict[str, str | int]


def machine() -> Machine:
    """Cores, memory and versions."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory / 2**30),
        "processor": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "java": _java(),
        **{package: version(package) for package in _PACKAGES},
    }


def fsync_ms(folder: Path) -> float:
    """What it takes here to write 64 KiB durably, at the median: disks differ more than anything else."""
    seconds = []
    path = folder / "fsync"
    for _ in range(_FSYNCS):
        began = perf_counter()
        with path.open("wb") as file:
            file.write(bytes(_FSYNC_BYTES))
            file.flush()
            os.fsync(file.fileno())
        seconds.append(perf_counter() - began)
    path.unlink()
    return round(median(seconds) * 1000, 2)


def code(root: Path) -> str:
    """Tells apart what can change a figure: the package, and what measures it.

    Not the plan: what that says of a cell is kept beside the cell's figures.
    """
    digest = hashlib.sha256()
    benchmarks = root / "benchmarks"
    measures = [path for path in benchmarks.glob("*.py") if path.name not in ("facts.py", "plan.py")]
    measures += [path for path in (benchmarks / "nexmark").rglob("*.*") if path.suffix in (".py", ".sql")]
    for path in sorted([*(root / "dagster_ckpt").rglob("*.py"), *measures]):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def commit(root: Path) -> str:
    """The commit of the code, with a plus where it was changed since; empty outside of git."""
    head = _said("git", "-C", str(root), "rev-parse", "--short", "HEAD").strip()
    changed = _said("git", "-C", str(root), "status", "--porcelain", "dagster_ckpt", "benchmarks").strip()
    return f"{head}+" if changed else head


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    told = _said(f"{home}/bin/java" if home else "java", "-version")
    found = re.search(r'version "([^"]+)"', told)
    return found[1] if found else ""


def _said(*command: str) -> str:
    try:
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""
