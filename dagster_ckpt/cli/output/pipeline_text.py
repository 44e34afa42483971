"""The position in a source, and how far behind another stream one is, each in one readable line."""

from dagster_ckpt.cli.output import amounts
from dagster_ckpt.history import UpstreamInfo
from dagster_ckpt.operators.explained.operator_text import source_text
from dagster_ckpt.protocol.epochs.topic_offsets import FORMAT as KAFKA
from dagster_ckpt.protocol.epochs.topic_offsets import offsets_text, parse_offsets
from dagster_ckpt.protocol.epochs.upstream import FORMAT, UpstreamPosition, decode
from dagster_ckpt.protocol.manifest.manifest import SourcePosition


def source_line(position: SourcePosition) -> str:
    """The source, and the stream's position in it."""
    source, seen = position.source, sum(index.entries for index in position.files.index) + len(position.files.tail)
    if position.current is None:
        at = "no position yet"
    elif source.format == FORMAT:
        at = _read(decode(position.current))
    elif source.format == KAFKA:
        at = f"next offset by partition: {offsets_text(parse_offsets(position.current))}"
    else:  # for files Spark's offset is only the number of a batch
        at = f"{amounts.count(seen, 'file')} seen" if seen else f"at {position.current}"
    return f"{source_text(source)}, {at}"


def lag_line(upstream: UpstreamInfo) -> str:
    """How far a stream is behind one that it reads: `3 epochs, 1,200 rows; the newest is epoch 44`."""
    if upstream.gone:
        return "unknown: no such stream is in this store"
    if upstream.ahead:
        return f"unknown: a rollback of it left epoch {upstream.read} behind"
    if upstream.epochs is None or upstream.rows is None:
        return f"unknown: it no longer has epoch {upstream.read}; its newest is epoch {upstream.newest}"
    if not upstream.epochs:
        return "none: all of it is read"
    behind = f"{amounts.count(upstream.epochs, 'epoch')}, {amounts.count(upstream.rows, 'row')} of its change log"
    return f"{behind}; its newest is epoch {upstream.newest}"


def _read(at: UpstreamPosition) -> str:
    if at.in_snapshot:
        return f"its table at epoch {at.epoch} is being read: {at.part} of {at.parts} parts"
    return f"read up to epoch {at.epoch}" if at.epoch else "nothing read yet"
