"""Each decision has one page in one form, and a line in the index."""

import re
from pathlib import Path

import pytest

DECISIONS = Path(__file__).parents[2] / "docs/decisions"
PAGES = sorted(DECISIONS.glob("[0-9]*.md"))
PARTS = ("\n\nStatus: ", "**Context.**", "**Decision.**", "**Alternatives.**")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name[:4])
def test_a_page_has_its_number_its_status_and_its_parts(page: Path) -> None:
    text = page.read_text()
    assert text.startswith(f"# {int(page.name[:4])}. ")
    assert [part for part in PARTS if part not in text] == []


def test_no_two_pages_share_a_number() -> None:
    numbers = [page.name[:4] for page in PAGES]
    assert len(numbers) == len(set(numbers))  # gaps are fine


def test_the_index_has_each_page_once_under_its_title() -> None:
    index = re.findall(r"^\| \[(\d+)\]\((\S+)\) \| (.*) \|$", (DECISIONS / "README.md").read_text(), re.MULTILINE)
    titles = [page.read_text().splitlines()[0] for page in PAGES]
    pages = [(f"# {number}. {title}", file) for number, file, title in index]
    assert sorted(pages) == sorted(zip(titles, (page.name for page in PAGES), strict=True))
