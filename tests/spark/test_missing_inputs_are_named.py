"""Input that is deleted while a stream runs: the run names it, and the next one goes on once it is restored."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dagster_ckpt.errors import CheckpointError
from dagster_ckpt.runtime.driver.stream_job import JobHooks
from dagster_ckpt.runtime.micro_batch.epoch_driver import CommittedEpoch
from tests.spark.streams import FAST, StreamUnderTest
from tests.spark.test_nothing_is_lost_and_nothing_counted_twice import expected, fill, totals


def test_source_folder_deleted_in_a_run_is_named_and_the_run_after_it_is_back_goes_on(
    stream: StreamUnderTest, inbox: Path, tmp_path: Path
) -> None:
    fill(inbox, 0, 3)
    away = tmp_path / "away"

    def move_away(epoch: CommittedEpoch) -> None:
        if inbox.exists():
            shutil.move(inbox, away)

    with pytest.raises(CheckpointError, match="what the stream reads is not there") as raised:
        stream.run(totals(inbox), replace(FAST, tolerable_failures=1), JobHooks(on_commit=move_away))
    assert str(raised.value).endswith(f"asset=flights/delays, path={inbox.as_uri().replace('///', '/')}")
    assert stream.rows() == expected(0)
    shutil.move(away, inbox)
    stream.run(totals(inbox))
    assert stream.rows() == expected(0, 1, 2)
