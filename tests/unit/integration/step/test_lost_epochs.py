"""A stream that was restored from a backup, while Dagster has shown later epochs of it."""

from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.ids import EMPTY, Epoch
from dagster_ckpt.integration.events.epoch_metadata import data_version, epoch_metadata
from dagster_ckpt.integration.events.event_totals import Reported, Totals, read_totals
from dagster_ckpt.integration.step.lost_epochs import observation
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.stores.address import open_store
from dagster_ckpt.storage.stores.folder import folder_store
from tests.unit.history.made_streams import MadeStream
from tests.unit.history.reading_streams import MadeStreams

KEY = dg.AssetKey("delays")


def seen(stream: MadeStream, known: Reported) -> dg.AssetObservation | None:
    chain = ManifestChain(folder_store(open_store(stream.url), stream.name), SystemClock())
    return observation(KEY, known, stream.writer.manifest, chain)


def stored(manifest: Manifest) -> Reported:
    """What Dagster reads back of the event of that epoch."""
    instance = dg.DagsterInstance.ephemeral()
    instance.report_runless_asset_event(dg.AssetMaterialization(KEY, metadata=epoch_metadata(manifest)))
    return read_totals(instance, KEY)


@pytest.mark.parametrize("epochs_since", [0, 1, 2, 3])
def test_an_epoch_that_dagster_has_shown_and_the_stream_lost_is_on_its_page(tmp_path: Path, epochs_since: int) -> None:
    streams = MadeStreams(tmp_path)
    stream = streams.source("delays", epochs=1)
    backup = streams.back_up(stream)
    streams.commit(stream, 2)
    lost = stream.writer.manifest
    streams.restore(stream, backup)
    if epochs_since:
        streams.commit(stream, epochs_since)
    event, now = seen(stream, stored(lost)), stream.writer.manifest
    assert event is not None
    assert event.metadata["epoch_shown_before"].value == f"{lost.epoch} ({lost.nonce})"
    assert event.metadata["epoch_now"].value == f"{now.epoch} ({now.epoch_nonce})"
    assert seen(stream, stored(now)) is None, "once the next event is stored, nothing more is said"
    streams.close()


def test_nothing_is_said_of_a_stream_that_went_on_or_was_rolled_back(tmp_path: Path) -> None:
    streams = MadeStreams(tmp_path)
    stream = streams.source("delays", epochs=3)
    third = stored(stream.writer.manifest)
    streams.commit(stream)
    assert seen(stream, third) is None
    stream.open(from_epoch=2)
    assert seen(stream, third) is None
    assert seen(stream, Reported(EMPTY, Totals())) is None
    streams.close()


def test_another_epoch_of_the_same_number_was_not_reported_and_has_another_data_version(tmp_path: Path) -> None:
    streams = MadeStreams(tmp_path)
    stream = streams.source("delays", epochs=1)
    manifest = stream.writer.manifest
    other = replace(manifest, nonce=type(manifest.nonce)("b" * 32))
    known = stored(manifest)
    assert known.has(manifest)
    assert not known.has(other)
    assert not replace(known, epoch=Epoch(7)).has(manifest)
    assert data_version("delays", manifest) != data_version("delays", other)
    streams.close()
