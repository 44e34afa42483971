import json

import pytest

from dagster_ckpt.ids import Term
from dagster_ckpt.protocol.drain_request import DrainRequest, decode_drain, encode_drain
from tests.worlds.streams import a_holder

REQUEST = DrainRequest(Term(7), "run-1", 1_700_000_000_000, "build-3")


def test_a_request_is_read_back_as_it_was_written() -> None:
    assert decode_drain(encode_drain(REQUEST)) == REQUEST


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b"\xff", b'{"term": 7}', b"[" * 100_000])
def test_what_is_no_request_is_ignored(data: bytes) -> None:
    assert decode_drain(data) is None


def test_a_request_with_a_flipped_bit_is_ignored_or_unchanged() -> None:
    data = encode_drain(REQUEST)
    for at in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[at // 8] ^= 1 << at % 8
        assert decode_drain(bytes(flipped)) in (None, REQUEST)


def test_a_request_with_a_damaged_term_is_ignored() -> None:
    fields = json.loads(encode_drain(REQUEST))
    assert decode_drain(json.dumps({**fields, "term": 8}).encode()) is None


@pytest.mark.parametrize(
    ("first", "run", "meant"),
    [
        (7, "run-1", True),
        (5, "run-1", True),  # requested after the writer restarted its query: 5, 6 and 7 are all its terms
        (8, "run-2", False),  # the next run, which began after it was asked
        (8, "run-1", True),  # the same Dagster run tries its step again: it is still to end
        (7, "", True),  # a writer that no Dagster run has
        (8, "", False),
    ],
)
def test_which_writer_a_request_is_meant_for(first: int, run: str, meant: bool) -> None:
    assert REQUEST.is_meant_for(Term(first), a_holder(run)) is meant


def test_without_a_dagster_run_only_the_term_counts() -> None:
    nameless = DrainRequest(Term(7), "", 0, "build-3")
    assert not nameless.is_meant_for(Term(8), a_holder(""))
