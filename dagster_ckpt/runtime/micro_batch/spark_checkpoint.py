"""Spark's checkpoint folder as scratch: built from the manifest when a query starts, read after each batch, removed.

It is never truth: a crash at any point leaves a folder that the next run on this host removes. The layout is that
of Spark 4.2 and 4.3, and only this file knows it:

    metadata             {"id": ...}
    offsets/<batch>      v1, a line of metadata, then a line for each streaming relation ("-": no position yet)
    commits/<batch>      v1, {}
    sources/<n>/<m>      a file source's log: the files of its m-th batch; <m>.compact has those of all batches up to m
    sources/<n>/0        of any other source: its initial position, if it keeps one
"""

import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from dagster_ckpt.protocol.epochs.topic_offsets import FORMAT, next_offsets, parse_offsets
from dagster_ckpt.protocol.manifest.manifest import FileSeen, SourcePosition
from dagster_ckpt.protocol.redaction import redacted_file
from dagster_ckpt.runtime.declared.sources import StreamSource
from dagster_ckpt.runtime.spark.jvm import java_class
from dagster_ckpt.runtime.spark.process_folder import process_folder

_PARTITIONS = "spark.sql.shuffle.partitions"
_VERSION = "v1"
_NO_POSITION = "-"
_FIRST_BATCH = 1
"""The batch that a new stream's folder claims as done. Not 0: Spark then plans a batch before the first one again."""

_SEEN_LOG = 999_999
"""The first number of a file source's log. Spark compacts a log at every multiple of the number of its last compact
file, plus one: with this number it never does in the life of a folder."""

_SEEN_OFFSET = f'{{"logOffset":{_SEEN_LOG}}}'
"""As Spark writes it: it compares offsets as texts, and one more space would cause a batch without rows."""


@dataclass(frozen=True)
class Advance:
    """What one batch read of one source: `current` is Spark's offset after it, `files` are its new files."""

    current: str | None
    initial: str | None
    files: tuple[FileSeen, ...]


class SparkCheckpoint:
    """One query's checkpoint folder: private to this process, on the local disk, removed with the query."""

    def __init__(self, root: Path, sources: Sequence[StreamSource], last_batch: int) -> None:
        self._root = root
        self._sources = sources
        self.last_batch = last_batch

    @property
    def location(self) -> str:
        """Spark's `checkpointLocation`."""
        return self._root.as_uri()

    @property
    def sources(self) -> Sequence[StreamSource]:
        """The sources, in the order of their offsets."""
        return self._sources

    def source_location(self, source: StreamSource) -> str:
        """Where Spark keeps what it knows of a source."""
        return self._folder(source).as_uri()

    def add_batch(self, batch_id: int, offsets: Sequence[str | None]) -> None:
        """Note the offset of each source after a batch, where no query of Spark's does. Only the last two are kept."""
        _, metadata, *lines = self._log(batch_id - 1)
        for source, offset in zip(self._sources, offsets, strict=True):
            for line in source.lines:
                lines[line] = offset or _NO_POSITION
        _write(self._root / "offsets" / str(batch_id), [_VERSION, metadata, *lines])
        (self._root / "offsets" / str(batch_id - 2)).unlink(missing_ok=True)

    def has_spark_state(self) -> bool:
        """Whether Spark itself keeps state: it creates that folder before it hands over the first batch."""
        return (self._root / "state").exists()

    def offsets(self, batch_id: int) -> tuple[str | None, ...]:
        """Spark's offset of each source after a batch, as Spark spells it; None: no position yet."""
        version, _, *lines = self._log(batch_id)
        assert version == _VERSION, f"another layout of Spark's offset log. version={version}"
        expected = sum(len(source.lines) for source in self._sources)
        assert len(lines) == expected, f"Spark reads other sources than the plan. lines={lines}, expected={expected}"
        found = (lines[source.lines[0]] for source in self._sources)
        return tuple(None if line == _NO_POSITION else line for line in found)

    def offset(self, source: StreamSource, batch_id: int) -> str | None:
        """Spark's offset of one source after a batch."""
        return self.offsets(batch_id)[self._sources.index(source)]

    def files_after(self, source: StreamSource, offset: str | None) -> frozenset[str]:
        """The files that Spark has planned to read after this offset of a file source, spelled as it spells them."""
        found: set[str] = set()
        for number in count(0 if offset is None else _log_offset(offset) + 1):
            try:
                found.update(str(entry["path"]) for entry in self._entries_of(source, number))
            except FileNotFoundError:
                break
        return frozenset(found)

    def advances(self, batch_id: int) -> tuple[Advance, ...]:
        """What the batch after `batch_id - 1` read of each source."""
        before, after = self.offsets(batch_id - 1), self.offsets(batch_id)
        return tuple(
            Advance(
                current,
                initial,
                self._new_files(source, previous, current),
            )
            for source, initial, previous, current in zip(self._sources, self.initials(), before, after, strict=True)
        )

    def batch_files(self, source: StreamSource, batch_id: int) -> list[str]:
        """The files that a batch reads of a file source, spelled as Spark spells them."""
        place = self._sources.index(source)
        previous, current = self.offsets(batch_id - 1)[place], self.offsets(batch_id)[place]
        return [str(entry["path"]) for entry in self._new_entries(source, previous, current)]

    def initials(self) -> tuple[str | None, ...]:
        """Each source's initial position, as Spark spells it; None: it keeps none, or has not begun yet."""
        return tuple(None if source.reads_files else self._initial(source) for source in self._sources)

    def remove(self) -> None:
        """Remove the folder. The next run removes what cannot be removed now."""
        shutil.rmtree(self._root, ignore_errors=True)

    def _log(self, batch_id: int) -> list[str]:
        return (self._root / "offsets" / str(batch_id)).read_text(encoding="utf-8").split("\n")

    def _initial(self, source: StreamSource) -> str | None:
        log = self._folder(source) / "0"
        return log.read_text(encoding="utf-8") if log.exists() else None

    def _new_files(self, source: StreamSource, previous: str | None, current: str | None) -> tuple[FileSeen, ...]:
        return tuple(
            FileSeen(redacted_file(entry["path"]), entry["timestamp"])
            for entry in self._new_entries(source, previous, current)
        )

    def _new_entries(self, source: StreamSource, previous: str | None, current: str | None) -> Iterator[dict[str, Any]]:
        """What Spark's source log has between two offsets; nothing of a source without such a log."""
        if source.reads_files and current is not None:
            for number in range(0 if previous is None else _log_offset(previous) + 1, _log_offset(current) + 1):
                yield from self._entries_of(source, number)

    def _entries_of(self, source: StreamSource, number: int) -> list[dict[str, Any]]:
        log = self._folder(source) / str(number)
        if not log.exists():
            # Spark has compacted the log: that file holds the older batches' files too.
            log = log.with_suffix(".compact")
        version, *lines = log.read_text(encoding="utf-8").split("\n")
        assert version == _VERSION, f"another layout of Spark's file log. version={version}"
        return [entry for line in lines if (entry := json.loads(line))["batchId"] == number]

    def _folder(self, source: StreamSource) -> Path:
        return self._root / "sources" / str(source.number)


def query_conf(session: SparkSession) -> dict[str, str]:
    """The settings that Spark records with a query's offsets, as the session has them now."""
    metadata = java_class(session, "org.apache.spark.sql.execution.streaming.checkpointing.OffsetSeqMetadata")
    written = json.loads(metadata.apply(0, 0, session._jsparkSession.conf()).json())  # noqa: SLF001
    # Spark takes the partitions from an internal setting, which it derives from this one when a query starts.
    return {**written["conf"], _PARTITIONS: str(session.conf.get(_PARTITIONS))}


def build_checkpoint(
    sources: Sequence[StreamSource],
    positions: Sequence[SourcePosition],
    files: Mapping[int, Iterable[pa.Table]],
    batch_id: int | None,
    conf: Mapping[str, str],
    unique: str,
) -> SparkCheckpoint:
    """Build a folder from which Spark resumes after `batch_id` (None: the stream has no batch yet) at these positions.

    `positions` are in the order of `sources`; `files` has, for the index of each file source, all files it has seen,
    spelled as Spark does (`seen_files`), in pieces: no more than one is held.
    `conf` is the session's `query_conf`: without it Spark warns of each setting. `unique` is 32 unique hexadecimal
    digits.
    """
    root = Path(tempfile.mkdtemp(prefix="checkpoint-", dir=process_folder()))
    checkpoint = SparkCheckpoint(root, sources, max(batch_id or 0, _FIRST_BATCH))
    try:
        _fill(root, checkpoint.last_batch, sources, positions, files, conf, unique)
    except BaseException:
        checkpoint.remove()
        raise
    return checkpoint


def _fill(
    folder: Path,
    last_batch: int,
    sources: Sequence[StreamSource],
    positions: Sequence[SourcePosition],
    files: Mapping[int, Iterable[pa.Table]],
    conf: Mapping[str, str],
    unique: str,
) -> None:
    lines = [_NO_POSITION] * sum(len(source.lines) for source in sources)
    for index, (source, position) in enumerate(zip(sources, positions, strict=True)):
        offset = position.current
        if source.reads_files and offset is not None:
            offset = _SEEN_OFFSET
            _write_seen(folder / "sources" / str(source.number) / f"{_SEEN_LOG}.compact", files[index])
        if position.initial is not None:
            _write(folder / "sources" / str(source.number) / "0", [position.initial])
        for line in source.lines:
            lines[line] = offset or _NO_POSITION
    digits = iter(unique)
    uuid = "-".join("".join(next(digits) for _ in range(length)) for length in (8, 4, 4, 4, 12))
    _write(folder / "metadata", [json.dumps({"id": uuid})])
    log = [_VERSION, json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": dict(conf)}), *lines]
    # Spark also checks that the offsets of the batch before the last exist.
    for batch in (last_batch - 1, last_batch):
        _write(folder / "offsets" / str(batch), log)
    _write(folder / "commits" / str(last_batch), [_VERSION, "{}"])


def _log_offset(offset: str) -> int:
    return int(json.loads(offset)["logOffset"])


def _write_seen(path: Path, pieces: Iterable[pa.Table]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as log:
        log.write(_VERSION)
        for piece in pieces:
            paths = piece["path"]
            if pc.any(pc.match_substring_regex(paths, r'["\\\x00-\x1f]')).as_py():
                quoted = pa.chunked_array([[json.dumps(each) for each in paths.to_pylist()]], pa.string())
            else:
                quoted = pc.binary_join_element_wise('"', paths, '"', "")
            times = piece["modified_ms"].cast(pa.string())
            tail = f', "batchId": {_SEEN_LOG}}}'
            lines = pc.binary_join_element_wise('\n{"path": ', quoted, ', "timestamp": ', times, tail, "")
            log.writelines(lines.to_pylist())


def _write(path: Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines), encoding="utf-8")


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
        begins, ends = next_offsets(position), parse_offsets(advance.current)
        for (topic, partition), end in sorted(ends.items()):
            begin = begins.get((topic, partition), 0)
            if end > begin:
                yield f"{topic}-{partition} offsets {begin} to {end - 1}"
