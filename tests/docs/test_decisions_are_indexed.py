"""Each decision has one short page in one form, and a line in the index, under the package that carries it out."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DECISIONS = ROOT / "docs/decisions"
PAGES = sorted(DECISIONS.glob("[0-9]*.md"))
WORDS_MAX = 1_000
PARTS = ("\n\nStatus: ", "**Context.**", "**Decision.**", "**Alternatives.**")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name[:4])
def test_a_page_has_its_number_its_status_and_its_parts(page: Path) -> None:
    text = page.read_text()
    assert text.startswith(f"# {int(page.name[:4])}. ")
    assert [part for part in PARTS if part not in text] == []
    assert len(text.split()) <= WORDS_MAX


def test_no_two_pages_share_a_number() -> None:
    numbers = [page.name[:4] for page in PAGES]
    assert len(numbers) == len(set(numbers))  # gaps are fine


def test_the_index_has_each_page_once_under_its_title() -> None:
    index = re.findall(r"^\| \[(\d+)\]\((\S+)\) \| (.*) \|$", (DECISIONS / "README.md").read_text(), re.MULTILINE)
    titles = [page.read_text().splitlines()[0] for page in PAGES]
    pages = [(f"# {number}. {title}", file) for number, file, title in index]
    assert sorted(pages) == sorted(zip(titles, (page.name for page in PAGES), strict=True))


def test_the_index_is_grouped_by_rooms_that_are_there() -> None:
    headings = re.findall(r"^## (.*)$", (DECISIONS / "README.md").read_text(), re.MULTILINE)
    rooms = [re.findall(r"`(\w+)`", heading) for heading in headings]
    assert all(rooms)
    named = [room for rooms_of_one in rooms for room in rooms_of_one]
    assert [room for room in named if not any((root / room).is_dir() for root in (ROOT, ROOT / "dagster_ckpt"))] == []
