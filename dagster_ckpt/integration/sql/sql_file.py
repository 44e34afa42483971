"""The text of a file of SQL, cut into statements, and places in it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlglot import Token, TokenType
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import TokenError

from dagster_ckpt.errors import InvalidPipelineError

DIALECT = "databricks"
"""Spark's SQL with the statements of its pipelines."""

_OPENED = re.compile(r"Missing (.+) from (\d+):\d+")


@dataclass(frozen=True, slots=True)
class FileLine:
    """A line of a file, counted from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def error(self, problem: str, **names: object) -> InvalidPipelineError:
        """The error to raise for a problem at this line."""
        values = {**names, "file": self.file, "line": self.line}
        return InvalidPipelineError(f"{problem} {', '.join(f'{name}={value}' for name, value in values.items())}")


@dataclass(frozen=True, slots=True)
class SqlFile:
    """A file's text. `path` is None for a text that is in no file."""

    name: str
    text: str
    path: Path | None = None

    def place(self, offset: int) -> FileLine:
        """The line of the character at this offset."""
        return FileLine(self.name, self.text.count("\n", 0, offset) + 1)


@dataclass(frozen=True, slots=True)
class Statement:
    """The tokens of one statement, without its semicolon."""

    file: SqlFile
    tokens: tuple[Token, ...]

    @property
    def place(self) -> FileLine:
        return self.file.place(self.tokens[0].start)


def split_statements(file: SqlFile) -> Iterator[Statement]:
    """The statements of a file. Raises `InvalidPipelineError` for a text or a comment without its end."""
    found: list[Token] = []
    for token in [*_tokens(file), None]:
        if token is not None and token.token_type is not TokenType.SEMICOLON:
            found.append(token)
        elif found:
            yield Statement(file, tuple(found))
            found = []


def _tokens(file: SqlFile) -> list[Token]:
    try:
        return Dialect.get_or_raise(DIALECT).tokenize(file.text)
    except TokenError as error:
        opened = _OPENED.search(str(error.__cause__))
        place = FileLine(file.name, int(opened[2]) if opened else file.text.count("\n") + 1)
        what = f"a text or name that begins with {opened[1]}" if opened else "a comment or a text"
        raise place.error(f"{what} has no end: close it.") from error
