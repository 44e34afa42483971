"""The files of Spark's sql-tests: statements in SQL that Spark's own tests run, each with what it gives."""

import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_INPUTS = "sql-tests/inputs/"
_PIECE = re.compile(
    r"--QUERY-DELIMITER-(?P<mark>START|END)[^\n]*|(?P<comment>--[^\n]*|/\*(?!\+).*?\*/)|(?P<end>;)"
    r"|'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|`[^`]*`|[^-/;'\"`]+|.",
    re.DOTALL,
)
"""A comment, the end of a statement, a text or a name in quotes, or what is between them."""
_IMPORT = re.compile(r"^--IMPORT (.*)$", re.MULTILINE)
_SET = re.compile(r"^--SET (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class SqlFile:
    """A file's statements in their order, and the settings that it asks for."""

    statements: tuple[str, ...]
    settings: Mapping[str, str]


class SqlFiles:
    """Those in the jar of Spark's tests."""

    def __init__(self, jar: Path) -> None:
        self._jar = zipfile.ZipFile(jar)

    def file(self, name: str) -> SqlFile:
        """The file of this name, with the statements of the files that it imports before its own."""
        text = self._text(name)
        text = "\n".join([*map(self._text, _IMPORT.findall(text)), text])
        settings = dict(each.strip().split("=", 1) for line in _SET.findall(text) for each in line.split(","))
        return SqlFile(tuple(filter(None, _statements(text))), settings)

    def data(self, name: str) -> str:
        """A file of the rows that Spark's tests read."""
        return self._jar.read(f"test-data/{name}").decode()

    def _text(self, name: str) -> str:
        return self._jar.read(_INPUTS + name.strip()).decode()


def _statements(text: str) -> Iterator[str]:
    """As Spark's tests cut them: at semicolons, but for those between two marks."""
    statement, marked = "", False
    for piece in _PIECE.finditer(text):
        marked = marked if piece["mark"] is None else piece["mark"] == "START"
        if piece["mark"] == "END" or (piece["end"] and not marked):
            yield statement.strip().rstrip(";")
            statement = ""
        elif not piece["mark"] and not piece["comment"]:
            statement += piece[0]
    yield statement.strip()
