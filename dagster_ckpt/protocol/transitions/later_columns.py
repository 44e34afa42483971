"""The names of state columns that begin later than their table.

Each name ends with the number of the epoch after which the column begins, 0 where it begins with the stream. A stream
never uses a greater number twice, so a column that is dropped and added again gets a new name, and the old values that
files still hold are ignored. A stream that is rebuilt beside another counts its own epochs, and names only its own
files; after the swap all new numbers are above those of both. So where a stream goes on with an epoch, a column keeps
the number that it has in that one, whatever number it has in later ones.
"""

import re

from dagster_ckpt.ids import EMPTY
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


def beginning_after(shown: Manifest | None, newest: Manifest | None) -> int:
    """The number with which columns begin after the epoch of `shown`, with which the stream goes on; None: epoch 0.

    After epoch 0 it is 0, whatever the stream has been before: it has no files. Files of a later epoch have it too, if
    a column began there before the stream went back: the state has none of these any more. It is no greater than what a
    fork of the epoch counts from.
    """
    if shown is None or shown.epoch == EMPTY or newest is None:
        return 0
    return shown.epoch + sum(ancestor.epoch for ancestor in newest.ancestors)


def next_beginning(newest: Manifest) -> int:
    """The number with which columns begin now."""
    return beginning_after(newest, newest)
