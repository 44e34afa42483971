"""The few figures that the README and the comparison show: one file, which the commands that measure write.

`docs/figures.json` has them by name. `make bench` puts its own there, `python -m tests.chaos --publish` that of the
kills; both then fill the pages, as `python -m benchmarks.report.headlines` does. A test fails where a page shows
another figure than the file, or the file another than the bench measured.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.plan import Name
from benchmarks.report.figures import Figures
from benchmarks.report.goals import native_ratios
from benchmarks.report.page import fill_tables, table_of
from benchmarks.report.words import count, times

FILE = Path("docs/figures.json")
PAGES = (Path("README.md"), Path("docs/comparison.md"))
_STEPS = ("steps/tumbling-100k", "steps/tumbling-1M", "steps/session", "steps/deduplicate")


@dataclass(frozen=True)
class Headline:
    """What was measured, what came of it, and how to get it again."""

    what: str
    figure: str
    command: str
    date: str
    commit: str


def from_bench(figures: Figures) -> dict[str, Headline]:
    """What these figures give: nothing of a cell that was not measured."""
    found: dict[str, Headline] = {}
    for name, cell, rows, rival, what in (
        ("1M-200k", "native/1M-uniform", 200_000, Name.NATIVE, "1M keys, batches of 200k rows"),
        ("1M-1M", "native/1M-uniform", 1_000_000, Name.NATIVE, "1M keys, batches of 1M rows"),
        ("10k-200k", "native/10k-uniform", 200_000, Name.NATIVE, "10k keys, batches of 200k rows"),
        ("python", "python/10k-uniform", 20_000, Name.PANDAS, "10k keys, batches of 20k rows"),
    ):
        ours, faster = figures.timing(cell, rows, Name.OURS), figures.faster(cell, rows, rival)
        if ours is not None and faster is not None:
            text = f"{count(ours.rows_per_second)} rows a second, {times(faster)} {rival}"
            found[name] = _of_cell(figures, cell, f"running count, sum and maximum; {what}", text)
    ratios = native_ratios(figures)
    if ratios:
        what = f"the same in {len(ratios)} mixtures of keys and batches: the worst"
        found["worst"] = _of_cell(figures, "native/10k-uniform", what, f"{times(min(ratios))} {Name.NATIVE}")
    join = figures.step("steps/interval-join")
    if join is not None:
        text = f"{times(join.faster)} Spark's own"
        found["join"] = _of_cell(figures, join.cell, "an interval join of two streams", text)
    steps = [step.faster for name in _STEPS if (step := figures.step(name)) is not None]
    if steps:
        text = f"{times(min(steps))} to {times(max(steps))} Spark's own"
        found["steps"] = _of_cell(figures, _STEPS[0], "windows, sessions and deduplication in event time", text)
    return found


def _of_cell(figures: Figures, cell: str, what: str, figure: str) -> Headline:
    measured = figures.measured[cell]
    return Headline(what, figure, measured.command, measured.date[:10], measured.commit)


def from_kills(seconds: Sequence[float], median: float, most: float, date: str, commit: str) -> dict[str, Headline]:
    """What kills come to. `seconds`: from each to the next committed epoch; `most` is their 95th percentile."""
    figure = f"{median:.1f} s at the median of {len(seconds)} kills, {most:.1f} s for 95 of 100"
    what = "from SIGKILL of anything to the next committed epoch"
    return {"kills": Headline(what, figure, f"make chaos KILLS={len(seconds)}", date, commit)}


def load(root: Path) -> dict[str, Headline]:
    """The file's figures by name."""
    path = root / FILE
    return {name: Headline(**each) for name, each in json.loads(path.read_text()).items()} if path.exists() else {}


def publish(root: Path, found: Mapping[str, Headline]) -> None:
    """Put figures into the file, in place of those of their names, and fill the pages that show them."""
    entries = {**load(root), **found}
    text = json.dumps({name: asdict(each) for name, each in entries.items()}, indent=2)
    (root / FILE).write_text(f"{text}\n")
    for page in PAGES:
        path = root / page
        path.write_text(fill(path.read_text(), entries))


def fill(page: str, entries: Mapping[str, Headline]) -> str:
    """A page with the table of these figures where it has its markers."""
    return fill_tables(page, {"headlines": lambda: _table(entries)})


def _table(entries: Mapping[str, Headline]) -> str:
    rows = [[each.what, each.figure, f"`{each.command}`", f"{each.date}, {each.commit}"] for each in entries.values()]
    return table_of(["what", "figure", "how to get it again", "measured"], rows)


if __name__ == "__main__":
    publish(Path(__file__).parents[2], {})
