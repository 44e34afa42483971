"""The kinds of number and name that must not be mixed up: one type each."""

from typing import NewType

Version = NewType("Version", int)
"""A manifest's number in the chain; one more than the one before. The first is 1."""

Epoch = NewType("Epoch", int)
"""A committed snapshot: the version of the manifest that committed it. 0 is the empty stream. Never used twice."""

Term = NewType("Term", int)
"""The fencing token: the version of the manifest with which the writer opened the stream."""

Shard = NewType("Shard", int)
"""One hash partition of the keys, in `[0, shards)`; `shards` is a power of two."""

Nonce = NewType("Nonce", str)
"""The identity of one manifest's bytes."""

StreamUuid = NewType("StreamUuid", str)
"""The identity of a stream, given to it when it is created; outlives renames, differs between forks."""

EMPTY = Epoch(0)
"""The epoch before any row."""

FIRST = Version(1)
"""The version that creates a stream."""


SHARDS_MAX = 4096
"""Each shard ACKs in every epoch, and a manifest names every shard's runs: more would cost every epoch dearly."""


def can_be_shards(shards: object) -> bool:
    """Whether a stream can have so many shards: a power of two, so that each is a range of the key hash."""
    return type(shards) is int and shards > 0 and shards & (shards - 1) == 0
