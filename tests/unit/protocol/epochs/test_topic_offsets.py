"""What of a topic cannot be read any more, and positions as text."""

from dataclasses import replace

import pytest

from dagster_ckpt.protocol.epochs.topic_offsets import (
    LossReason,
    LostOffsets,
    Offsets,
    TopicsNow,
    find_lost,
    next_offsets,
    offsets_text,
    parse_offsets,
    read_elsewhere,
)
from dagster_ckpt.protocol.manifest.manifest import SourceIdentity, SourcePosition

KAFKA = SourceIdentity("kafka", "", (("subscribe", "trips"),))
READ: Offsets = {("trips", 0): 100, ("trips", 1): 50}
IDS = {"trips": "first"}


def now(*partitions: tuple[int, int], topic_id: str = "first") -> TopicsNow:
    """The topic, if it has partitions: where each begins and ends."""
    return TopicsNow(
        ids={"trips": topic_id} if partitions and topic_id else {},
        begins={("trips", number): begins for number, (begins, _) in enumerate(partitions)},
        ends={("trips", number): ends for number, (_, ends) in enumerate(partitions)},
    )


def test_what_begins_at_the_position_or_before_it_can_be_read() -> None:
    assert find_lost(READ, IDS, now((100, 100), (0, 80)), READ) == ()
    assert find_lost({}, {}, now((0, 7), (0, 0)), {("trips", 0): 7, ("trips", 1): 0}) == ()


def test_records_between_the_position_and_the_beginning_are_removed() -> None:
    assert find_lost(READ, IDS, now((150, 170), (50, 80)), READ) == (
        LostOffsets("trips", 0, LossReason.REMOVED, read_to=100, begin=100, end=150),
    )


def test_a_new_partition_that_does_not_begin_at_0_has_lost_its_first_records() -> None:
    found = {**READ, ("trips", 2): 9}
    there = now((0, 100), (0, 50), (4, 9))
    assert find_lost(READ, IDS, there, found) == (
        LostOffsets("trips", 2, LossReason.REMOVED, read_to=0, begin=0, end=4),
    )
    assert find_lost(READ, IDS, there, READ) == (), "not one of those that the stream reads"


@pytest.mark.parametrize(("topic_id", "ends", "skipped"), [("second", 300, 50), ("second", 20, 20), ("first", 20, 20)])
def test_a_topic_with_another_id_or_fewer_records_than_were_read_is_another(
    topic_id: str, ends: int, skipped: int
) -> None:
    there = now((0, 100), (0, ends), topic_id=topic_id)
    [*_, other] = find_lost(READ, IDS, there, READ)
    assert other == LostOffsets("trips", 1, LossReason.RECREATED, read_to=50, begin=0, end=skipped)


def test_of_a_new_topic_a_partition_that_was_not_read_yet_can_be_read_as_a_whole() -> None:
    assert find_lost({("trips", 0): 0}, IDS, now((0, 5), topic_id="second"), {("trips", 0): 5}) == ()


@pytest.mark.parametrize(("known", "topic_id"), [({}, "first"), (IDS, "")])
def test_without_an_id_of_then_or_now_offsets_alone_decide(known: dict[str, str], topic_id: str) -> None:
    assert find_lost(READ, known, now((0, 100), (0, 50), topic_id=topic_id), READ) == ()


def test_a_topic_or_a_partition_that_does_not_exist_is_gone() -> None:
    assert {each.reason for each in find_lost(READ, IDS, now(), {})} == {LossReason.GONE}
    assert find_lost(READ, IDS, now((0, 100)), READ) == (
        LostOffsets("trips", 1, LossReason.GONE, read_to=50, begin=50, end=50),
    )


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (LostOffsets("trips", 3, LossReason.REMOVED, 100, 100, 150), "trips-3 offsets 100 to 149"),
        (LostOffsets("trips", 3, LossReason.GONE, 100, 100, 100), "trips-3 (read up to offset 100)"),
        (
            LostOffsets("trips", 3, LossReason.RECREATED, 100, 0, 20),
            "trips-3 (read up to offset 100; offsets 0 to 19 of the new topic are before that)",
        ),
        (
            LostOffsets("trips", 3, LossReason.RECREATED, 100, 0, 0),
            "trips-3 (read up to offset 100; the new topic has none yet)",
        ),
    ],
)
def test_what_is_lost_is_named_by_topic_partition_and_offsets(found: LostOffsets, text: str) -> None:
    assert str(found) == text


def test_a_stream_reads_on_after_what_it_has_read_or_where_it_begins() -> None:
    assert next_offsets(SourcePosition(KAFKA)) == {}
    begun = SourcePosition(KAFKA, initial='v1\n{"trips":{"0":7}}')
    assert next_offsets(begun) == {("trips", 0): 7}
    assert next_offsets(SourcePosition(KAFKA, '{"trips":{"0":9}}', initial=begun.initial)) == {("trips", 0): 9}


def test_offsets_are_sorted_by_topic_and_number() -> None:
    found = parse_offsets('{"trips":{"10":1,"9":2},"fares":{"0":3}}')
    assert offsets_text(found) == "fares 0: 3; trips 9: 2, 10: 1"


@pytest.mark.parametrize("offset", ['{"logOffset": 3}', "[1]", "7"])
def test_an_offset_of_another_source_is_refused(offset: str) -> None:
    with pytest.raises(ValueError, match="no offset of Kafka's"):
        parse_offsets(offset)


def test_what_another_stream_has_read_of_what_is_lost() -> None:
    def lost_at(partition: int, read_to: int) -> LostOffsets:
        return LostOffsets("trips", partition, LossReason.REMOVED, read_to, read_to, 50)

    positions = [
        SourcePosition(KAFKA, current='{"trips": {"0": 20, "1": 20}}'),
        SourcePosition(replace(KAFKA, ordinal=1), initial='v1\n{"trips": {"2": 0, "1": 30}}'),
        SourcePosition(replace(KAFKA, format="rate"), current="7"),
    ]
    missing = [lost_at(0, 19), lost_at(0, 20), lost_at(1, 25), lost_at(2, 0), lost_at(3, 0)]
    assert read_elsewhere(missing, positions) == [lost_at(0, 19), lost_at(1, 25)]
