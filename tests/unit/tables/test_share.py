from itertools import pairwise

import pytest

from dagster_ckpt.hash_range import HASH_MAX
from dagster_ckpt.ids import Epoch, Shard
from dagster_ckpt.protocol.manifest.manifest import ChangeRef
from dagster_ckpt.tables import Share


def file(number: int, bytes_: int) -> ChangeRef:
    return ChangeRef(f"changes/{number}", 1, bytes_, "0", Epoch(1), Shard(0))


FILES = [file(number, bytes_) for number, bytes_ in enumerate([10, 1, 1, 500, 40, 40, 300, 7])]


@pytest.mark.parametrize("of", [1, 2, 3, 7, 200])
def test_each_hash_and_each_file_is_in_one_share(of: int) -> None:
    shares = [Share(number, of) for number in range(of)]
    assert [shares[0].within.lo, shares[-1].within.hi] == [0, HASH_MAX]
    assert all(one.within.hi + 1 == next_.within.lo for one, next_ in pairwise(shares))
    assert [ref for share in shares for ref in share.files(FILES)] == FILES


@pytest.mark.parametrize("again", [1, 2, 5])
def test_a_share_can_be_shared_again(again: int) -> None:
    whole = Share(1, 3)
    parts = [Share(again + number, 3 * again) for number in range(again)]
    assert (parts[0].within.lo, parts[-1].within.hi) == (whole.within.lo, whole.within.hi)
    assert [ref for share in parts for ref in share.files(FILES)] == whole.files(FILES)


def test_of_many_files_all_shares_have_about_as_many_bytes() -> None:
    files = [file(number, 100 + number % 50) for number in range(400)]
    sizes = [sum(ref.bytes for ref in Share(number, 4).files(files)) for number in range(4)]
    assert max(sizes) < 1.05 * min(sizes)


def test_no_files_are_no_files() -> None:
    assert Share(2, 3).files([]) == []
