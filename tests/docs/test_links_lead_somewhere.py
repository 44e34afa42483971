"""The links of the pages that are not of the site. `make check` builds that, and finds those of its pages."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), ROOT / "docs/operating.md", *sorted((ROOT / "examples").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_of_ours_leads_to_one(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_heading_of_ours_leads_to_one(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text())
    ours = [(page.parent / file if file else page, anchor) for file, anchor in links if "://" not in file]
    assert [anchor for target, anchor in ours if anchor not in anchors(target)] == []


def anchors(page: Path) -> set[str]:
    """What GitHub calls the page's headings by."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
