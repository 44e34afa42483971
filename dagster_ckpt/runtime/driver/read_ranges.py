"""What a micro-batch has read, as an error about one of its rows names it: offsets of topics, or files."""

from collections.abc import Iterator, Sequence

from dagster_ckpt.protocol.epochs.topic_offsets import FORMAT, next_offsets, offsets_of
from dagster_ckpt.protocol.manifest.manifest import SourcePosition
from dagster_ckpt.runtime.driver.spark_checkpoint import Advance

_FILES_MAX = 3


def read_ranges(before: Sequence[SourcePosition], advances: Sequence[Advance]) -> str:
    """`trips-0 offsets 100 to 149; file:/inbox/7.json`; empty where neither is known of any source."""
    pairs = zip(before, advances, strict=True)
    return "; ".join(part for position, advance in pairs for part in _ranges(position, advance))


def _ranges(position: SourcePosition, advance: Advance) -> Iterator[str]:
    files = [file.path for file in advance.files]
    yield from files[:_FILES_MAX]
    if len(files) > _FILES_MAX:
        yield f"{len(files) - _FILES_MAX} more files"
    if position.source.format == FORMAT and advance.current is not None:
        begins, ends = next_offsets(position), offsets_of(advance.current)
        for (topic, partition), end in sorted(ends.items()):
            begin = begins.get((topic, partition), 0)
            if end > begin:
                yield f"{topic}-{partition} offsets {begin} to {end - 1}"
