"""`make profile`: where a trigger's time goes, as flame graphs in docs/images and a table on the page of figures."""

import re
import tempfile
from pathlib import Path
from statistics import median

import click
from rich.console import Console

from benchmarks import facts
from benchmarks.inputs import Inbox
from benchmarks.ours import Ours
from benchmarks.plan import Spread
from benchmarks.profile.phases import Phases, table
from benchmarks.profile.picture import draw
from benchmarks.profile.samples import Profile, Stacks, per_trigger
from benchmarks.report.words import count
from benchmarks.session import start

ROOT = Path(__file__).parents[2]
_PLACE = re.compile(r"(<!-- profile -->\n).*?(<!-- end -->)", re.DOTALL)
_TRIGGERS = {1_000: 200, 200_000: 60, 1_000_000: 24}
"""By their rows: so many are sampled, after half as many that are not."""

console = Console(highlight=False, soft_wrap=True)


@click.command()
@click.option("--keys", default=1_000_000, show_default=True, help="Keys in the state.")
def main(keys: int) -> None:
    """Sample triggers of several sizes."""
    measured = {}
    for rows, triggers in _TRIGGERS.items():
        console.print(f"triggers of {rows:,} rows ...")
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            seconds, stacks, measured[rows] = _sampled(Path(folder), keys, rows, triggers)
        clock, processors = median(seconds) * 1_000, sum(stacks.values())
        title = f"A trigger of {rows:,} rows: {clock:.0f} ms, {processors:.0f} ms of two processors"
        draw(stacks, title, ROOT / "docs" / _picture(rows))
        console.print(title)
    page = ROOT / "docs/benchmarks.md"
    pictures = "\n\n".join(f"![A trigger of {rows:,} rows]({_picture(rows)})" for rows in _TRIGGERS)
    made = f"{table(measured)}\n\nMeasured at {facts.commit(ROOT)}.\n\n{pictures}"
    page.write_text(_PLACE.sub(lambda place: f"{place[1]}{made}\n{place[2]}", page.read_text()))


def _picture(rows: int) -> str:
    """The path of a flame graph, relative to the page."""
    return f"images/trigger-{count(rows)}.svg"


def _sampled(folder: Path, keys: int, rows: int, triggers: int) -> tuple[list[float], Stacks, dict[str, float]]:
    """Seconds of the triggers; the stacks of one, and the milliseconds of its phases."""
    spark = start(folder)
    inbox = Inbox(folder / "inbox", keys, Spread.UNIFORM)
    ours = Ours.totals(spark, inbox.folder, folder / "store")
    inbox.put_each_key(keys)
    inbox.put(triggers // 2, rows)
    ours.work()
    profile, phases = Profile(spark, folder), Phases(ours.session)
    inbox.put(triggers, rows)
    with profile.recorded():
        ours.work()
    inbox.put(triggers, rows)
    with phases.watched():  # without the profilers, which take their time
        seconds = ours.work()
    spark.stop()
    return seconds, per_trigger(profile.stacks, triggers), phases.medians(seconds)


if __name__ == "__main__":
    main()
