"""The late rows of a stream as a separate asset: its key, and its events."""

from dataclasses import replace

import dagster as dg
import pyarrow as pa
import pytest

from dagster_ckpt import Stream, late_rows, streaming_asset
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.ids import Epoch, Version
from dagster_ckpt.integration.events.event_totals import NOTHING
from dagster_ckpt.integration.events.step_events import EpochEvents, Event, EventLog
from dagster_ckpt.integration.reading.late_rows_asset import (
    LateRows,
    late_key,
    late_rows_reported,
    stream_of_late_key,
)
from dagster_ckpt.operators.shared.late_rows import KEEP, late_tables
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Manifest, Statistics
from dagster_ckpt.runtime.micro_batch.epoch_driver import CommittedEpoch
from tests.worlds.clock import StillClock
from tests.worlds.manifests import PIPELINE, a_manifest

KEY = dg.AssetKey(["flights", "delays"])
SOURCE = InputSpec((), pa.schema([("k", pa.string()), ("at", pa.timestamp("us"))]))


@pytest.mark.parametrize("number", [0, 1])
def test_the_key_says_whose_late_rows_they_are(number: int) -> None:
    key = late_key(KEY, number)
    assert key.path == ["flights", "delays_late_rows" + ("_1" if number else "")]
    assert stream_of_late_key(key) == (KEY, number)


@pytest.mark.parametrize("name", ["delays", "_late_rows", "delays_late_rows_0", "delays_late_rows_x", "late_rows"])
def test_another_key_has_no_late_rows(name: str) -> None:
    assert stream_of_late_key(dg.AssetKey(["flights", name])) is None


def test_the_asset_hangs_below_its_stream_and_is_loaded_as_a_streams_table_is() -> None:
    @streaming_asset(group_name="flights", key_prefix="flights")
    def delays() -> Stream:
        raise NotImplementedError

    spec = late_rows(delays)
    assert spec.key == late_key(KEY, 0)
    assert [dep.asset_key for dep in spec.deps] == [KEY]
    assert spec.metadata["dagster/io_manager_key"] == "epochs"

    @dg.asset
    def other() -> None: ...

    with pytest.raises(InvalidPipelineError):
        late_rows(other)


def keeping(epoch: int, total_late_rows: int) -> Manifest:
    tables = late_tables(KEEP, [SOURCE], ["at"])
    return a_manifest(
        version=Version(epoch),
        epoch=Epoch(epoch),
        pipeline=replace(PIPELINE, tables=tables, inputs=(SOURCE,)),
        runs={tables[0].name: ((), (), (), ())},
        statistics=Statistics(total_rows_in=epoch, total_late_rows=total_late_rows),
    )


class Told:
    """A Dagster, and what its events say of late rows: epoch, rows since the last event, rows in all."""

    def __init__(self) -> None:
        self.instance = dg.DagsterInstance.ephemeral()
        self.heard: list[tuple[object, ...]] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, dg.AssetMaterialization) and event.asset_key == late_key(KEY, 0):
            labels = ("epoch", "late_rows", "late_rows_total")
            self.heard.append(tuple(event.metadata[label].value for label in labels))
            self.instance.report_runless_asset_event(event)

    def run(self, *epochs: tuple[int, int]) -> EpochEvents:
        """The events of a Dagster run that opens the stream at the first epoch, and commits the others."""
        events = EpochEvents(
            EventLog(
                KEY,
                "flights/delays",
                None,
                self,
                lambda manifest: True,
                lambda: NOTHING,
                late_rows_reported=lambda late: late_rows_reported(self.instance, late),
            ),
            0,
            StillClock(),
        )
        events.on_open(keeping(*epochs[0]))
        for epoch in epochs[1:]:
            events.on_commit(CommittedEpoch(keeping(*epoch), 0, 0, {}))
        return events


def test_an_event_has_the_late_rows_since_the_last_one_and_the_total() -> None:
    told = Told()
    events = told.run((1, 0), (2, 0), (3, 5), (4, 5), (5, 7))
    # The newest epoch's own event is the result's; what came too late is told here.
    assert told.heard == [(3, 5, 5)]
    events.finish()
    events.finish()
    assert told.heard == [(3, 5, 5), (5, 2, 7)]


def test_a_later_run_does_not_report_the_same_late_rows_again() -> None:
    told = Told()
    told.run((1, 0), (2, 5)).finish()
    told.run((2, 5)).finish()
    told.run((2, 5), (3, 5), (4, 5)).flush()
    assert told.heard == [(2, 5, 5)]
    told.run((4, 5), (5, 6)).finish()
    assert told.heard[1:] == [(5, 1, 6)]


def test_a_run_without_an_epoch_reports_what_a_killed_one_did_not() -> None:
    told = Told()
    told.run((1, 0), (2, 5))  # killed
    told.run((2, 5)).finish()
    assert told.heard == [(2, 5, 5)]


def test_a_rollback_takes_late_rows_back() -> None:
    told = Told()
    told.run((1, 0), (2, 5)).finish()
    told.run((1, 0)).finish()
    assert told.heard[1:] == [(1, -5, 0)]


def test_events_that_people_report_say_nothing_of_late_rows() -> None:
    told = Told()
    told.run((1, 0), (2, 5)).finish()
    told.instance.report_runless_asset_event(dg.AssetMaterialization(late_key(KEY, 0), metadata={"by": "hand"}))
    told.run((2, 5), (3, 6)).finish()
    assert told.heard == [(2, 5, 5), (3, 1, 6)]


def test_a_stream_that_drops_late_rows_has_no_such_events() -> None:
    dropped = a_manifest(epoch=Epoch(2), statistics=Statistics(total_late_rows=5))
    assert LateRows.of_stream(KEY, dropped) == []
