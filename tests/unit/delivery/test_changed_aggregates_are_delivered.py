"""A stream is opened with other aggregates: its table has their columns before the next epoch is there."""

from pathlib import Path

from dagster_ckpt.operators import agg
from tests.unit.delivery.delivering import Delivering
from tests.unit.history.made_streams import departures
from tests.unit.history.test_aggregates_that_changed import DELAY, changed, of

BEFORE = of(mean=agg.avg(DELAY))
AFTER = of(mean=agg.avg(DELAY), total=agg.sum(DELAY))
COLUMNS = "carrier, mean, total"


def test_a_delivery_begins_with_the_table_as_it_is_now(tmp_path: Path) -> None:
    delivering = Delivering(tmp_path, operator=BEFORE)
    delivering.stream.commit(departures({"UA": [9.0, 3.0], "AA": [5.0]}))
    changed(delivering.stream, AFTER)
    delivering.deliver()
    assert delivering.delivered(COLUMNS) == delivering.table() == [("AA", 5.0, 5.0), ("UA", 6.0, 12.0)]
    delivering.stream.commit(departures({"UA": [3.0]}))
    delivering.deliver()
    assert delivering.delivered(COLUMNS) == delivering.table() == [("AA", 5.0, 5.0), ("UA", 5.0, 15.0)]


def test_a_table_is_replaced_by_what_it_is_now(tmp_path: Path) -> None:
    """The stream went back with its new code."""
    delivering = Delivering(tmp_path, operator=BEFORE)
    first = delivering.stream.commit(departures({"UA": [9.0, 3.0], "AA": [5.0]}))
    delivering.stream.commit(departures({"UA": [9.0, 3.0], "AA": [5.0]}))
    delivering.deliver()
    changed(delivering.stream, AFTER, from_epoch=first)
    delivering.deliver()
    assert delivering.delivered(COLUMNS) == delivering.table() == [("AA", 5.0, 5.0), ("UA", 6.0, 12.0)]
