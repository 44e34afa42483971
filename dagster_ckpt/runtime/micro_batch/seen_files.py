"""The files that a file source has seen, as Spark's checkpoint must spell them now.

Spark takes a file for new unless its exact address is in that log. A manifest keeps addresses without secrets, and from
before a folder was moved. So each address is completed, one piece of the list at a time:

    moved       the prefix becomes the folder's present address
    user        the part before the host is taken from the source's present address
    parameters  (`part.csv?sig=...`) their values are not kept. The source is listed: a file there was seen if it has
                the same address apart from the values, and the same modification time
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from dagster_ckpt.errors import IncompatibleStateError, InvalidPipelineError
from dagster_ckpt.protocol.manifest.manifest import FileSeen, FilesMoved
from dagster_ckpt.protocol.redaction import redacted_file, user_in
from dagster_ckpt.runtime.declared.sources import StreamSource, spark_spelling
from dagster_ckpt.runtime.spark.file_index import SEPARATOR, file_index, file_states, joined_addresses

SEEN = pa.schema([("path", pa.string()), ("modified_ms", pa.int64())])

_NO_USER = r"^([A-Za-z][A-Za-z0-9+.-]*://)"
_QUERY = r"(?i)\?|%3F"
_PATTERN = re.compile(r"[*?{}\[\]\\]|%(?:2A|3F|5B|5C|5D|7B|7D)", re.IGNORECASE)
"""What Spark takes for a pattern in a path, as its source log spells the path."""


def refuse_files_read_twice(asset: str, files: Sequence[FileSeen]) -> None:
    """Raise `InvalidPipelineError` where Spark has read the files of one source's micro-batch more than once.

    For each file whose path looks like a pattern, Spark 4.2's `DataSource` lists all files of the micro-batch once
    more. A micro-batch of one file is read as it is.
    """
    if len(files) < 2:
        return
    found = next((file for file in files if _PATTERN.search(file.path)), None)
    if found is not None:
        raise InvalidPipelineError(
            "Spark reads a micro-batch of several files more than once where a path in it has one of *?[]{}\\, so it "
            "is not committed. Read one file at a time with .option('maxFilesPerTrigger', '1'), or rename "
            f"the files. asset={asset}, file={found.path}, files={len(files)}"
        )


def current_spelling(
    asset: str,
    seen: Iterable[Mapping[str, Sequence[Any]]],
    moved: Sequence[FilesMoved],
    source: StreamSource,
    session: SparkSession,
) -> Iterator[pa.Table]:
    """The files seen, in the form of `SEEN`, with each `path` as Spark spells it today; a table a piece of the list.

    Lists the source where necessary, after all pieces. Raises `IncompatibleStateError` where several files differ only
    in the values of their parameters, and only some of them were seen.
    """
    user, at = user_in(source.path), 0
    moves = [(_pattern(session, each.old), _prefix(session, each.new), each.entries) for each in moved]
    with_values: Counter[FileSeen] = Counter()
    for columns in seen:
        table = pa.table({name: pa.array(columns[name], SEEN.field(name).type) for name in SEEN.names}, SEEN)
        paths = _apply_moves(table["path"], at, moves)
        at += table.num_rows
        had_values = pc.match_substring_regex(paths, _QUERY)
        if pc.any(had_values).as_py():
            few = table.set_column(0, "path", paths).filter(had_values)
            with_values.update(map(FileSeen, few["path"].to_pylist(), few["modified_ms"].to_pylist()))
        if user:
            paths = pc.replace_substring_regex(paths, _NO_USER, rf"\1{_literally(user)}@")
        yield table.set_column(0, SEEN.field(0), paths)
    if with_values:
        yield files_table(match_files(asset, with_values, list_files(session, source)))


def match_files(asset: str, seen: Counter[FileSeen], there: Iterable[FileSeen]) -> list[FileSeen]:
    """Those of the files in `there` that were seen; `seen` has their redacted addresses.

    Raises `IncompatibleStateError` where that is ambiguous.
    """
    alike: dict[FileSeen, list[FileSeen]] = defaultdict(list)
    for file in there:
        redacted = FileSeen(redacted_file(file.path), file.modified_ms)
        if redacted in seen:
            alike[redacted].append(file)
    for redacted, files in alike.items():
        if len(files) > seen[redacted]:
            raise IncompatibleStateError(
                "only some of these files were read, and which is not known: they differ only in what comes "
                "after the question mark in their names, which is never kept, since it may be a secret. Give those "
                "that are new other names, or another modification time. "
                f"asset={asset}, file={redacted.path}, there={len(files)}, read={seen[redacted]}"
            )
    return [file for files in alike.values() for file in files]


def files_table(files: Iterable[FileSeen]) -> pa.Table:
    """Files seen as one table of `SEEN`."""
    rows = [{"path": file.path, "modified_ms": file.modified_ms} for file in files]
    return pa.Table.from_pylist(rows, SEEN)


def list_files(session: SparkSession, source: StreamSource) -> list[FileSeen]:
    """The files that a file source would read now, listed and spelled as Spark's source does."""
    index = file_index(session, source.path, dict(source.identity.options))
    addresses = joined_addresses(session, index).split(SEPARATOR)
    times = [int(_MODIFIED.findall(state)[-1]) for state in file_states(index)]
    return [FileSeen(address, time_ms) for address, time_ms in zip(addresses, times, strict=True)] if times else []


_MODIFIED = re.compile(r"; modification_time=(-?\d+);")


def _apply_moves(paths: pa.ChunkedArray, at: int, moves: Sequence[tuple[str, str, int]]) -> pa.ChunkedArray:
    """The addresses after each later move; `at` is how many addresses precede these in the list."""
    for pattern, prefix, entries in moves:
        count = min(max(entries - at, 0), len(paths))
        if count:
            there = pc.replace_substring_regex(paths.slice(0, count), pattern, prefix)
            paths = pa.chunked_array([*there.chunks, *paths.slice(count).chunks], pa.string())
    return paths


def _pattern(session: SparkSession, folder: str) -> str:
    spelled = spark_spelling(session, folder)
    local = re.fullmatch("file:/+(.*)", spelled, re.DOTALL)
    literal = re.escape(spelled) if local is None else "file:/+" + re.escape(local[1])
    return f"^{literal}(/|$)"


def _prefix(session: SparkSession, folder: str) -> str:
    return _literally(re.sub("^file:/+", "file:///", spark_spelling(session, folder))) + r"\1"


def _literally(text: str) -> str:
    return text.replace("\\", "\\\\")
