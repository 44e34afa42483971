"""Layout of tables and lines: whole lines at any width, because a truncated cell is lost."""

from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

LINE_CHARS_MAX = 100_000
NOTHING = "[dim]-[/]"


class Expendable(Column):
    """A column that is left out if the terminal is too narrow for all, the last one first."""


def new_table(*headers: str) -> Table:
    """Columns by their headers; `>` before a header aligns it to the right, `~` (before that) makes it expendable."""
    return table_of(_column(header) for header in headers)


def table_of(columns: Iterable[Column]) -> Table:
    """A table of these columns, in the common layout."""
    return Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")


def column(name: str, *, is_number: bool = False, kind: type[Column] = Column) -> Column:
    """A column of that name, which may be any text."""
    return kind(escape(name), justify="right" if is_number else "left", no_wrap=True)


def _column(header: str) -> Column:
    name = header.removeprefix("~")
    kind = Column if name == header else Expendable
    return column(name.removeprefix(">"), is_number=name.startswith(">"), kind=kind)


def say(what: Table | str) -> None:
    """Print a table, or a line with rich's markup in it."""
    console = Console(highlight=False)
    if isinstance(what, str):
        console.print(what, soft_wrap=True)
        return
    what, left_out = _fit(what, console) if console.is_terminal else (what, [])
    # A line that the terminal wraps can still be read, and a pipe has no width; a truncated cell is lost.
    console.width = max(console.width, _width(what, console))
    console.print(what)
    if left_out:
        console.print(f"[dim]Too narrow for: {', '.join(left_out)}.[/]", soft_wrap=True)


def _fit(table: Table, console: Console) -> tuple[Table, list[str]]:
    """The table without the expendable columns that do not fit; the headers of those."""
    left_out: list[str] = []
    while _width(table, console) > console.width and any(isinstance(each, Expendable) for each in table.columns):
        last = max(at for at, each in enumerate(table.columns) if isinstance(each, Expendable))
        left_out.append(str(table.columns[last].header))
        table = _without(table, last)
    return table, left_out[::-1]


def _without(table: Table, left_out: int) -> Table:
    """A new table of the other columns: a column knows its position, and the last one has no margin."""
    kept = [each for at, each in enumerate(table.columns) if at != left_out]
    narrower = table_of(each.copy() for each in kept)
    for cells in zip(*(each.cells for each in kept), strict=True):
        narrower.add_row(*cells)
    return narrower


def _width(table: Table, console: Console) -> int:
    unbounded = console.options.update(max_width=LINE_CHARS_MAX)
    return console.measure(table, options=unbounded).maximum
