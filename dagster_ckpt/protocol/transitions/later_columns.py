"""The names of state columns that begin later than their table.

Each name ends with the number of the epoch after which the column begins. A stream never uses a number twice, so a
column that is dropped and added again gets a new name, and the old values that files still hold are ignored.
"""

import re

from dagster_ckpt.protocol.manifest.manifest import Manifest, Pipeline

_LATER = re.compile(r" since (\d+)$")


def later(name: str, since: str | int) -> str:
    """The name of a state column that begins after the epoch with this number."""
    return f"{name} since {since}"


def begins_after(name: str) -> int | None:
    """The number of the epoch after which a state column begins; None: with its table."""
    found = _LATER.search(name)
    return None if found is None else int(found[1])


def beginnings(pipeline: Pipeline) -> frozenset[int]:
    """The numbers with which columns of the pipeline's state begin later than their table."""
    begun = (begins_after(name) for table in pipeline.all_tables for name in table.schema.names)
    return frozenset(number for number in begun if number is not None)


def next_beginning(newest: Manifest | None) -> int:
    """The number with which columns begin now: that of no earlier beginning in the stream or its ancestors."""
    if newest is None:
        return 0
    abandoned = (each.last for each in newest.abandoned)
    return max((newest.epoch, *abandoned)) + sum(ancestor.epoch for ancestor in newest.ancestors)
