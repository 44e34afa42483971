"""A source is what it reads: it continues whatever its address is now, and under another name only if declared."""

from dataclasses import replace

import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.ids import Epoch, Nonce
from dagster_ckpt.protocol.manifest.codec import decode_manifest, encode_manifest
from dagster_ckpt.protocol.manifest.manifest import (
    FileSeen,
    FilesMoved,
    IndexedList,
    InputSpec,
    Manifest,
    Pipeline,
    SourceIdentity,
    SourcePosition,
)
from dagster_ckpt.protocol.transitions.compatibility import breaking_changes
from dagster_ckpt.protocol.transitions.edits import Stamp, epoch_manifest, opening_manifest, rollback_manifest
from dagster_ckpt.protocol.transitions.manifest_rules import violations
from dagster_ckpt.protocol.transitions.source_moves import Moves, pipeline_gone_on, successors
from tests.unit.protocol.transitions.test_edits import FIRST
from tests.worlds.manifests import OWNER, PIPELINE
from tests.worlds.streams import an_edit

TOPIC = (("subscribe", "departures"),)


def kafka(brokers: str = "", ordinal: int = 0) -> SourceIdentity:
    return SourceIdentity("kafka", brokers, TOPIC, ordinal)


def folder(address: str, ordinal: int = 0) -> SourceIdentity:
    return SourceIdentity("parquet", address, (), ordinal)


def reading(*sources: SourceIdentity) -> Pipeline:
    return replace(PIPELINE, inputs=(replace(PIPELINE.inputs[0], sources=sources),))


def having_read(*positions: SourcePosition) -> Manifest:
    pipeline = reading(*(position.source for position in positions))
    first = replace(created_for(pipeline), nonce=Nonce("n"))
    return epoch_manifest(first, replace(an_edit(first), sources=positions), 5, Stamp(Nonce("m"), 2))


def created_for(pipeline: Pipeline) -> Manifest:
    return replace(FIRST, pipeline=pipeline)


def reopened(parent: Manifest, pipeline: Pipeline, moves: Moves = ()) -> Manifest:
    return opening_manifest(parent, OWNER, pipeline, Stamp(Nonce("o"), 3), moves)


@pytest.mark.parametrize(
    ("known", "wanted", "moves"),
    [
        (kafka("a:9092"), kafka(), ()),
        (kafka("a:9092"), kafka("b:9092,c:9092"), (("a:9092", "b:9092,c:9092"),)),
        (folder("file:/old/in"), folder("file:/new/in"), (("file:/old", "file:/new"),)),
        (folder("s3a://old"), folder("s3a://new/x"), (("s3a://old", "s3a://new/x"),)),
        (folder("file:/a/in"), folder("file:/c/in"), (("file:/a", "file:/b"), ("file:/b", "file:/c"))),
        (folder("file:/a/in"), folder("file:/a/b/in"), (("file:/a", "file:/a/b"),)),
        (folder("file:/b/in"), folder("file:/a/in"), (("file:/a", "file:/b"), ("file:/b", "file:/a"))),
    ],
)
def test_a_source_that_reads_the_same_goes_on(known: SourceIdentity, wanted: SourceIdentity, moves: Moves) -> None:
    assert successors([known], [wanted], moves) == {known: wanted}
    assert breaking_changes(pipeline_gone_on(reading(known), reading(wanted), moves), reading(wanted)) == ()
    position = SourcePosition(known, current="7", previous="3", initial="1")
    parent = having_read(position)
    after = reopened(parent, reading(wanted), moves)
    assert after.sources == (replace(position, source=wanted),)
    assert violations(parent, after) == []


@pytest.mark.parametrize(
    ("known", "wanted", "moves"),
    [
        (kafka(), replace(kafka(), options=(("subscribe", "arrivals"),)), ()),
        (kafka("a:9092"), kafka("b:9092"), ()),
        (folder("file:/old/in"), folder("file:/new/in"), ()),
        (folder("file:/a/in"), folder("file:/c/in"), (("file:/a", "file:/a/b"), ("file:/d", "file:/d/e"))),
        (folder("file:/older/in"), folder("file:/new/in"), (("file:/old", "file:/new"),)),
        (folder("abfss://one@account/in"), folder("abfss://other@account/in"), ()),
        (folder("file:/old/in"), SourceIdentity("csv", "file:/new/in"), (("file:/old", "file:/new"),)),
        (SourceIdentity("dagster_ckpt", "old"), SourceIdentity("dagster_ckpt", "new"), (("old", "new"),)),
    ],
)
def test_a_source_that_reads_something_else_does_not(
    known: SourceIdentity, wanted: SourceIdentity, moves: Moves
) -> None:
    assert successors([known], [wanted], moves) == {}
    assert breaking_changes(pipeline_gone_on(reading(known), reading(wanted), moves), reading(wanted))


def test_equal_sources_go_on_in_their_order() -> None:
    old, new = [folder("file:/old", 0), folder("file:/old", 1)], [folder("file:/new", 0), folder("file:/new", 1)]
    assert successors(old, new, (("file:/old", "file:/new"),)) == dict(zip(old, new, strict=True))


def test_a_move_that_was_made_does_nothing_more() -> None:
    moves = (("file:/old", "file:/new"),)
    parent = having_read(SourcePosition(folder("file:/new/in"), current="7"))
    assert reopened(parent, reading(folder("file:/new/in")), moves).sources == parent.sources


def test_what_was_seen_before_a_move_is_noted_to_be_elsewhere() -> None:
    seen = IndexedList(tail=(FileSeen("file:///old/in/0", 1), FileSeen("file:///old/in/1", 2)))
    parent = having_read(SourcePosition(folder("file:/old/*/in"), current="0", files=seen))
    after = reopened(parent, reading(folder("file:/new/*/in")), (("file:/old", "file:/new"),))
    [position] = after.sources
    assert position.moved == (FilesMoved("file:/old", "file:/new", 2),)
    assert position.files == seen
    assert violations(parent, after) == []
    assert decode_manifest(encode_manifest(after), "m") == after
    again = reopened(after, reading(folder("file:/new/*/in")))
    assert again.sources == after.sources, "once it is in the manifest it need not be declared again"


def test_a_rollback_to_before_a_move_takes_it_into_account() -> None:
    second = having_read(SourcePosition(folder("file:/old/in"), current="0"))
    third = epoch_manifest(second, replace(an_edit(second), sources=second.sources), 5, Stamp(Nonce("p"), 3))
    moves = (("file:/old", "file:/new"),)
    opening = opening_manifest(third, OWNER, reading(folder("file:/new/in")), Stamp(Nonce("q"), 4), moves)
    back = rollback_manifest(opening, second, "run-2", moves)
    assert back.epoch == Epoch(second.version)
    assert back.sources == (SourcePosition(folder("file:/new/in"), current="0"),)
    assert violations(third, back) == []


def test_an_opening_may_rename_a_source_but_not_its_position() -> None:
    parent = having_read(SourcePosition(kafka("a:9092"), current="7"))
    after = reopened(parent, reading(kafka()))
    for wrong in (
        (SourcePosition(kafka(), current="8"),),
        (SourcePosition(kafka("b:9092"), current="7"),),
        (),
    ):
        assert "an_opening_shows_what_was_there" in violations(parent, replace(after, sources=wrong))


def test_inputs_are_all_spelled_as_the_new_pipeline_does() -> None:
    before = InputSpec((kafka("a:9092"), folder("file:/in")), PIPELINE.inputs[0].schema)
    after = replace(before, sources=(kafka(), folder("file:/in")))
    gone_on = pipeline_gone_on(replace(PIPELINE, inputs=(before,)), replace(PIPELINE, inputs=(after,)), ())
    assert gone_on.inputs == (after,)


def test_a_source_does_not_take_the_place_of_another_that_moves_on() -> None:
    a, b, c = (folder(f"file:/data/{name}") for name in "abc")
    moves = ((a.address, b.address), (b.address, c.address))
    with pytest.raises(InvalidPipelineError, match="from=file:/data/a, over=file:/data/b, to=file:/data/c"):
        successors([a, b], [b, c], moves)
    assert successors([a, b], [a, c], moves) == {b: c}, "in a start of its own"
    assert successors([a, c], [b, c], moves[:1]) == {a: b}, "and then the other"


def test_moves_between_two_sources_that_stay_are_none() -> None:
    """A bucket of which the stream reads folders that have not moved, and options that are kept."""
    a, b = folder("file:/old/in"), folder("file:/new/in")
    assert successors([a, b], [a, b], (("file:/old", "file:/new"), ("file:/new", "file:/third"))) == {}
