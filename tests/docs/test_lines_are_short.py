"""A page reads well in an editor and in a diff."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINE_MAX = 120


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_line_of_prose_is_longer_than_120_characters(page: Path) -> None:
    assert [line for line in prose(page.read_text()) if len(line) > LINE_MAX] == []


def prose(text: str) -> list[str]:
    """The lines but those of code and tables, without the addresses of links."""
    without_code = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    lines = [line for line in without_code.splitlines() if not line.startswith(("|", "    "))]
    return [re.sub(r"\]\([^)]*\)", "]", line) for line in lines]
