"""A folder of its own for each run of the demo, so that a second one never meets what the first left behind."""

import fcntl
import os
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from demo.errors import DemoError

WORK = Path(__file__).resolve().parent.parent / ".work"
PREPARED = WORK / "flights"
PREPARED_WEATHER = WORK / "weather"
RUNS = WORK / "demo"

_CURRENT = "current"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Where one run of the demo keeps everything. `lock` is a file descriptor: the folder is in use while it is open.

    A process that inherits the descriptor keeps the folder in use too: `dagster dev`, where it outlives the demo.
    """

    path: Path
    lock: int

    @property
    def home(self) -> Path:
        return self.path / "dagster_home"

    @property
    def inbox(self) -> Path:
        return self.path / "flights"

    @property
    def store(self) -> str:
        return (self.path / "checkpoints").as_uri()

    @property
    def log(self) -> Path:
        return self.path / "dagster.log"

    @property
    def report(self) -> Path:
        return self.path / "carrier_report.html"

    @property
    def environment(self) -> dict[str, str]:
        """What tells the code location, wherever it is loaded, to work on this folder."""
        return {
            "DAGSTER_CKPT_INPUT": str(self.inbox),
            "DAGSTER_CKPT_WEATHER": str(PREPARED_WEATHER),
            "DAGSTER_CKPT_STORE": self.store,
            "DAGSTER_CKPT_REPORT": str(self.report),
        }


def fresh(runs: Path = RUNS) -> RunFolder:
    """A new folder. Of the earlier ones the newest stays to be looked at, and those that are still in use."""
    runs.mkdir(parents=True, exist_ok=True)
    earlier = sorted(path for path in runs.iterdir() if path.is_dir() and not path.is_symlink())
    for path in earlier[:-1]:
        _remove_if_unused(path)
    path = runs / f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}-{os.getpid()}"
    path.mkdir()
    folder = _locked(path)
    folder.inbox.mkdir()
    link = runs / f"{path.name}.link"
    link.symlink_to(path.name)
    link.replace(runs / _CURRENT)
    return folder


def current(runs: Path = RUNS) -> RunFolder | None:
    """The newest run's folder, None where there is none. Raises DemoError where it is in use."""
    link = runs / _CURRENT
    return _locked(link.resolve()) if link.exists() else None


def _locked(path: Path) -> RunFolder:
    lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise DemoError(f"a demo or its UI still runs here: end it first. folder={path}") from None
    return RunFolder(path, lock)


def _remove_if_unused(path: Path) -> None:
    try:
        folder = _locked(path)
    except DemoError:
        return
    shutil.rmtree(path)
    os.close(folder.lock)
