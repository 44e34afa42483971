"""The report reads its streams as one aligned cut, and names the epochs of it."""

import sys
from pathlib import Path

import dagster as dg
import pytest

from assets import carrier_report
from dagster_ckpt import CheckpointCoordinatorResource, agg
from dagster_ckpt.operators import RunningAggregate
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from tests.unit.history.made_streams import DEPARTURES, SOURCE, MadeStream
from tests.unit.history.reading_streams import MadeStreams

DELAYS = {"flights": agg.count(), "mean_delay": agg.avg("dep_delay"), "worst_delay": agg.max("dep_delay")}


def test_the_report_names_the_epochs_that_belong_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "report.html"
    monkeypatch.setattr(sys.modules["assets.carrier_report"], "REPORT", str(page))
    streams = MadeStreams(tmp_path / "store")
    by_carrier = RunningAggregate.build(("carrier",), DELAYS, InputSpec((SOURCE,), DEPARTURES))
    upstream = MadeStream(streams.url, "delay_by_carrier", by_carrier)
    downstream = streams.reader("late_carriers", upstream)
    streams.made.append(upstream)
    consumed = streams.commit(upstream)
    shown = downstream.read(upstream)
    assert streams.commit(upstream) > consumed, "an epoch that the downstream has not read"
    with dg.DagsterInstance.ephemeral() as instance:
        resources = {"checkpoints": CheckpointCoordinatorResource(url=streams.url)}
        result = dg.materialize([carrier_report], resources=resources, instance=instance)
    streams.close()
    [event] = result.asset_materializations_for_node("carrier_report")
    epochs = {label: value.value for label, value in event.metadata.items() if label.startswith("epoch/")}
    assert epochs == {"epoch/delay_by_carrier": consumed, "epoch/late_carriers": shown}
    made = page.read_text()
    assert f"<dt>epoch</dt><dd>{consumed}</dd>" in made
    assert f"epoch {consumed} of delay_by_carrier" in made
    assert "1 departures of 1 carriers" in made
