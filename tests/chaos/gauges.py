"""What is read off a running lane: memory by process, files and bytes in its folder, how long its epochs take."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from dagster_ckpt import CheckpointError
from tests.chaos import processes
from tests.chaos.cluster import NO_ANSWER, Cluster
from tests.chaos.flatness import Tolerance
from tests.chaos.results import percentile

_MIB = 1024**2

TOLERANCES: Mapping[str, Tolerance] = {
    "driver_rss": Tolerance(0.10, 16 * _MIB),
    "jvm_rss": Tolerance(0.10, 16 * _MIB),
    "python_workers_rss": Tolerance(0.10, 16 * _MIB),
    "files": Tolerance(0.10, 20),
    "bytes": Tolerance(0.10, _MIB),
    "manifest_bytes": Tolerance(0.10, 2048),
    "epoch_p50_ms": Tolerance(0.10, 20),
    "epoch_p95_ms": Tolerance(0.25, 50),
}
"""What must be flat, and what that means. `index_files` and `index_bytes` are only told.

They hold what a file source has seen, which is as much as there were files. An append stream's table is its input: it
grows in bytes, and is not judged by them.
"""

GROWS = {("appended", "bytes")}

Gauges = Mapping[str, float]


@dataclass
class Gauge:
    """Reads one lane. `look` is called often, for the epochs that come and go; `read` sums up since the last time."""

    cluster: Cluster
    lane: str
    _epochs: dict[int, int] = field(default_factory=dict)
    _told: int = 0

    def look(self) -> None:
        try:
            for info in self.cluster.history(self.lane).epochs():
                if info.epoch > self._told:
                    self._epochs[info.epoch] = info.epoch_ms
        except CheckpointError:
            return  # it is not there yet

    def read(self) -> Gauges | None:
        """None while the lane has no Spark at work, or no epoch."""
        try:
            work = self.cluster.at_work(self.lane)
        except NO_ANSWER:
            return None
        if work is None or work.jvm is None or not self._epochs:
            return None
        epochs_ms, self._epochs, self._told = self._epochs.values(), {}, max(self._epochs)
        daemons = [child for child in processes.children(work.jvm) if "python" in processes.program(child)]
        pythons = [pid for daemon in daemons for pid in processes.tree(daemon)]
        folder = self.cluster.folder(self.lane)
        files, index = _sizes(folder, "index", inside=False), _sizes(folder, "index", inside=True)
        return {
            "driver_rss": processes.resident_bytes(work.driver),
            "jvm_rss": processes.resident_bytes(work.jvm),
            "python_workers_rss": sum(map(processes.resident_bytes, pythons)),
            "python_workers": len(pythons),
            "files": len(files),
            "bytes": sum(files),
            "index_files": len(index),
            "index_bytes": sum(index),
            "manifest_bytes": _newest_bytes(folder / "manifest"),
            "epochs": len(epochs_ms),
            "epoch_p50_ms": median(epochs_ms),
            "epoch_p95_ms": percentile(epochs_ms, 0.95),
        }


def _sizes(folder: Path, part: str, *, inside: bool) -> list[int]:
    """The sizes of all files in that part of the folder, or in all the others."""
    sizes = []
    for path in folder.rglob("*"):
        try:
            if path.is_file() and (path.relative_to(folder).parts[0] == part) is inside:
                sizes.append(path.stat().st_size)
        except FileNotFoundError:
            continue  # the collector was quicker
    return sizes


def _newest_bytes(manifests: Path) -> int:
    return max(manifests.glob("*.json"), key=lambda path: path.name).stat().st_size
