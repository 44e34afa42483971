"""The late rows of a stream as a separate asset: its key, and its events."""

from dataclasses import replace

import dagster as dg
import pyarrow as pa
import pytest

from dagster_ckpt import Stream, late_rows, streaming_asset
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.ids import Epoch, Version
from dagster_ckpt.integration.reading.late_rows_asset import late_key, stream_of_late_key
from dagster_ckpt.integration.step.event_totals import NOTHING
from dagster_ckpt.integration.step.step_events import EpochEvents, Event, EventLog
from dagster_ckpt.operators.shared.late_rows import KEEP, late_tables
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Manifest, Statistics
from dagster_ckpt.runtime.driver.epoch_driver import CommittedEpoch
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


def test_dagster_hears_of_late_rows_when_there_are_more_of_them() -> None:
    heard: list[tuple[str, object]] = []

    def listen(event: Event) -> None:
        if isinstance(event, dg.AssetMaterialization):
            total = event.metadata.get("total_late_rows")
            heard.append((event.asset_key.path[-1], total and total.value))

    events = EpochEvents(
        EventLog(KEY, "flights/delays", None, listen, lambda manifest: True, lambda: NOTHING), 0, StillClock()
    )
    for epoch, total in [(2, 0), (3, 5), (4, 5), (5, 7)]:
        events.committed(CommittedEpoch(keeping(epoch, total), 0, 0, {}))
    # The newest epoch's own event is the result's; what came too late is told here.
    assert heard == [("delays", None), ("delays", None), ("delays_late_rows", 5), ("delays", None)]
    events.finish()
    assert heard[4:] == [("delays_late_rows", 7)]
    events.finish()
    assert len(heard) == 5
