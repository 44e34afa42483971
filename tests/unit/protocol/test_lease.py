import json
from dataclasses import replace

import pytest

from dagster_ckpt.ids import Epoch, Term
from dagster_ckpt.protocol.json_codec import checksum_of
from dagster_ckpt.protocol.lease import (
    EpochProgress,
    Lease,
    Life,
    Watch,
    decode_lease,
    encode_lease,
    judge,
    next_watch,
)
from tests.worlds.streams import a_holder

LEASE = Lease(Term(3), a_holder(), timeout_ms=30_000, epoch=Epoch(7), counter=5)


def test_a_lease_is_read_back_as_it_was_written() -> None:
    assert decode_lease(encode_lease(LEASE)) == LEASE
    assert decode_lease(encode_lease(LEASE.beaten(Epoch(8)))) == Lease(Term(3), a_holder(), 30_000, Epoch(8), 6)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b"\xff", b'{"term": "3"}', b"[" * 100_000])
def test_what_is_no_lease_is_as_none(data: bytes) -> None:
    assert decode_lease(data) is None


def test_unknown_fields_of_a_newer_release_are_ignored() -> None:
    fields = json.loads(encode_lease(LEASE)) | {"mood": "good"}
    checksum = checksum_of({name: value for name, value in fields.items() if name != "checksum"})
    assert decode_lease(json.dumps({**fields, "checksum": checksum}).encode()) == LEASE


WORKING = replace(LEASE, work=EpochProgress(Epoch(8), 12_000, 37, 200, "host-3 (task 12) works shards 4, 5", 9_000))


def test_the_work_of_a_lease_is_read_back_too() -> None:
    assert decode_lease(encode_lease(WORKING)) == WORKING


def _again(fields: dict[str, object]) -> Lease | None:
    """The lease of these fields, as another release would have written them."""
    fields = {name: value for name, value in fields.items() if name != "checksum"}
    return decode_lease(json.dumps({**fields, "checksum": checksum_of(fields)}).encode())


def test_the_work_in_a_lease_of_another_release_is_read_where_known() -> None:
    fields = json.loads(encode_lease(WORKING))
    work = fields["work"]
    assert _again({name: value for name, value in fields.items() if name != "work"}) == LEASE
    assert _again({**fields, "work": {**work, "mood": "good"}}) == WORKING
    strange: list[object] = ["in other words", {}, {**work, "tasks": "many"}, [1]]
    for other in strange:
        assert _again({**fields, "work": other}) == LEASE, "what is not understood must not hide that the writer lives"


def test_a_lease_with_a_flipped_bit_is_none_or_unchanged() -> None:
    data = encode_lease(LEASE)
    for at in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[at // 8] ^= 1 << at % 8
        assert decode_lease(bytes(flipped)) in (None, LEASE)


def test_a_watch_restarts_when_term_or_counter_change() -> None:
    first = next_watch(None, Term(3), LEASE, 100)
    assert first == Watch(Term(3), 5, 100)
    assert next_watch(first, Term(3), LEASE, 200) == first
    assert next_watch(first, Term(3), LEASE.beaten(Epoch(7)), 200) == Watch(Term(3), 6, 200)
    assert next_watch(first, Term(4), LEASE, 200) == Watch(Term(4), 5, 200)
    assert next_watch(first, Term(3), None, 200) == Watch(Term(3), 0, 200)


@pytest.mark.parametrize(
    ("lease", "now_ms", "gone", "life"),
    [
        (LEASE, 0, False, Life.BEATING),
        (LEASE, 29_999, False, Life.BEATING),
        (LEASE, 30_000, False, Life.LAPSED),
        (LEASE, 0, True, Life.DEAD),
        (None, 19_999, False, Life.BEATING),
        (None, 20_000, False, Life.LAPSED),
        (None, 0, True, Life.BEATING),
        (Lease(Term(3), a_holder(), 30_000, Epoch(7), 5, "success"), 0, False, Life.CLOSED),
        (Lease(Term(3), a_holder(), 30_000, Epoch(7), 5, "success"), 0, True, Life.CLOSED),
        (Lease(Term(3), a_holder(), 5_000, Epoch(7), 5), 19_999, False, Life.BEATING),
    ],
)
def test_what_is_known_of_a_writer(lease: Lease | None, now_ms: int, gone: bool, life: Life) -> None:
    watch = next_watch(None, Term(3), lease, 0)
    assert judge(watch, lease, now_ms, 20_000, process_is_gone=gone) is life
