"""`make bench`: measures what has no figures of this very code; makes the tables and the picture of all there are."""

import fcntl
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console

from benchmarks import facts
from benchmarks.plan import PLANS, chosen
from benchmarks.report.figures import Figures
from benchmarks.report.headlines import from_bench, publish
from benchmarks.report.page import PICTURE, filled
from benchmarks.results import Measured, load, remove, save, settings_of

ROOT = Path(__file__).parents[1]
PAGE = "benchmarks.md"
_OUT = {"full": ROOT / "docs", "quick": ROOT / ".work/bench"}
_BENCH = ROOT / ".bench"
_DATA, _LOGS = _BENCH / "data", _BENCH / "logs"

console = Console(highlight=False, soft_wrap=True)


@click.command()
@click.option("--quick", is_flag=True, help="Each kind of work once, in small; into .work/bench instead of docs.")
@click.option("--only", default="", metavar="CELLS", help="Parts or cells, such as commit,native/1M-uniform.")
@click.option("--anew", is_flag=True, help="Measure again what was already measured with this very code.")
def main(quick: bool, only: str, anew: bool) -> None:  # noqa: FBT001  (flags are what click gives)
    """Measure dagster-ckpt against Spark's own ways to keep state."""
    plan = "quick" if quick else "full"
    try:
        cells = chosen(PLANS[plan], only)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    command = " ".join(["make bench", *(["QUICK=1"] if quick else []), *([f"ONLY={only}"] if only else [])])
    with _alone():
        failed = [cell for cell in cells if not _is_measured(plan, cell, command, anew=anew)]
        _report(plan)
    console.print(f"Figures, tables and picture: {_OUT[plan].relative_to(ROOT)}/{PAGE}")
    if failed:
        raise click.ClickException(f"these cells failed and have no figures: {', '.join(failed)}")


@contextmanager
def _alone() -> Iterator[None]:
    """Two at a time would measure each other. What a killed one left behind is removed."""
    _LOGS.mkdir(parents=True, exist_ok=True)
    with (_BENCH / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise click.ClickException("another benchmark is running: wait for its end") from None
        shutil.rmtree(_DATA, ignore_errors=True)
        _DATA.mkdir()
        yield


def _is_measured(plan: str, cell: str, command: str, *, anew: bool) -> bool:
    """Measure the cell unless that was done; whether there are figures now."""
    machine, code, results = facts.machine(), facts.code(ROOT), _OUT[plan] / "benchmarks"
    there = load(results).get(cell)
    if there is not None and not anew and there.is_of(PLANS[plan][cell], machine, code):
        console.print(f"{cell:20} kept: measured with this code on {there.date} (ANEW=1 measures it again)")
        return True
    console.print(f"{cell:20} ...", end="\r" if console.is_terminal else "\n")
    commit, began = facts.commit(ROOT), time.monotonic()
    with tempfile.TemporaryDirectory(dir=_DATA, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        disk_ms = facts.fsync_ms(folder)
        if not _ran(plan, cell, folder):
            # Figures of before would look as if they were still true.
            remove(results, cell)
            return False
        measured = Measured(
            figures=json.loads((folder / "figures.json").read_text()),
            settings=settings_of(PLANS[plan][cell]),
            machine=machine,
            fsync_ms=disk_ms,
            date=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
            commit=commit,
            code=code,
            command=command,
            took_s=round(time.monotonic() - began),
        )
    save(results, cell, measured)
    console.print(f"{cell:20} took {measured.took_s} s")
    return True


def _ran(plan: str, cell: str, folder: Path) -> bool:
    """Run the cell in a process of its own; show the end of what it said where it failed."""
    log = _LOGS / f"{cell.replace('/', '-')}.log"
    with log.open("w") as errors:
        command = [sys.executable, "-m", "benchmarks.measure", plan, cell, str(folder)]
        done = subprocess.run(command, cwd=ROOT, stderr=errors, check=False)
    if done.returncode != 0:
        lines = log.read_text().splitlines()[-15:]
        console.print(f"{cell:20} failed; the end of {log.relative_to(ROOT)}:", *lines, sep="\n")
    return done.returncode == 0


def _report(plan: str) -> None:
    """Make the page and its picture from all figures there are of the plan's cells."""
    from benchmarks.report.picture import draw  # here: matplotlib takes long to load, and tests do without it

    out = _OUT[plan]
    there = load(out / "benchmarks")
    figures = Figures({cell: there[cell] for cell in PLANS[plan] if cell in there}, facts.code(ROOT))
    draw(figures, out / PICTURE)
    template = ROOT / "docs" / PAGE
    (out / PAGE).write_text(filled(template.read_text(), figures))
    if out == ROOT / "docs":
        publish(ROOT, from_bench(figures))


if __name__ == "__main__":
    main()
