"""How far the kills are: a bar on a terminal, else a line for each thing that happens."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


@dataclass(frozen=True)
class Counting:
    """Counts kills."""

    bar: Progress
    task: TaskID

    def tell(self, text: str) -> None:
        """What happens now."""
        self.bar.update(self.task, description=text)
        if not self.bar.console.is_terminal:
            self.bar.console.print(f"{datetime.now(UTC):%H:%M:%S} {text}")

    def advance(self, kills: int) -> None:
        self.bar.advance(self.task, kills)


@contextmanager
def counting(console: Console, kills: int) -> Iterator[Counting]:
    """Counts up to so many kills, while it is entered."""
    bar = Progress(
        TextColumn("  [cyan]kills[/]"),
        BarColumn(bar_width=32),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=console,
        disable=not console.is_terminal,
    )
    with bar:
        yield Counting(bar, bar.add_task("starting", total=kills))
