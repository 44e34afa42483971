"""Pages in a real browser: run by `make test-browser`, and by nothing else, since it needs Chromium and Playwright."""

import io
import os
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.browser.shop import Shop

CHROMIUM = os.environ.get("DAGSTER_CKPT_TEST_CHROMIUM")
UPDATE = bool(os.environ.get("UPDATE"))
IMAGES = Path(__file__).parents[2] / "docs" / "images" / "ui"
BYTES_MAX = 200_000
"""A page of the docs has several images."""

collect_ignore_glob = [] if CHROMIUM else ["test_*.py"]


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    from playwright.sync_api import sync_playwright

    # Chromium's sandbox refuses to run as root, and what is shown here is our own.
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def keep(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, bytes], Path]:
    """Keeps a screenshot (PNG) by its name, with at most 256 colours.

    With UPDATE=1 it becomes the image of the docs; otherwise those stay as they are.
    """
    from PIL import Image

    folder = IMAGES if UPDATE else tmp_path_factory.mktemp("ui")
    folder.mkdir(parents=True, exist_ok=True)

    def keep(name: str, png: bytes) -> Path:
        image = Image.open(io.BytesIO(png)).convert("RGB").quantize(256, dither=Image.Dither.NONE)
        path = folder / f"{name}.png"
        image.save(path, optimize=True)
        assert path.stat().st_size < BYTES_MAX, f"too large for the docs. image={name}, bytes={path.stat().st_size}"
        return path

    return keep


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Shop]":
    from tests.browser.shop import open_shop

    shop = open_shop(tmp_path_factory.mktemp("browser") / "shop")
    shop.feed()
    yield shop
    shop.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """On a failure, keep what the page showed: its picture and its text."""
    report = yield
    page: Page | None = getattr(item, "funcargs", {}).get("page")
    if report.when == "call" and report.failed and page is not None:
        shown = Path(tempfile.mkdtemp(prefix="dagster-ckpt-page-"))
        page.screenshot(path=shown / "page.png")
        (shown / "page.txt").write_text(page.url + "\n" + page.locator("body").inner_text())
        report.sections.append(("What the page showed", str(shown)))
    return report


@pytest.fixture
def page(browser: "Browser") -> "Iterator[Page]":
    context = browser.new_context(
        viewport={"width": 1280, "height": 900}, locale="en-US", timezone_id="UTC", reduced_motion="reduce"
    )
    yield context.new_page()
    context.close()
