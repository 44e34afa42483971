"""What one look at a writer's lease can say."""

from datetime import UTC, datetime, timedelta

import pytest

from dagster_ckpt.history import WriterInfo
from dagster_ckpt.history.info.writer_info import WriterStatus
from dagster_ckpt.ids import Term
from dagster_ckpt.protocol.lease import Life, interruption

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("life", "closed", "run", "beat_s", "status"),
    [
        (Life.BEATING, None, "r", 29, WriterStatus.LIVE),
        (Life.BEATING, None, "r", 31, WriterStatus.SILENT),
        (Life.BEATING, None, "r", -40, WriterStatus.LIVE),  # the store's clock is ahead
        (Life.BEATING, None, "r", None, WriterStatus.LIVE),
        (Life.LAPSED, None, "r", 5, WriterStatus.SILENT),
        (Life.DEAD, None, "r", 5, WriterStatus.DEAD),
        (Life.CLOSED, "input_done", "r", 900, WriterStatus.ENDED),
        (Life.CLOSED, interruption("SIGTERM"), "r", 900, WriterStatus.INTERRUPTED),
        (Life.CLOSED, "forked from epoch 3", "", 900, WriterStatus.NOT_RUNNING),
    ],
)
def test_the_status_of_a_writer(
    life: Life, closed: str | None, run: str, beat_s: int | None, status: WriterStatus
) -> None:
    beat_at = None if beat_s is None else NOW - timedelta(seconds=beat_s)
    writer = WriterInfo(Term(1), life, run, "i", "host", 1, closed=closed, timeout_ms=30_000, beat_at=beat_at)
    assert writer.status(NOW) is status


def test_a_writer_that_has_not_written_its_lease_is_opening_the_stream() -> None:
    assert WriterInfo(Term(1), Life.BEATING).status(NOW) is WriterStatus.OPENING
