"""What takes the place of a stream: when it may, and what the stream shows then."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from dagster_ckpt.ids import Epoch, Nonce, StreamUuid
from dagster_ckpt.protocol.epochs.upstream import FORMAT, UpstreamPosition
from dagster_ckpt.protocol.manifest.codec import decode_manifest, encode_manifest
from dagster_ckpt.protocol.manifest.manifest import (
    FileSeen,
    IndexedList,
    Manifest,
    ManifestKind,
    SourceIdentity,
    SourcePosition,
)
from dagster_ckpt.protocol.object_names import swap_pin_name
from dagster_ckpt.protocol.transitions.edits import Beginning, Stamp, epoch_manifest, first_manifest
from dagster_ckpt.protocol.transitions.manifest_rules import violations
from dagster_ckpt.protocol.transitions.swap import Swap, cannot_take_over, lagging_sources, swap_manifest
from tests.worlds.manifests import OWNER, PIPELINE, a_change
from tests.worlds.streams import an_edit

TOPIC = SourceIdentity("kafka", "", (("subscribe", "t"),))
UPSTREAM = SourceIdentity(FORMAT, "up", (("read", "table"),))


def _stream(uuid: str, epochs: int) -> Manifest:
    manifest = first_manifest(Beginning(uuid, StreamUuid(uuid), OWNER, PIPELINE, 2), Stamp(Nonce(f"{uuid}-1"), 1))
    for number in range(epochs):
        manifest = epoch_manifest(manifest, an_edit(manifest), 5, Stamp(Nonce(f"{uuid}-{number + 2}"), number + 2))
    return manifest


def _at(manifest: Manifest, source: SourceIdentity, current: str | None, files: int = 0) -> Manifest:
    seen = IndexedList(tail=tuple(FileSeen(f"file:///{number}", number) for number in range(files)))
    inputs = (replace(PIPELINE.inputs[0], sources=(source,)),)
    pipeline = replace(manifest.pipeline, inputs=inputs)
    return replace(manifest, pipeline=pipeline, sources=(SourcePosition(source, current=current, files=seen),))


def test_it_shows_what_was_built_beside_as_its_next_epoch() -> None:
    before, beside = _stream("live", 4), _stream("beside", 6)
    manifest = swap_manifest(before, beside, (a_change(6, 6, 0),), Swap(OWNER, "asked", 3), Stamp(Nonce("n"), 9))
    assert violations(before, manifest) == []
    assert decode_manifest(encode_manifest(manifest), "m") == manifest
    assert (manifest.kind, manifest.version, manifest.epoch, manifest.term) == (ManifestKind.SWAP, 6, 6, 6)
    assert manifest.kind.makes_epoch
    assert {run.ancestor for shards in manifest.runs.values() for runs in shards for run in runs} == {"beside"}
    assert [entry.epoch for entry in manifest.retained] == [4, 5, 6]
    assert (manifest.statistics.total_epochs, manifest.rollbacks) == (5, ("asked",))
    [ancestor] = manifest.ancestors
    assert ancestor.pin_of(manifest.uuid) == swap_pin_name(StreamUuid("live"), beside.epoch)
    following = epoch_manifest(manifest, an_edit(manifest), 3, Stamp(Nonce("o"), 10))
    assert violations(manifest, following) == []


@pytest.mark.parametrize(
    ("live", "beside", "is_behind"),
    [
        ({"t": {"0": 5, "1": 7}}, {"t": {"0": 5, "1": 7}}, False),
        ({"t": {"0": 5, "1": 7}}, {"t": {"0": 6, "1": 7, "2": 0}}, False),
        ({"t": {"0": 5, "1": 7}}, {"t": {"0": 9, "1": 6}}, True),
        ({"t": {"0": 5, "1": 7}}, {"t": {"0": 9}}, True),
        ("a", "a", False),
        ("a", "b", True),
        ([1, 2], [1, 2, 3], True),
        (3, 4, False),
        (True, False, True),
    ],
)
def test_an_offset_reaches_another_where_no_number_in_it_is_less(live: object, beside: object, is_behind: bool) -> None:
    positions = [_at(_stream(name, 2), TOPIC, json.dumps(offset)) for name, offset in (("l", live), ("b", beside))]
    assert lagging_sources(positions[0], positions[1], ()) == ([TOPIC] if is_behind else [])


def test_a_source_that_was_not_read_yet_is_no_hindrance_but_one_that_is_gone_is() -> None:
    live, beside = _stream("l", 2), _stream("b", 2)
    assert lagging_sources(_at(live, TOPIC, None), _at(beside, TOPIC, None), ()) == []
    assert lagging_sources(_at(live, TOPIC, "1"), _at(beside, TOPIC, None), ()) == [TOPIC]
    assert lagging_sources(_at(live, TOPIC, "1"), _at(beside, UPSTREAM, None), ()) == [TOPIC]


def test_a_topic_of_the_same_name_is_another_one() -> None:
    live, beside = (_at(_stream(name, 2), TOPIC, '{"trips": {"0": 7}}') for name in ("l", "b"))

    def of_topics(manifest: Manifest, *ids: str) -> Manifest:
        return replace(manifest, sources=(replace(manifest.sources[0], topics=tuple(("trips", each) for each in ids)),))

    assert lagging_sources(of_topics(live, "first"), of_topics(beside, "first"), ()) == []
    assert lagging_sources(of_topics(live, "first"), of_topics(beside, "second"), ()) == [TOPIC]
    assert lagging_sources(of_topics(live, "first"), beside, ()) == [], "brokers before 2.8 have none"


def test_a_table_before_the_source_counts_too() -> None:
    live, beside = _at(_stream("l", 2), TOPIC, "1"), _at(_stream("b", 2), TOPIC, "1")
    after_a_table = replace(live, sources=(replace(live.sources[0], after_table=True),))
    assert lagging_sources(after_a_table, beside, ()) == [TOPIC]
    assert lagging_sources(live, replace(beside, sources=after_a_table.sources), ()) == []


def test_of_files_there_are_as_many() -> None:
    live, beside = _stream("l", 2), _stream("b", 2)
    # Spark's offset counts the batches of one log: it says nothing of another's.
    assert (
        lagging_sources(
            _at(live, TOPIC, '{"logOffset": 9}', files=3), _at(beside, TOPIC, '{"logOffset": 0}', files=3), ()
        )
        == []
    )
    assert lagging_sources(
        _at(live, TOPIC, '{"logOffset": 0}', files=3), _at(beside, TOPIC, '{"logOffset": 9}', files=2), ()
    ) == [TOPIC]


@pytest.mark.parametrize(
    ("live", "beside", "is_behind"),
    [
        (UpstreamPosition(StreamUuid("u"), Epoch(4)), UpstreamPosition(StreamUuid("u"), Epoch(5)), False),
        (UpstreamPosition(StreamUuid("u"), Epoch(4)), UpstreamPosition(StreamUuid("u"), Epoch(3)), True),
        (UpstreamPosition(StreamUuid("u"), Epoch(4)), UpstreamPosition(StreamUuid("other"), Epoch(9)), True),
        (UpstreamPosition(StreamUuid("u"), Epoch(4)), UpstreamPosition(StreamUuid("u"), Epoch(9), 1, 2), True),
        (UpstreamPosition(StreamUuid("u"), Epoch(4), 2, 2), UpstreamPosition(StreamUuid("u"), Epoch(4)), False),
    ],
)
def test_an_upstream_is_read_as_far_by_its_epoch_once_its_table_is_read(
    live: UpstreamPosition, beside: UpstreamPosition, is_behind: bool
) -> None:
    positions = [_at(_stream(name, 2), UPSTREAM, at.encode()) for name, at in (("l", live), ("b", beside))]
    assert lagging_sources(positions[0], positions[1], ()) == ([UPSTREAM] if is_behind else [])


def test_readers_know_rows_by_their_key_and_columns_by_their_name() -> None:
    assert cannot_take_over(PIPELINE, PIPELINE) == []
    [name] = [each for each in PIPELINE.output.names if each not in PIPELINE.keys][:1]
    at = PIPELINE.output.get_field_index(name)

    def typed(kind: pa.DataType) -> pa.Schema:
        return PIPELINE.output.set(at, pa.field(name, kind))

    wider = replace(PIPELINE, output=typed(pa.int64()))
    assert cannot_take_over(replace(PIPELINE, output=typed(pa.int32())), wider) == []
    [told] = cannot_take_over(wider, replace(PIPELINE, output=typed(pa.string())))
    assert told == f"column {name!r} has another type: int64 before, string now. Give it another name"
    other_key = replace(PIPELINE, keys=("x",), tables=(replace(PIPELINE.tables[0], keys=("x",)),))
    [told] = cannot_take_over(PIPELINE, other_key)
    assert "its rows have another key: " in told
    [told] = cannot_take_over(replace(PIPELINE, appends=True), PIPELINE)
    assert "a table that only grows takes no row back" in told
