"""What a table was that a stream began with, compared with what it is when it is read again."""

from dataclasses import replace

import pytest

from dagster_ckpt.protocol.manifest.manifest import ColumnDigest, InitialTable

THEN = InitialTable(
    3, (ColumnDigest("shop", "string", "11"), ColumnDigest("amount", "bigint", "22")), 1, ("file:/archive/1.parquet",)
)


@pytest.mark.parametrize(
    "now",
    [
        THEN,
        replace(THEN, files=2, paths=("file:/archive/2.parquet", "file:/archive/3.parquet")),
        replace(THEN, columns=THEN.columns[::-1]),
        replace(THEN, columns=(*THEN.columns, ColumnDigest("more", "string", "33"))),
        replace(THEN, columns=THEN.columns[:1]),
        replace(THEN, columns=(THEN.columns[0], ColumnDigest("amount", "double", "44"))),
    ],
)
def test_the_same_rows_are_the_same_table_in_whatever_files_and_columns(now: InitialTable) -> None:
    assert THEN.differences(now) == []


def test_more_rows_are_told_with_the_files_that_came() -> None:
    grown = replace(THEN, rows=4, files=2, paths=(*THEN.paths, "file:/archive/2.parquet"))
    expected = ["rows=3 then, 4 now", "files=1 then, 2 now", "new_files=['file:/archive/2.parquet']"]
    assert THEN.differences(grown) == expected
    many = replace(THEN, files=100)
    assert many.differences(replace(grown, files=101)) == ["rows=3 then, 4 now", "files=100 then, 101 now"]
    assert replace(THEN, files=0, paths=()).differences(replace(THEN, rows=2, files=0, paths=())) == [
        "rows=3 then, 2 now"
    ]


def test_other_values_in_as_many_rows_are_told_by_column() -> None:
    other = replace(THEN, columns=(THEN.columns[0], ColumnDigest("amount", "bigint", "23")))
    assert THEN.differences(other) == ["rows=3 then, 3 now", "files=1 then, 1 now", "changed_columns=['amount']"]
