"""The picture: rows a second by the size of a batch, and a trigger's time by the size of the state."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.plan import Name
from benchmarks.report.figures import Figures
from benchmarks.report.timing import p50, p95
from benchmarks.report.words import count

_COLOURS = {
    Name.OURS: "#4f43dd",
    Name.NATIVE: "#d9480f",
    Name.ROWS: "#2b8a3e",
    Name.APPLY: "#0b7285",
    Name.PANDAS: "#a61e4d",
    Name.NOTHING: "#868e96",
}
# The same figures make the same file.
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "dagster-ckpt",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def draw(figures: Figures, path: Path) -> None:
    """Write the picture as SVG; a part that was not measured stays empty."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(11, 3.6), layout="constrained")
        few, many, growth = figure.subplots(1, 3)
        _speeds(few, figures, "10,000 keys", ("native/10k-uniform", "python/10k-uniform"))
        _speeds(many, figures, "1,000,000 keys", ("native/1M-uniform",))
        _growth(growth, figures)
        names = {
            name: line for axes in (few, many) for line, name in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        if names:
            figure.legend(names.values(), names, loc="outside lower center", ncols=len(names), frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})


def _speeds(axes: Any, figures: Figures, title: str, cells: tuple[str, ...]) -> None:
    # A side that was in several of the races is shown as it was in the first.
    lines: dict[Name, dict[int, float]] = {name: {} for name in _COLOURS}
    for cell in cells:
        for rows in figures.sizes(cell):
            for name, line in lines.items():
                timing = figures.timing(cell, rows, name)
                if timing is not None:
                    line.setdefault(rows, timing.rows_per_second)
    for name, line in lines.items():
        if line:
            sizes = sorted(line)
            style = "--" if name is Name.NOTHING else "-"
            axes.plot(sizes, [line[rows] for rows in sizes], style, marker="o", color=_COLOURS[name], label=name)
    axes.set(title=title, xlabel="rows a trigger", ylabel="rows a second", xscale="log", yscale="log")
    axes.xaxis.set_major_formatter(_counted)
    axes.yaxis.set_major_formatter(_counted)
    axes.grid(alpha=0.3)


def _growth(axes: Any, figures: Figures) -> None:
    grown = figures.grown()
    keys = [each.keys for each in grown]
    for name, of, style in (("p50", p50, "-"), ("p95", p95, ":")):
        milliseconds = [of(each.timing.seconds) * 1000 for each in grown]
        axes.plot(keys, milliseconds, style, marker="o", color=_COLOURS[Name.OURS], label=name)
    rows = f" of {count(grown[0].timing.rows)} rows" if grown else ""
    axes.set(title=f"{Name.OURS}: a trigger{rows}", xlabel="keys in the state", ylabel="milliseconds", xscale="log")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(_counted)
    axes.grid(alpha=0.3)
    if grown:
        axes.legend(frameon=False)


def _counted(value: float, _: int) -> str:
    return count(value)
