"""A delivery seen from the store, which holds no rows of it."""

from pathlib import Path

import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.history import CheckpointStore, StreamHistory
from dagster_ckpt.operators.explained.operator_text import operator_line
from tests.unit.delivery.delivering import Delivering
from tests.unit.history.made_streams import departures


@pytest.fixture
def delivery(tmp_path: Path) -> StreamHistory:
    delivering = Delivering(tmp_path)
    delivering.stream.commit(departures({"UA": [1.0]}))
    delivering.deliver()
    return CheckpointStore(delivering.url).stream("delays_in_sqlite")


def test_its_rows_are_elsewhere(delivery: StreamHistory) -> None:
    elsewhere = r"this is a delivery.*stream=delays, destination=sqlite:"
    with pytest.raises(InvalidPipelineError, match=elsewhere):
        delivery.read()
    with pytest.raises(InvalidPipelineError, match=elsewhere):
        delivery.get({"carrier": ["UA"]})
    with pytest.raises(InvalidPipelineError, match=elsewhere):
        delivery.changes(after=0)


def test_it_follows_its_stream_and_is_not_changed_by_itself(delivery: StreamHistory) -> None:
    epoch = delivery.latest().epoch
    with pytest.raises(InvalidPipelineError, match="cannot be rolled back"):
        delivery.rollback(0)
    with pytest.raises(InvalidPipelineError, match="cannot be forked"):
        delivery.fork("dev/delays_in_sqlite")
    with pytest.raises(InvalidPipelineError, match="cannot be resharded"):
        delivery.reshard(2)
    assert delivery.latest().epoch == epoch


def test_it_is_shown_as_what_it_is(delivery: StreamHistory) -> None:
    line = operator_line(delivery.manifest().pipeline)
    assert line.startswith("delivers the table to sqlite:")
    assert delivery.verify().findings == ()
    assert delivery.latest().rows_in == 1
