"""What a person reads in Dagster's UI about streams, in one Dagster whose streams run from the first test to the last.

The tests build on each other in this order: Dagster is started once, and departures come in until a test stops them.
"""

from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.shop import Shop, until

pytestmark = pytest.mark.timeout(900)

STREAM, DOWNSTREAM, BROKEN = "delay_by_carrier", "late_carriers", "refunds_by_shop"
SHOWN_MS = 30_000
"""How long the UI may take to show what Dagster has stored: two of its refreshes."""

Keep = Callable[[str, bytes], Path]

# The project lies in a folder of this run: the docs' images call it /shop.
WITHOUT_FOLDER = """folder => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) walker.currentNode.data = walker.currentNode.data.replaceAll(folder, '/shop');
}"""


def see(page: Page, text: str) -> Locator:
    """The first visible place with this text."""
    found = page.get_by_text(text).locator("visible=true").first
    expect(found).to_be_visible(timeout=SHOWN_MS)
    return found


def value(page: Page, label: str) -> str:
    """The value of a metadata entry that the page shows."""
    found = page.locator("tr").filter(has=page.get_by_text(label, exact=True)).locator("visible=true").first
    expect(found).to_be_visible(timeout=SHOWN_MS)
    return str(found.inner_text()).replace(label, "").strip()


def check_page(shop: Shop, stream: str, check: str) -> str:
    return f"{shop.url}/assets/{stream}?view=checks&checkDetail={check}"


def photograph(page: Page, shop: Shop, keep: Keep, name: str) -> None:
    page.mouse.move(0, 0)
    page.wait_for_timeout(1_000)  # whatever was still being drawn
    page.evaluate(WITHOUT_FOLDER, str(shop.folder))
    keep(name, page.screenshot(animations="disabled"))


def test_materialize_on_a_live_stream_succeeds_and_names_the_live_run(page: Page, shop: Shop, keep: Keep) -> None:
    live = shop.live_run(STREAM)
    page.goto(f"{shop.url}/assets/{STREAM}")
    see(page, "Row count")
    page.get_by_role("button", name="Materialize").first.click()
    ours = dg.RunsFilter(job_name="__ASSET_JOB")
    until("the run has ended", lambda: [run for run in shop.instance.get_runs(ours) if run.is_finished])
    [run] = shop.instance.get_runs(ours)
    assert run.is_success
    event = until("its event", lambda: shop.event(STREAM, "already_live"))
    page.goto(shop.url + event.page)
    assert value(page, "already_live") == f"already live, epoch {event.metadata['epoch'].value}, run {live}"
    assert value(page, "dagster/row_count") == "5"
    photograph(page, shop, keep, "already-live")
    page.get_by_role("link", name=live).first.click()
    page.wait_for_url(f"**/runs/{live}*")
    see(page, "Started")
    assert shop.live_run(STREAM) == live


def test_pins_and_forks_by_the_command_line_are_in_the_history(page: Page, shop: Shop) -> None:
    shop.command("pin", STREAM, "before-the-sale")
    shop.command("fork", DOWNSTREAM, "dev/late_carriers", "--yes")
    pinned = until("the pin is in the history", lambda: shop.event(STREAM, "pin"))
    page.goto(shop.url + pinned.page)
    see(page, f"Epoch {pinned.metadata['epoch'].value} is pinned as 'before-the-sale'.")
    forked = until("the fork is in the history", lambda: shop.event(DOWNSTREAM, "forked_to"))
    page.goto(shop.url + forked.page)
    see(page, f"Epoch {forked.metadata['epoch'].value} is forked to dev/late_carriers, and kept for it.")


def test_a_crash_loop_says_why_and_what_to_do(page: Page, shop: Shop, keep: Keep) -> None:
    shop.api.launch(f"{BROKEN}_job")
    shop.drop_refunds(("Aachen", "12.50"), ("Bonn", "7.25"))
    epoch = until("its first epoch", lambda: shop.epoch(BROKEN))
    shop.drop_refunds(("Bonn", "3.00"), ("Aachen", "n/a"))

    def failed() -> bool:
        found = shop.check(BROKEN, "no_crash_loop")
        return found is not None and not found.passed

    until("the sensor has given up", failed)
    page.goto(check_page(shop, BROKEN, "no_crash_loop"))
    see(page, f"3 Dagster runs in a row failed with the same error in the epoch that follows epoch {epoch}")
    see(page, "CAST_INVALID_INPUT")
    see(page, "'n/a'")
    for what_to_do in ("materialize the asset by hand", "code_version", "from_epoch"):
        see(page, what_to_do)
    # The page is no wider than the window.
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    photograph(page, shop, keep, "crash-loop")
    page.goto(check_page(shop, BROKEN, "is_live"))
    see(page, "Not running, and it should")
    see(page, "the check no_crash_loop says why and what to do")


def test_a_killed_run_is_replaced_by_one_that_says_so_and_links_to_it(page: Page, shop: Shop, keep: Keep) -> None:
    killed = shop.live_run(STREAM)
    shop.kill_run(killed)
    event = until("the sensor has recovered it", lambda: shop.event(STREAM, "replaces"))
    replacement = shop.live_run(STREAM)
    assert replacement != killed
    page.goto(shop.url + event.page)
    see(page, f"Recovered: this Dagster run replaces run {killed[:8]}. Why: its process is gone; relaunch 1 of 5.")
    assert value(page, "recoveries_last_day") == "1"
    photograph(page, shop, keep, "recovered-run")
    page.get_by_role("link", name=killed).first.click()
    page.wait_for_url(f"**/runs/{killed}*")
    see(page, "Failure")
    see(page, "The recovery sensor found this run dead: its process is gone")
    page.goto(f"{shop.url}/runs/{replacement}")
    see(page, "Started")
    page.get_by_role("button", name="View tags and config").click()
    see(page, f"dagster_ckpt/replaces: {killed}")
    see(page, "dagster_ckpt/reason: its process is gone; relaunch 1 of 5")


def test_a_quiet_stream_shows_that_it_lives_and_that_all_is_read(page: Page, shop: Shop) -> None:
    shop.stop_feeding()

    def quiet() -> bool:
        newest = shop.event(STREAM, "lag_seconds")
        return newest is not None and newest.is_observation and newest.metadata["lag_seconds"].value == 0

    until("an observation of the quiet stream", quiet)
    page.goto(f"{shop.url}/assets/{STREAM}?view=events")
    see(page, "Observed")
    for label in ("lag_seconds", "lag/files", "lag/bytes"):
        assert value(page, label) == "0"
    assert value(page, "epoch") == str(shop.epoch(STREAM))


def test_an_ordinary_asset_shows_what_it_made_of_the_newest_epoch(page: Page, shop: Shop) -> None:
    page.goto(f"{shop.url}/assets/delay_report")
    page.get_by_role("button", name="Materialize").first.click()
    made = until("the report", lambda: shop.event("delay_report", "late carriers"))
    page.goto(shop.url + made.page)
    see(page, "late carriers")
    see(page, "mean_delay")


def test_the_lineage_leads_from_the_files_to_the_report_and_all_of_it_is_in_sync(
    page: Page, shop: Shop, keep: Keep
) -> None:
    page.set_viewport_size({"width": 1280, "height": 560})
    page.goto(f"{shop.url}/locations/__repository__@shop/asset-groups/default/lineage")
    boxes = [see(page, name).bounding_box() for name in ("departures", STREAM, DOWNSTREAM, "delay_report")]
    lefts = [box["x"] for box in boxes if box is not None]
    assert len(lefts) == 4
    assert lefts == sorted(set(lefts)), "each to the right of what it reads"
    see(page, "streaming")
    see(page, "Passed")  # the checks: what is loaded last
    photograph(page, shop, keep, "lineage")
    assert page.get_by_text("Unsynced").count() == 0, "all is read"


def test_the_page_of_a_stream_tells_how_it_is(page: Page, shop: Shop, keep: Keep) -> None:
    page.set_viewport_size({"width": 1280, "height": 1400})
    page.goto(f"{shop.url}/assets/{STREAM}")
    see(page, "Row count")
    assert value(page, "lag_seconds").endswith("0")
    photograph(page, shop, keep, "asset")
    page.get_by_text("Plots").first.click()
    for label in ("rows_per_second", "lag_seconds", "epoch_milliseconds", "state_rows", "recoveries_last_day"):
        see(page, label).scroll_into_view_if_needed()
    see(page, "lag_seconds").scroll_into_view_if_needed()
    photograph(page, shop, keep, "plots")


@pytest.mark.parametrize(
    ("check", "words"),
    [
        ("is_live", "Live: the writer on"),
        ("no_crash_loop", "Succeeded"),
        ("has_recovery_sensor", "Restarted after a crash by the sensor streaming_recovery, while it is on."),
    ],
)
def test_each_check_of_a_live_stream_passes_and_says_why(page: Page, shop: Shop, check: str, words: str) -> None:
    page.goto(check_page(shop, STREAM, check))
    see(page, "Succeeded")
    see(page, words)
