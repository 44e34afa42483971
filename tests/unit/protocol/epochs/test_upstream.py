"""What follows a position in another stream, and why nothing may any more."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.ids import Epoch, Nonce, StreamUuid, Term, Version
from dagster_ckpt.protocol.epochs.lineage import is_abandoned
from dagster_ckpt.protocol.epochs.upstream import (
    FORMAT,
    Trouble,
    UpstreamPosition,
    consumption,
    consumption_by_epoch,
    decode,
    following_count,
    may_follow,
    total_backfill,
    trouble,
)
from dagster_ckpt.protocol.manifest.manifest import (
    Backfill,
    BackfillStatus,
    Consumed,
    EpochRange,
    Manifest,
    SourcePosition,
)
from dagster_ckpt.protocol.manifest.manifest import SourceIdentity as Identity
from tests.worlds.examples import examples
from tests.worlds.manifests import SOURCE, a_manifest

UP = StreamUuid("b" * 32)


def newest(epoch: int, *abandoned: tuple[int, int]) -> Manifest:
    ranges = tuple(EpochRange(Epoch(first), Epoch(last)) for first, last in abandoned)
    return a_manifest(uuid=UP, version=Version(99), epoch=Epoch(epoch), abandoned=ranges)


def at(epoch: int, part: int = 0, parts: int = 0) -> UpstreamPosition:
    return UpstreamPosition(UP, Epoch(epoch), part, parts)


def read(stream: str, position: UpstreamPosition | None, ordinal: int = 0) -> SourcePosition:
    current = None if position is None else position.encode()
    return SourcePosition(Identity(FORMAT, stream, ordinal=ordinal), current=current)


@pytest.mark.parametrize(
    "position",
    [
        at(0),
        at(41),
        at(41, 3, 8),
        at(41, 8, 8),
        replace(at(41, 3, 8), term=Term(5)),
        replace(at(41), nonce=Nonce("c3")),
        replace(at(41, 3, 8), nonce=Nonce("c3")),
    ],
)
def test_a_position_survives_its_text(position: UpstreamPosition) -> None:
    assert decode(position.encode()) == position


def test_the_text_of_a_position_has_no_needless_fields() -> None:
    assert UpstreamPosition(StreamUuid("9f"), Epoch(41)).encode() == '{"uuid": "9f", "epoch": 41}'


@pytest.mark.parametrize(
    "text",
    [
        "7",
        "{}",
        '{"uuid": "a"}',
        '{"uuid": 1, "epoch": 1}',
        '{"uuid": "a", "epoch": -1}',
        '{"uuid": "a", "epoch": true}',
        '{"uuid": "a", "epoch": 1, "more": 1}',
        '{"uuid": "a", "epoch": 1, "part": 1, "parts": 2}',
        '{"uuid": "a", "epoch": 1, "nonce": 7}',
        '{"uuid": "a", "epoch": 1, "part": 3, "parts": 2, "term": 1}',
        '{"uuid": "a", "epoch": 1, "part": 1, "parts": 4097, "term": 1}',
        '{"uuid": "a", "epoch": 9223372036854775808}',
        "[" * 100_000,
        "not JSON",
    ],
)
def test_a_text_of_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"offset=|Expecting value|nested too deeply"):
        decode(text)


def test_what_was_abandoned_does_not_follow() -> None:
    assert list(may_follow(newest(9, (4, 6)), Epoch(3))) == [7, 8, 9]
    assert list(may_follow(newest(9, (4, 6)), Epoch(2))) == [3, 7, 8, 9]
    assert list(may_follow(newest(3, (4, 98)), Epoch(3))) == []


@examples(100)
@given(st.integers(0, 30), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=5), st.data())
def test_what_may_follow_is_all_that_was_not_abandoned(
    last: int, gaps: list[tuple[int, int]], data: st.DataObject
) -> None:
    shown, after = newest(last, *((first, first + more) for first, more in gaps)), data.draw(st.integers(0, 30))
    expected = [version for version in range(after + 1, last + 1) if not is_abandoned(shown, version)]
    assert list(may_follow(shown, Epoch(after))) == expected
    below = data.draw(st.integers(0, 30))
    wanted = [version for version in range(after + 1, below) if not is_abandoned(shown, version)]
    assert following_count(shown, Epoch(after), Epoch(below)) == len(wanted)


def test_a_huge_epoch_number_costs_no_time() -> None:
    far = 2**63 - 1
    assert next(may_follow(newest(far, (2, far - 1)), Epoch(1))) == far
    assert following_count(newest(far), Epoch(1), Epoch(far)) == far - 2


def test_a_consumed_epoch_that_the_upstream_builds_on_is_no_trouble() -> None:
    assert trouble(newest(9, (4, 6)), at(3)) is None
    assert trouble(newest(9, (4, 6)), at(9)) is None
    assert trouble(newest(0), at(0)) is None


def test_a_consumed_epoch_that_the_upstream_has_left_behind_is_trouble() -> None:
    assert trouble(newest(9, (4, 6)), at(5)) is Trouble.ROLLED_BACK
    assert trouble(newest(3, (4, 9)), at(5)) is Trouble.ROLLED_BACK


def test_a_consumed_epoch_that_the_upstream_does_not_have_is_trouble() -> None:
    there = replace(newest(9), shown_nonce=Nonce("c3"))
    assert trouble(there, at(12)) is Trouble.DIVERGED
    assert trouble(there, replace(at(9), nonce=Nonce("d4"))) is Trouble.DIVERGED
    assert trouble(there, replace(at(9), nonce=Nonce("c3"))) is None
    assert trouble(there, at(9)) is None, "a position of an earlier release"
    assert trouble(newest(9), replace(at(9), nonce=Nonce("d4"))) is None, "an earlier release opened the stream"


def test_another_stream_under_the_same_name_is_trouble() -> None:
    assert trouble(replace(newest(9), uuid=StreamUuid("c" * 32)), at(9)) is Trouble.RECREATED


def test_what_was_consumed_is_listed_once_for_each_upstream() -> None:
    sources = [
        read("b", at(7)),
        read("a", at(3, 1, 2)),
        read("b", at(6), ordinal=1),
        read("c", None),
        SourcePosition(SOURCE, current='{"logOffset": 3}'),
    ]
    assert consumption(sources) == (Consumed("a", UP, Epoch(3)), Consumed("b", UP, Epoch(6)))
    assert consumption_by_epoch(sources) == (*consumption(sources), Consumed("b", UP, Epoch(7)))


def test_an_upstream_that_is_read_in_two_ways_is_listed_once_where_they_agree() -> None:
    sources = [read("b", at(7)), read("b", at(7), ordinal=1)]
    assert consumption_by_epoch(sources) == (Consumed("b", UP, Epoch(7)),)


def test_what_was_consumed_names_the_nonce_of_the_epoch() -> None:
    [consumed] = consumption([read("b", replace(at(7), nonce=Nonce("c3")))])
    assert consumed == Consumed("b", UP, Epoch(7), Nonce("c3"))
    assert UpstreamPosition.from_consumed(consumed) == replace(at(7), nonce=Nonce("c3"))


def test_a_stream_is_being_created_until_the_last_snapshot_is_read_to_its_end() -> None:
    creating = Backfill(BackfillStatus.CREATING, "1/8")
    assert total_backfill([read("a", at(3, 1, 8)), read("b", at(3, 3, 4))]) == creating
    assert total_backfill([read("a", at(3, 8, 8)), read("b", at(3))]) == Backfill()
    assert total_backfill([]) == Backfill()
