"""How many files a source is asked for where its reader sets no limit."""

from typing import Any

import pytest

from dagster_ckpt.runtime.micro_batch import source_offsets
from dagster_ckpt.runtime.micro_batch.source_offsets import _FileSource


class Limit:
    """A limit of Spark's."""

    def __init__(self, name: str) -> None:
        self.name = name

    def getClass(self) -> "Limit":  # noqa: N802  (here and below: Java's names)
        return self

    def getSimpleName(self) -> str:  # noqa: N802
        return self.name


class Reader:
    """A reader with these options, and the source that it makes."""

    def __init__(self, limit: str, *options: str) -> None:
        self.limit, self.there = Limit(limit), options
        self.asked: list[Any] = []

    def createSource(self, _: str) -> "Reader":  # noqa: N802
        return self

    def options(self) -> "Reader":
        return self

    def contains(self, name: str) -> bool:
        return name in self.there

    def getDefaultReadLimit(self) -> Limit:  # noqa: N802
        return self.limit

    def latestOffset(self, _: None, limit: Limit) -> None:  # noqa: N802
        self.asked.append(limit.name)


class Limits:
    def maxFiles(self, files: int) -> Limit:  # noqa: N802
        return Limit(f"{files} files")


@pytest.mark.parametrize(
    ("reader", "files_max", "asked"),
    [
        (Reader("ReadAllAvailable"), 5_000, "5000 files"),
        (Reader("ReadMaxFiles"), 5_000, "ReadMaxFiles"),
        (Reader("ReadAllAvailable"), None, "ReadAllAvailable"),
        # Spark takes files for too old that are a week older than the newest, and knows only its own limit.
        (Reader("ReadAllAvailable", "latestFirst"), 5_000, "ReadAllAvailable"),
    ],
    ids=["none", "the user's", "a watermark", "the newest first"],
)
def test_a_limit_is_set_only_where_it_changes_no_row(
    reader: Reader, files_max: int | None, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_offsets, "java_class", lambda *_: Limits())
    source = _FileSource(None, reader, "file:/sources/0", files_max)  # type: ignore[arg-type]
    source.begin(until_now=False)
    assert source.next_offset("before") == "before"
    assert reader.asked == [asked]
