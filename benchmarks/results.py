"""The JSON files in which figures are kept: one a part, an entry for each cell, written as soon as the cell is done."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.facts import Machine
from benchmarks.plan import Cell


@dataclass(frozen=True)
class Measured:
    """A cell's figures as measured, the settings they are of, and under what circumstances they were taken."""

    figures: Mapping[str, Any]
    settings: Mapping[str, Any]
    machine: Machine
    fsync_ms: float
    date: str
    commit: str
    code: str
    command: str
    took_s: int

    def is_of(self, cell: Cell, machine: Machine, code: str) -> bool:
        """Whether measuring the cell again would measure the same."""
        return (self.settings, self.machine, self.code) == (settings_of(cell), machine, code)


def settings_of(cell: Cell) -> dict[str, Any]:
    """The cell's settings as JSON gives them back."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(cell)))
    return plain


def load(folder: Path) -> dict[str, Measured]:
    """Every cell that was measured, by its name."""
    return {
        f"{path.stem}/{name}": Measured(**entry)
        for path in sorted(folder.glob("*.json"))
        for name, entry in json.loads(path.read_text()).items()
    }


def save(folder: Path, name: str, measured: Measured) -> None:
    """Put a cell in its part's file, in place of what was there. A crash leaves the file as it was."""
    part, _, what = name.partition("/")
    path = folder / f"{part}.json"
    entries = json.loads(path.read_text()) if path.exists() else {}
    entries[what] = asdict(measured)
    folder.mkdir(parents=True, exist_ok=True)
    _write(path, entries)


def remove(folder: Path, name: str) -> None:
    """Take a cell's entry out of its part's file, where it has one."""
    part, _, what = name.partition("/")
    path = folder / f"{part}.json"
    entries = json.loads(path.read_text()) if path.exists() else {}
    if entries.pop(what, None) is not None:
        _write(path, entries)


def _write(path: Path, entries: dict[str, Any]) -> None:
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(_text(entries))
    unfinished.replace(path)


def _text(entries: dict[str, Any]) -> str:
    """JSON to be read by people too: a list of plain values takes one line."""
    text = json.dumps(entries, indent=2, sort_keys=True)
    return re.sub(r"\[[^\[\]{}]*\]", lambda values: re.sub(r"\s+", " ", values[0]), text) + "\n"
