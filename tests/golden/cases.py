"""Expected results that others have published: read where they lie, never copied."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2].parent / "shared" / "golden"
"""Beside the project's root."""


def cases_of(file: str) -> dict[str, Any]:
    """The contents of one of the files; skips the test where there are none."""
    path = FOLDER / file
    if not path.exists():
        pytest.skip(f"published results are not here: {file}")
    cases: dict[str, Any] = json.loads(path.read_text())
    return cases


def micros(text: str | None) -> int | None:
    """A moment, as the files spell it, in microseconds since the Unix epoch."""
    if text is None:
        return None
    moment = datetime.fromisoformat(text).replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
