"""All statements of some files of SQL, by the names that they declare."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.integration.sql.sql_file import SqlFile
from dagster_ckpt.integration.sql.statements import Declared, SqlSourceView, SqlTable, declarations

TEXT = "<text>"
"""The name of a text that is in no file."""


def read_files(sql: str | Path) -> list[SqlFile]:
    """The files of a folder and of those below it, in the order of their names; one file; or a text.

    Raises `InvalidPipelineError` for a path at which there is no such file.
    """
    if isinstance(sql, str) and _is_text(sql):
        return [SqlFile(TEXT, sql)]
    path = Path(sql)
    paths = sorted(path.rglob("*.sql")) if path.is_dir() else [path] if path.is_file() else []
    if not paths:
        raise InvalidPipelineError(
            "no SQL found: pass a folder with .sql files, a single .sql file, or a text that begins with CREATE. "
            f"path={path.absolute()}"
        )
    return [SqlFile(str(each), each.read_text(encoding="utf-8"), each.absolute()) for each in paths]


def _is_text(sql: str) -> bool:
    words = sql.split(maxsplit=1)
    return any(sign in sql for sign in "\n;") or (len(words) > 1 and words[0].upper() == "CREATE")


@dataclass(frozen=True, slots=True)
class Project:
    """What the statements declare. Names are found as Spark finds them: upper and lower case are the same."""

    declared: tuple[Declared, ...]
    prefix: tuple[str, ...]

    @classmethod
    def of(cls, files: Sequence[SqlFile], prefix: Sequence[str]) -> "Project":
        """Those of these files. Raises `InvalidPipelineError` for a name that is declared twice, and for none."""
        declared = tuple(each for file in files for each in declarations(file))
        names: dict[str, Declared] = {}
        for each in declared:
            other = names.setdefault(each.name.casefold(), each)
            if other is not each:
                raise each.place.error("this name is taken: give another.", name=each.name, other=other.place)
        project = cls(declared, tuple(prefix))
        if not project.tables:
            raise InvalidPipelineError(
                "no statement makes an asset: write CREATE MATERIALIZED VIEW name AS SELECT ..., or CREATE STREAMING "
                f"TABLE. files={[file.name for file in files]}"
            )
        return project

    @property
    def tables(self) -> list[SqlTable]:
        return [each for each in self.declared if isinstance(each, SqlTable)]

    @property
    def sources(self) -> list[SqlSourceView]:
        return [each for each in self.declared if isinstance(each, SqlSourceView)]

    def find(self, name: str) -> Declared | None:
        return next((each for each in self.declared if each.name.casefold() == name.casefold()), None)

    def key(self, name: str) -> dg.AssetKey:
        """The asset key of what has this name."""
        return dg.AssetKey([*self.prefix, name])
