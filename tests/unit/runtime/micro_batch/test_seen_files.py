"""The files that Spark's checkpoint has as seen: with their present addresses, a piece at a time."""

import tracemalloc
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_ckpt.errors import IncompatibleStateError
from dagster_ckpt.protocol.manifest.manifest import FileSeen, FilesMoved, SourceIdentity
from dagster_ckpt.runtime.declared.sources import StreamSource
from dagster_ckpt.runtime.micro_batch import seen_files
from dagster_ckpt.runtime.micro_batch.seen_files import current_spelling, match_files

NO_SESSION = cast(SparkSession, None)


@pytest.fixture(autouse=True)
def _without_a_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_files, "spark_spelling", lambda session, address: address.replace(" ", "%20"))
    monkeypatch.setattr(seen_files, "list_files", lambda session, source: pytest.fail("nothing need be listed"))


def source_at(path: str) -> StreamSource:
    return StreamSource(SourceIdentity("csv", path), 0, (0,), reads_files=True, path=path)


def spelled(source: StreamSource, *pieces: list[str], moved: tuple[FilesMoved, ...] = ()) -> list[str]:
    seen: list[dict[str, list[Any]]] = [{"path": paths, "modified_ms": list(range(len(paths)))} for paths in pieces]
    tables = current_spelling("a", seen, moved, source, NO_SESSION)
    return [path for table in tables for path in table["path"].to_pylist()]


def test_ordinary_addresses_stay_as_they_are() -> None:
    paths = ["file:///in/a b.csv", "s3a://bucket/in/é.csv"]
    assert spelled(source_at("file:/in"), paths, []) == paths


def test_the_user_before_the_host_is_the_present_one() -> None:
    seen = ["ftp://host/in/a.csv", "ftp://host/in/b.csv"]
    now = ["ftp://me:n\\1w@host/in/a.csv", "ftp://me:n\\1w@host/in/b.csv"]
    assert spelled(source_at("ftp://me:n\\1w@host/in"), seen) == now
    assert spelled(source_at("ftp://host/in"), seen) == seen
    container = ["abfss://container@account/in/a.csv"]
    assert spelled(source_at("abfss://container@account/in"), container) == container


def test_only_what_was_seen_before_a_move_is_moved() -> None:
    moved = (FilesMoved("file:/in", "file:/in/new place", 3), FilesMoved("file:/in/new place", "s3a://bucket", 4))
    pieces = [["file:///in/0", "file:/in/1"], ["file:///in/2", "file:///in/new%20place/3"], ["s3a://bucket/4"]]
    assert spelled(source_at("s3a://bucket"), *pieces, moved=moved) == [
        "s3a://bucket/0",
        "s3a://bucket/1",
        "s3a://bucket/2",
        "s3a://bucket/3",
        "s3a://bucket/4",
    ]
    other = (FilesMoved("file:/i.", "s3a://bucket", 1),)
    assert spelled(source_at("file:/in"), ["file:///in/0"], moved=other) == ["file:///in/0"], "no pattern, and no part"


def test_files_whose_parameters_were_left_out_are_found_again_by_their_time() -> None:
    seen = Counter([FileSeen("file:///in/a%3F", 1), FileSeen("file:///in/a%3F", 2), FileSeen("file:///in/what%3F", 3)])
    first, second = FileSeen("file:///in/a%3Fsig=x", 1), FileSeen("file:///in/a%3Fsig=y", 2)
    new = [FileSeen("file:///in/a%3Fsig=z", 4), FileSeen("file:///in/b%3Fsig=x", 1)]
    what = FileSeen("file:///in/what%3F", 3)
    assert match_files("a", seen, [first, second, what, *new]) == [first, second, what]
    with pytest.raises(IncompatibleStateError, match=r"asset=a, file=file:///in/a%3F, there=2, read=1"):
        match_files("a", seen, [first, FileSeen("file:///in/a%3Fsig=z", 1)])


def test_the_source_is_listed_once_and_only_for_files_with_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    there = [FileSeen("file:///in/a%3Fsig=x", 1), FileSeen("file:///in/b", 0)]
    monkeypatch.setattr(seen_files, "list_files", lambda session, source: there)
    assert spelled(source_at("file:/in"), ["file:///in/b", "file:///in/a%3F"], ["file:///in/c"]) == [
        "file:///in/b",
        "file:///in/a%3F",
        "file:///in/c",
        "file:///in/a%3Fsig=x",
    ]


def test_only_one_piece_of_a_long_list_is_held() -> None:
    rows = 20_000

    def pieces(count: int) -> Iterator[dict[str, list[Any]]]:
        for piece in range(count):
            yield {"path": [f"file:///in/{piece}-{row}" for row in range(rows)], "modified_ms": [0] * rows}

    def peak(count: int) -> int:
        tracemalloc.start()
        before = pa.total_allocated_bytes()
        written = sum(
            table.num_rows for table in current_spelling("a", pieces(count), (), source_at("file:/in"), NO_SESSION)
        )
        assert written == count * rows
        found: int = tracemalloc.get_traced_memory()[1] + max(0, pa.total_allocated_bytes() - before)
        tracemalloc.stop()
        return found

    peak(1)
    assert peak(10) < 1.5 * peak(2)
