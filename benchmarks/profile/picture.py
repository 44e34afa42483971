"""Boxes as a picture: a flame graph from above."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.profile.flames import Call, boxes

_WIDTH = 15.0
_LETTER = 0.0048
"""The width of a letter, of the picture's."""
_COLOURS = ("#4f43dd", "#d9480f", "#2b8a3e")
_STYLE: dict[Any, Any] = {"svg.hashsalt": "dagster-ckpt", "svg.fonttype": "none", "font.size": 6.5}


def draw(stacks: Mapping[tuple[str, ...], float], title: str, path: Path) -> None:
    """Write the picture as SVG."""
    root = Call.of(stacks)
    found = boxes(root)
    depth = max(box.depth for box in found) + 1
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, 0.7 + 0.17 * depth), layout="constrained")
        axes = figure.subplots()
        for box in found:
            colour = _COLOURS[box.part % len(_COLOURS)]
            shade = 0.9 if box.depth == 0 else (0.35, 0.25)[box.depth % 2]
            axes.barh(-box.depth, box.ms, 0.96, box.left, color=colour, alpha=shade, edgecolor="white", linewidth=0.4)
            letters = int(box.ms / root.ms / _LETTER)
            if letters >= 4:
                name = f"{box.name}, {box.ms:.0f} ms" if letters > len(box.name) + 9 else box.name
                text = name if len(name) <= letters else f"{name[: letters - 1]}…"
                white = {"color": "white"} if box.depth == 0 else {}
                left = box.left + root.ms * 0.001
                # Names of Scala's classes have dollars, which is not mathematics.
                axes.text(left, -box.depth, text, va="center", clip_on=True, parse_math=False, **white)
        axes.set(xlim=(0, root.ms), ylim=(-depth + 0.4, 0.6), yticks=[], title=title)
        axes.set_xlabel("milliseconds of processor time in a trigger", loc="left")
        axes.spines[["top", "right", "left"]].set_visible(False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})
