import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_of_ours_leads_to_one(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def test_every_decision_has_its_number_and_its_three_parts() -> None:
    decisions = sorted((ROOT / "docs/decisions").glob("*.md"))
    for number, page in enumerate(decisions, start=1):
        text = page.read_text()
        assert page.name.startswith(f"{number:04d}-")
        assert text.startswith(f"# {number}. ")
        for part in ("**Context.**", "**Decision.**", "**What else was thought of.**"):
            assert part in text, (page.name, part)
