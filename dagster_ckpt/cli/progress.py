"""What shows how far a long command is: on a terminal only, and on stderr, so that no output is mixed with it."""

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
    """What gives each part of the work its bar, by name; a bar is told bytes done and bytes known of."""
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
    """Says what is waited for, and how long it has taken, while it takes; what it yields says it in other words."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task(what, total=None)
        yield lambda what: bars.update(task, description=what)
