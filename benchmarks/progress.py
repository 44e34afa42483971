"""Shows what is measured at this moment; on a terminal only."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

Tell = Callable[[str], None]
"""Is told what begins now."""


@contextmanager
def shown(steps: int) -> Iterator[Tell]:
    """A bar that goes one step on whenever something is told."""
    columns = (TextColumn("  {task.description}"), BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("begins", total=steps, completed=-1)
        yield lambda what: progress.update(task, description=what, advance=1)
