from itertools import pairwise

import numpy as np

from benchmarks.midpass import MidPass
from benchmarks.plan import Commits
from dagster_ckpt.ids import Epoch, Term
from dagster_ckpt.protocol.manifest.manifest import RunRef

COMMITS = Commits(shards=8, tasks=2, runs=8, warm=0, counted=0)


def lists_after(epochs: int) -> list[tuple[RunRef, ...]]:
    stream = MidPass("groups", COMMITS, np.random.default_rng(1))
    words = [stream.epoch(Term(1), Epoch(epoch)) for epoch in range(1, epochs + 1)]
    return [ack.tables[0].runs for ack in words[-1]]


def test_each_shard_has_as_many_runs_as_asked_and_none_twice() -> None:
    assert {len(runs) for runs in lists_after(20)} == {8}
    assert all(len({run.path for run in runs}) == 8 for runs in lists_after(20))


def test_the_shards_of_a_task_share_its_files() -> None:
    lists = lists_after(20)
    paths = [{run.path for run in runs} for runs in lists]
    assert paths[0] == paths[1] == paths[3]
    assert paths[4] == paths[7]
    assert not paths[3] & paths[4]


def test_uppers_have_merge_ranges_of_the_shards_own_and_the_bottom_shows_each_hash_once() -> None:
    lists = lists_after(20)
    for shard, runs in enumerate(lists):
        lo, hi = shard * 2**61, (shard + 1) * 2**61 - 1
        assert all(lo < run.moved_lo <= hi and lo < run.moved_hi <= hi for run in runs[1:5])
        clips = [run.clip for run in runs[5:]]
        assert (clips[0].lo, clips[-1].hi) == (lo, hi)
        assert all(before.hi + 1 == after.lo for before, after in pairwise(clips))
    assert len({run.moved_hi for runs in lists for run in runs[1:5]}) == 8
