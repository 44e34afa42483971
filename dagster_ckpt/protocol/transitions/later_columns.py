"""The names of state columns that begin later than their table.

Each has the number of the epoch after which it begins. No two beginnings in a stream's life have the same number: a
column that is dropped and begun again is another one, and what files still hold of the first is read by nobody.
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
