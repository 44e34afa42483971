"""The position in a source, as text."""

from dagster_ckpt.cli.output import amounts
from dagster_ckpt.protocol.epochs.upstream import FORMAT, UpstreamPosition, decode
from dagster_ckpt.protocol.manifest.manifest import SourcePosition


def in_words(position: SourcePosition) -> str:
    """The source, and the stream's position in it."""
    source, seen = position.source, sum(index.entries for index in position.files.index) + len(position.files.tail)
    if position.current is None:
        at = "no position yet"
    elif source.format == FORMAT:
        at = _read(decode(position.current))
    else:  # for files Spark's offset is only the number of a batch
        at = f"{amounts.count(seen, 'file')} seen" if seen else f"at {position.current}"
    what = "stream" if source.format == FORMAT else source.format
    return f"{what} {source.address}, {at}"


def _read(at: UpstreamPosition) -> str:
    if at.in_snapshot:
        return f"its table at epoch {at.epoch} is being read: {at.part} of {at.parts} parts"
    return f"read up to epoch {at.epoch}" if at.epoch else "nothing read yet"
