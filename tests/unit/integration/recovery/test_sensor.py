"""The skip reason of a tick of the recovery sensor."""

from dagster_ckpt.integration.recovery.sensor import REASON_MAX, skip_reason


def test_a_reason_names_few_streams_and_counts_many() -> None:
    assert skip_reason({"live": ["orders"]}) == "orders: live"
    reasons = {"live": [f"stream_{number}" for number in range(48)], "canceled": ["clicks", "carts"]}
    assert skip_reason(reasons) == "clicks, carts: canceled; 48 streams: live"


def test_a_long_reason_is_cut() -> None:
    reasons = {f"its lease was not renewed for {number} s; relaunch 1 of 5": [f"s{number}"] for number in range(50)}
    text = skip_reason(reasons)
    assert len(text) == REASON_MAX
    assert text.endswith("…")
