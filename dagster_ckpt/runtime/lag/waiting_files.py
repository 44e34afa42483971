"""The files of a source that the stream has not read: those in its folder, less those that Spark's source has seen.

Spark reports no such number. Its source keeps the addresses of the files it has seen in the JVM, so they are compared
there, with two calls for any number of files.
"""

import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

from pyspark.sql import SparkSession

from dagster_ckpt.runtime.declared.sources import Source
from dagster_ckpt.runtime.lag.lag import SourceLag
from dagster_ckpt.runtime.spark.file_index import SEPARATOR, file_index, file_states, joined_addresses
from dagster_ckpt.runtime.spark.jvm import java_class

_LENGTH = re.compile(r"; length=(\d+);")
_MODIFIED = re.compile(r"; modification_time=(-?\d+);")


def files_lag(session: SparkSession, source: Source, stream: Any, planned: Callable[[], Collection[str]]) -> SourceLag:
    """The files that wait for `source`, whose `FileStreamSource` in the JVM is `stream`.

    Spark has seen the files of an epoch in progress too: `planned` returns their addresses, which wait until it is
    committed. Raises Spark's error where the folder cannot be listed, and Java's where Spark changes what it has seen
    at the same moment.
    """
    index = file_index(session, source.path, dict(source.identity.options))
    addresses = joined_addresses(session, index)
    each = java_class(session, "java.util.regex.Pattern").compile(SEPARATOR).splitAsStream(addresses)
    unseen = each.collect(java_class(session, "java.util.stream.Collectors").toSet())
    unseen.removeAll(_seen(stream).keySet())
    unread = str(java_class(session, "java.lang.String").join(SEPARATOR, unseen))
    # Spark notes what it has seen, then writes it down, both under the lock that this call takes.
    stream.currentLogOffset()
    waiting = {*planned(), *unread.split(SEPARATOR)} - {""}
    return waiting_among(waiting, addresses.split(SEPARATOR), file_states(index) if waiting else ())


def waiting_among(waiting: Collection[str], addresses: Iterable[str], states: Iterable[str]) -> SourceLag:
    """The lag of the files that are in `waiting`; of each file its address and its state."""
    found = [state for address, state in zip(addresses, states, strict=True) if address in waiting] if waiting else []
    return SourceLag(
        files=len(found),
        file_bytes=sum(int(_LENGTH.findall(state)[-1]) for state in found),
        since_ms=min((int(_MODIFIED.findall(state)[-1]) for state in found), default=None),
    )


def _seen(stream: Any) -> Any:
    """Java's map of the files that a `FileStreamSource` has seen, by address. Spark has no other way to it."""
    seen = stream.seenFiles()
    entries = seen.getClass().getDeclaredField("map")
    entries.setAccessible(True)
    return entries.get(seen)
