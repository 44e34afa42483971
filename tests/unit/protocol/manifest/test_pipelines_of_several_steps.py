"""A pipeline of several steps: how its parts are named and numbered, and what is written of it."""

import gzip
import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.ids import Epoch, Shard
from dagster_ckpt.operators.operator import EpochContext
from dagster_ckpt.protocol.manifest.codec import decode_manifest, encode_manifest
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline, SourceIdentity
from tests.worlds.manifests import PIPELINE, ROWS, a_manifest

READS = [SourceIdentity("parquet", f"file:///data/{name}") for name in ("orders", "prices", "rates")]
ORDERS, PRICES, RATES = (InputSpec((source,), ROWS) for source in READS)
MINUTE_US = 60_000_000


def step(*inputs: InputSpec, before: tuple[Pipeline, ...] = ()) -> Pipeline:
    return replace(PIPELINE, inputs=inputs, before=before)


def behind(number: int, minutes: int = 0) -> InputSpec:
    return InputSpec((), ROWS, step=number, behind_us=minutes * MINUTE_US)


# The second reads the first and a source, the third both of them and another source.
FIRST = step(ORDERS)
SECOND = step(behind(0, 5), PRICES)
GRAPH = step(RATES, behind(1, 10), behind(0, 1), before=(FIRST, SECOND))


def fields_of(pipeline: Pipeline) -> dict[str, Any]:
    manifest = a_manifest(pipeline=pipeline, runs={spec.name: ((),) * 4 for spec in pipeline.all_tables})
    return dict(json.loads(gzip.decompress(encode_manifest(manifest))))


def test_the_inputs_of_the_stream_are_those_that_read_sources_in_the_order_of_the_steps() -> None:
    assert GRAPH.source_inputs == (ORDERS, PRICES, RATES)
    assert [GRAPH.inputs_of_stream(number) for number in range(3)] == [(0,), (None, 1), (2, None, None)]


def test_state_tables_of_earlier_steps_have_the_number_of_the_step_in_their_name() -> None:
    assert [spec.name for spec in GRAPH.all_tables] == ["0.total", "1.total", "total"]
    assert [spec.name for spec in FIRST.all_tables] == ["total"]


def test_a_steps_watermark_is_as_far_behind_as_the_slowest_way_to_it() -> None:
    assert [GRAPH.behind_us(number) // MINUTE_US for number in range(3)] == [0, 5, 15]


def test_a_stream_of_one_step_is_written_as_older_releases_read_it() -> None:
    written = fields_of(FIRST)["pipeline"]
    assert "before" not in written
    assert [sorted(each) for each in written["inputs"]] == [["schema", "sources"]]


def test_a_graph_survives_being_written() -> None:
    manifest = a_manifest(pipeline=GRAPH, runs={spec.name: ((),) * 4 for spec in GRAPH.all_tables})
    assert decode_manifest(encode_manifest(manifest), "a manifest") == manifest


def test_what_a_query_adds_to_a_pipeline_survives_being_written() -> None:
    names = tuple((name, f"its_{name}") for name in PIPELINE.output.names)
    output = pa.schema([PIPELINE.output.field(own).with_name(name) for own, name in names])
    worked = replace(FIRST, inputs=(replace(ORDERS, work="WHERE (a > 1)"),), columns=names, output=output)
    assert decode_manifest(encode_manifest(a_manifest(pipeline=worked)), "a manifest").pipeline == worked
    assert worked.own == replace(FIRST, inputs=worked.inputs)
    assert {"columns", "work"}.isdisjoint({*fields_of(FIRST)["pipeline"], *fields_of(FIRST)["pipeline"]["inputs"][0]})


def test_a_step_with_steps_of_its_own_is_damage() -> None:
    fields = fields_of(GRAPH)
    fields["pipeline"]["before"][0]["before"] = [fields["pipeline"]["before"][1]]
    with pytest.raises(CorruptStateError, match="before"):
        decode_manifest(gzip.compress(json.dumps(fields).encode()), "a manifest")


def test_rows_of_an_earlier_step_are_in_time_until_their_own_step_has_finished() -> None:
    """That step emits in this epoch what has been due since `harvested_us`."""
    shown = a_manifest(
        pipeline=GRAPH,
        watermark_us=60 * MINUTE_US,
        harvested_us=40 * MINUTE_US,
        event_times_us=(70 * MINUTE_US, 80 * MINUTE_US),
    )
    contexts = [EpochContext.following(shown, Epoch(9), [Shard(0)], 1, number) for number in range(3)]
    assert [each.watermark_us for each in contexts] == [60 * MINUTE_US, 55 * MINUTE_US, 45 * MINUTE_US]
    passed_on = [each.of_earlier_step(shown, number).watermark_us for number, each in enumerate(contexts)]
    assert passed_on == [40 * MINUTE_US, 35 * MINUTE_US, 25 * MINUTE_US]
    times = [each.event_times_us for each in contexts]
    assert times == [(70 * MINUTE_US,), (None, 80 * MINUTE_US), (None, None, None)]
    none_yet = a_manifest(pipeline=GRAPH)
    assert EpochContext.following(none_yet, Epoch(1), [Shard(0)], 1, 2).watermark_us is None
