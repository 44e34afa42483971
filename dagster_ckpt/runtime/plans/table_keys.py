"""What identifies the rows of a query's table: columns that determine the key of its last step."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Dependency:
    """Among columns of a step: the values of these follow from those of `by`, as a window's end from its start."""

    by: frozenset[str]
    columns: frozenset[str]


def key_among(
    there: Mapping[str, str], key: Collection[str], dependencies: Sequence[Dependency]
) -> tuple[str, ...] | None:
    """The names of columns that identify a row, as few as possible, the first ones before later ones; None: none do.

    `there` has the name in the table of each column of the step that it has, in the table's order, and `key` identifies
    a row of the step.
    """
    of_use = set(key).union(*(each.by for each in dependencies))
    chosen = [column for column in there if column in of_use]
    if not set(key) <= _closure(chosen, dependencies):
        return None
    for column in reversed(chosen):
        fewer = [each for each in chosen if each != column]
        if set(key) <= _closure(fewer, dependencies):
            chosen = fewer
    return tuple(there[column] for column in chosen)


def _closure(columns: Iterable[str], dependencies: Sequence[Dependency]) -> set[str]:
    found, before = set(columns), -1
    while len(found) > before:
        before = len(found)
        found = found.union(*(each.columns for each in dependencies if each.by <= found))
    return found
