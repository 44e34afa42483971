"""The site of the docs, opened from the disk: as a reader without a network sees it, on a screen and on a phone."""

import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[2]
PAGES = (
    *("index", "steps", "glossary", "benchmarks", "operations/watch", "operations/read", "decisions/README"),
    *("reference/options", "reference/cli", "reference/api/declare", "reference/api/read", "reference/api/process"),
)
WIDTHS = (1400, 1000, 390)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-d", str(folder / "read"), "-b", "html", "docs"]
    subprocess.run([*command, str(folder / "html")], cwd=ROOT, check=True)
    return folder / "html"


def opened(browser: Browser, width: int) -> tuple[Page, list[str]]:
    """A new page, and the addresses that it asks for."""
    page = browser.new_page(viewport={"width": width, "height": 844})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    return page, asked


def test_search_works_from_the_disk_and_no_other_host_is_asked(browser: Browser, site: Path) -> None:
    page, asked = opened(browser, 1400)
    page.goto((site / "index.html").as_uri())
    page.get_by_placeholder("Search").fill("watermark")
    page.keyboard.press("Enter")
    page.get_by_text("matching the search query").wait_for()
    found = page.locator("#search-results li a").all_inner_texts()
    assert "The steps of a stream" in found
    assert "dagster_ckpt.Stream.with_watermark" in found
    assert [address for address in asked if not address.startswith("file:")] == []
    page.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_is_wider_than_the_window(browser: Browser, site: Path, width: int) -> None:
    page, asked = opened(browser, width)
    wider = []
    for name in PAGES:
        page.goto((site / f"{name}.html").as_uri())
        if page.evaluate("document.documentElement.scrollWidth") > width:
            wider.append(name)
    assert wider == []
    assert [address for address in asked if not address.startswith("file:")] == []
    page.close()


def test_an_option_is_read_on_a_phone_without_scrolling_sideways(browser: Browser, site: Path) -> None:
    page, _ = opened(browser, 390)
    page.goto((site / "reference/options.html").as_uri())
    table = page.locator("section#options table").first
    assert table.evaluate("each => each.parentElement.scrollWidth <= each.parentElement.clientWidth")
    meaning = table.locator("tr").filter(has_text="checkpoint_interval").first.locator("td").last.bounding_box()
    assert meaning is not None
    assert meaning["x"] + meaning["width"] <= 390
    page.close()
