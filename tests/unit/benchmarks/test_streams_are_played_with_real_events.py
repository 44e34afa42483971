"""The streams of `make fifty` cost Dagster what real ones do: their runs, leases and events are real."""

import importlib
from pathlib import Path

import dagster as dg
import pytest

from benchmarks.fifty import played_stream
from benchmarks.fifty.names import STREAMS_VARIABLE, URL_VARIABLE
from benchmarks.fifty.played_stream import PlayedStream
from dagster_ckpt import CheckpointStore
from tests.chaos.stored_events import Counts, added_up, events_of


def test_what_a_played_stream_reports_is_what_it_has_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = (tmp_path / "checkpoints").as_uri()
    monkeypatch.setenv(STREAMS_VARIABLE, "2")
    monkeypatch.setenv(URL_VARIABLE, url)
    monkeypatch.setattr(played_stream, "EVENT_INTERVAL_MS", 0)
    location = importlib.import_module("benchmarks.fifty.location")
    with dg.DagsterInstance.ephemeral() as instance:
        stream = PlayedStream(instance, location.defs.resolve_job_def("stream_01_job"), "stream_01", url)
        history = CheckpointStore(url).stream("stream_01")
        assert not history.writer().ended, "its lease beats"
        for _ in range(3):
            stream.commit()
            stream.measured()
            stream.idle()
        stream.end()
        events = events_of(instance, "stream_01")
        assert added_up(events).wrong is None
        assert events[-1].totals == Counts.of(history.manifest())
        assert events[-1].totals.epochs == 3
        assert history.writer().closed == "input_done"
        [run] = instance.get_runs()
        assert (run.status, run.job_name) == (dg.DagsterRunStatus.SUCCESS, "stream_01_job")
