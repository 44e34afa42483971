"""What the person in front of the terminal sees: short lines, bars while it works, a table at the end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import polars as pl
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from demo.comparison import Difference
from demo.standing import Standing

ROWS_SHOWN = 5

_FED = "days dropped"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One stream at the end; `kill` is None if there was none. What came in a single epoch has no rate."""

    stream: str
    standing: Standing
    rows_per_second: float
    equal: bool
    kill: "Kill | None" = None


@dataclass(frozen=True, slots=True)
class Kill:
    """The kill: the stream's newest epoch when its worker was dead, and the first after it."""

    epoch: int
    next_epoch: int
    seconds: float


class Report:
    """Writes to `console`. The bars exist while `bars()` is entered."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def title(self, text: str) -> None:
        self._console.print(f"\n[bold]{text}[/]\n")

    def say(self, topic: str, text: str) -> None:
        """One line: what it is about, then what there is to say."""
        self._console.print(f"  [cyan]{topic:<9}[/] {text}", highlight=False, soft_wrap=True)

    def trouble(self, text: str) -> None:
        """Why the demo stops."""
        self._console.print(f"  [red]{'stopped':<9}[/] {escape(text)}", highlight=False, soft_wrap=True)

    def log(self, last_words: str, path: str) -> None:
        """The end of a log, and where the rest of it is."""
        self._console.print(Text.from_ansi(last_words), soft_wrap=True)
        self.say("log", path)

    def bars(self, streams: list[str], days: int) -> "Bars":
        return Bars(self._console, streams, days)

    def difference(self, stream: str, found: Difference) -> None:
        """The first rows that are wrong, of each kind."""
        for kind, rows in (("missing", found.missing), ("surplus", found.surplus), ("changed", found.changed)):
            if rows.height:
                self._console.print(_rows(f"{stream}: {rows.height:,} {kind} rows", rows.head(ROWS_SHOWN)))

    def outcome(self, outcomes: list[Outcome]) -> None:
        """The final table; fits a terminal of 80 columns."""
        headings = ["stream", "epochs", "rows", "rows a\nsecond", "epoch at\nthe kill", "kill to\nnext epoch"]
        rows = [
            [
                each.stream,
                f"{each.standing.epochs:,}",
                f"{each.standing.rows:,}",
                f"{each.rows_per_second:,.0f}" if each.standing.epochs > 1 else "",
                f"{each.kill.epoch:,}" if each.kill else "",
                f"{each.kill.seconds:.1f} s" if each.kill else "",
            ]
            for each in outcomes
        ]
        self.table(headings, rows, [each.equal for each in outcomes])

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[str]], equal: Sequence[bool]) -> None:
        """A table of numbers whose first column names each row, and whether each row is equal to batch."""
        table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
        table.add_column(headings[0], no_wrap=True)
        for heading in headings[1:]:
            table.add_column(heading, justify="right")
        table.add_column("equal to\nbatch")
        for row, is_equal in zip(rows, equal, strict=True):
            table.add_row(*row, "[green]yes[/]" if is_equal else "[red]no[/]")
        self._console.print()
        self._console.print(Padding(table, (0, 0, 0, 1)))


class Bars:
    """A bar for the days dropped and one for each stream; gone when left."""

    def __init__(self, console: Console, streams: list[str], days: int) -> None:
        self._progress = Progress(
            TextColumn("  [cyan]{task.description:<17}"),
            BarColumn(bar_width=32),
            TextColumn("{task.completed:>4.0f} of {task.total:.0f} days"),
            TextColumn("{task.fields[note]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {
            name: self._progress.add_task(name, total=days, note="") for name in (_FED, *streams)
        }

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, fed: int, standings: Mapping[str, Standing]) -> None:
        """Move the bars to where things stand."""
        self._progress.update(self._tasks[_FED], completed=fed)
        for stream, now in standings.items():
            note = f"{now.epochs:>4,} epochs  {now.rows:>7,} rows" if now.epochs else "[dim]starting[/]"
            self._progress.update(self._tasks[stream], completed=now.days, note=note)


def _rows(title: str, rows: pl.DataFrame) -> Table:
    table = Table(title=title, title_justify="left", title_style="red")
    for name in rows.columns:
        table.add_column(name)
    for row in rows.iter_rows():
        table.add_row(*("null" if value is None else str(value) for value in row))
    return table
