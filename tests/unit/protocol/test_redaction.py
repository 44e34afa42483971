"""What may be a secret is left out by its place, whatever it is called."""

import pytest

from dagster_ckpt.protocol.redaction import (
    redacted_address,
    redacted_file,
    redacted_folder,
    redacted_text,
    user_in,
)


@pytest.mark.parametrize(
    ("address", "kept"),
    [
        ("s3a://key:secret@bucket/in", "s3a://bucket/in"),
        ("https://token@host/in", "https://host/in"),
        ("ftp://me:p@ss@host/in", "ftp://host/in"),
        ("file:/data/a@b", "file:/data/a@b"),
        ("file:///a@b/c", "file:///a@b/c"),
        ("jdbc:postgresql://me:secret@host:5432/db", "jdbc:postgresql://host:5432/db"),
        ("jdbc:postgresql://host/db?user=me&ssl=true&password=secret", "jdbc:postgresql://host/db"),
        ("jdbc:sqlserver://host;userName=me;PASSWORD=secret;database=db", "jdbc:sqlserver://host"),
        ("jdbc:oracle:thin:me/secret@//host:1521/db", "jdbc:oracle:thin:@//host:1521/db"),
        ("https://host/in?sv=2024&sig=a/b", "https://host/in"),
        ("https://host/in?X-Amz-Signature=abc&X-Amz-Credential=key", "https://host/in"),
        ("https://host/in?whatever=abc", "https://host/in"),
        ("abfss://container@account.dfs.core.windows.net/in", "abfss://container@account.dfs.core.windows.net/in"),
        ("wasbs://me:secret@account/in", "wasbs://account/in"),
    ],
)
def test_an_address_is_kept_without_user_and_parameters(address: str, kept: str) -> None:
    assert redacted_address(address) == kept
    assert redacted_address(kept) == kept


@pytest.mark.parametrize(
    ("folder", "kept"),
    [
        ("file:/data/day?sig=abc/in", "file:/data/day/in"),
        ("https://host/in?sig=a/b", "https://host/in"),
        ("file:/data/user=5/token?", "file:/data/user=5/token?"),
        ("file:/data/2024-0?/in/hour=1*", "file:/data/2024-0?/in/hour=1*"),
        ("file:/data/a;b=c/in", "file:/data/a;b=c/in"),
        ("s3a://key:secret@bucket/in", "s3a://bucket/in"),
    ],
)
def test_a_folder_may_be_a_pattern_and_is_kept_without_parameters(folder: str, kept: str) -> None:
    assert redacted_folder(folder) == kept


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("file:///in/a.csv", "file:///in/a.csv"),
        ("file:///in/a.csv%3Fsig=abc&access_key=key", "file:///in/a.csv%3F"),
        ("file:///in/day%3Fsig=abc/a.csv", "file:///in/day%3F/a.csv"),
        ("file:///in/what%3F.csv", "file:///in/what%3F.csv"),
        ("https://host/a.csv?api_key=a/b", "https://host/a.csv%3F"),
        ("ftp://me:pw@host/a.csv", "ftp://host/a.csv"),
    ],
)
def test_a_file_is_kept_with_a_mark_where_it_had_parameters(path: str, kept: str) -> None:
    assert redacted_file(path) == kept
    assert redacted_file(kept) == kept


def test_an_error_text_has_no_secrets() -> None:
    message = (
        "no such file: ftp://me:pw@host/a.csv?sig=abc, 'jdbc:sqlserver://host;user=me;password=pw' (https://host/a)"
    )
    assert redacted_text(message) == (
        "no such file: ftp://host/a.csv?..., 'jdbc:sqlserver://host;...' (https://host/a)"
    )
    plain = "a task failed. asset=a, epoch=3; mail me@host. file:///tmp/what?"
    assert redacted_text(plain) == plain


def test_the_user_before_a_host_is_known_and_a_container_is_none() -> None:
    assert user_in("ftp://me:pw@host/in") == "me:pw"
    assert user_in("abfss://container@account/in") == ""
    assert user_in("file:/data/a@b") == ""
