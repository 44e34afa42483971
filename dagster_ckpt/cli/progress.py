"""Progress of long commands: on a terminal only, and on stderr, so that it does not mix with the output."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

OfBytes = Callable[[int, int], None]


@contextmanager
def shown_progress() -> Iterator[Callable[[str], OfBytes]]:
    """Yields a function that adds a named bar; call the bar with the bytes done and the bytes known."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:

        def bar_of(name: str) -> OfBytes:
            task = bars.add_task(name, total=None)
            return lambda done, total: bars.update(task, completed=done, total=total)

        yield bar_of


@contextmanager
def shown_wait(what: str) -> Iterator[Callable[[str], None]]:
    """Shows what the command waits for, and for how long; call the yielded function to change the text."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task(what, total=None)
        yield lambda what: bars.update(task, description=what)
