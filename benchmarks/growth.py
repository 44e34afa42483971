"""A trigger's time as the state grows, and what a new process needs before its first epoch."""

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.disk import check_disk
from benchmarks.inputs import Inbox
from benchmarks.ours import NAME, Ours
from benchmarks.plan import Growth, Spread
from benchmarks.progress import Tell
from benchmarks.readback import check_state
from benchmarks.retired import RetiredFiles
from benchmarks.session import start
from dagster_ckpt.protocol.manifest.manifest import Manifest


@dataclass(frozen=True)
class GrowthFigures:
    """Of each counted trigger its seconds, and the rows its epoch merged (None: the release does not tell).

    `recoveries` are pairs of seconds from opening a stream to its first new epoch: this one, an empty one.
    """

    seconds: list[float]
    merged_rows: list[int | None]
    state_bytes: int
    recoveries: list[tuple[float, float]]


def run_growth(growth: Growth, folder: Path, tell: Tell) -> dict[str, object]:
    """The figures as JSON has them. Raises RuntimeError where disk is short or the state is not what its input says."""
    check_disk(folder, growth.keys)
    tell(f"{growth.keys:,} keys are put in")
    spark = start(folder)
    inbox, store = Inbox(folder / "inbox", growth.keys, Spread.UNIFORM), folder / "store"
    ours = Ours.totals(spark, inbox.folder, store, retained=1)
    inbox.put_each_key(growth.fill_rows)
    ours.work(seen=RetiredFiles(store).seen)
    tell(f"triggers of {growth.rows:,} rows at {growth.keys:,} keys")
    inbox.put(growth.warm + growth.counted, growth.rows)
    manifests: list[Manifest] = []
    seconds = ours.work(seen=manifests.append)
    spark.stop()
    tell(f"is the state of {growth.keys:,} keys right?")
    check_state(inbox.folder, growth.keys, store, NAME)
    figures = GrowthFigures(
        seconds=[round(one, 4) for one in seconds[growth.warm :]],
        merged_rows=[getattr(each.statistics, "merged_rows", None) for each in manifests[growth.warm :]],
        state_bytes=manifests[-1].statistics.state_bytes,
        recoveries=[_recovery(growth, turn, folder, inbox, tell) for turn in range(growth.recoveries)],
    )
    tell("and after the recoveries?")
    check_state(inbox.folder, growth.keys, store, NAME)
    return asdict(figures)


def _recovery(growth: Growth, turn: int, folder: Path, inbox: Inbox, tell: Tell) -> tuple[float, float]:
    """Seconds of this stream and of an empty one, in a process of their own, every other time the empty one first."""
    tell(f"recovery at {growth.keys:,} keys, {turn + 1} of {growth.recoveries}")
    inbox.put(1, growth.rows)
    command = [sys.executable, "-m", "benchmarks.recovery", str(folder), str(turn), str(growth.rows)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    full, empty = json.loads(done.stdout.splitlines()[-1])
    return full, empty
