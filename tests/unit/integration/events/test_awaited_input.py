"""What the page of a stream without an epoch says."""

from dataclasses import replace

import dagster as dg
import pytest

from dagster_ckpt.integration.events.awaited_input import first_input, observation
from dagster_ckpt.protocol.manifest.manifest import InputSpec, SourceIdentity
from tests.worlds.manifests import PIPELINE, ROWS

FILES = SourceIdentity("parquet", "s3a://bucket/departures", (("pathglobfilter", "*.parquet"),))


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (FILES, "the first parquet file in s3a://bucket/departures"),
        (SourceIdentity("kafka", "", (("subscribe", "flights,weather"),)), "the first record in topic flights,weather"),
        (
            SourceIdentity("kafka", "broker:9092", (("subscribepattern", "f.*"),)),
            "the first record in a topic like f.* at broker:9092",
        ),
        (SourceIdentity("dagster_ckpt", "eu/delays"), "the first epoch of the stream eu/delays"),
        (SourceIdentity("delta", "main.flights"), "the first rows of the source delta main.flights"),
        (SourceIdentity("rate", ""), "the first rows of the source rate"),
    ],
    ids=lambda each: each.format if isinstance(each, SourceIdentity) else "",
)
def test_each_kind_of_source_is_named_as_its_users_name_it(source: SourceIdentity, says: str) -> None:
    assert first_input(replace(PIPELINE, inputs=(InputSpec((source,), ROWS),))) == says


def test_the_first_rows_of_any_source_make_the_first_epoch() -> None:
    both = (InputSpec((FILES,), ROWS), InputSpec((FILES, SourceIdentity("rate", "")), ROWS))
    event = observation(dg.AssetKey("delays"), replace(PIPELINE, inputs=both))
    what = "the first parquet file in s3a://bucket/departures or the first rows of the source rate"
    assert event.description == f"The stream has no epoch yet. It waits for {what}."
    assert event.metadata["waits_for"].value == what
