import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.runtime.layout import Layout
from dagster_ckpt.runtime.shard_work import chunks_of, split

POWERS_OF_TWO = st.sampled_from([1, 2, 4, 8, 64, 512])


@given(shards=POWERS_OF_TWO, tasks_max=st.integers(1, 600))
def test_every_shard_has_one_task_and_every_task_a_shard(shards: int, tasks_max: int) -> None:
    layout = Layout.keyed(shards, tasks_max)
    assert layout.tasks is not None
    assert layout.tasks <= tasks_max
    by_task = [layout.shards_of(task) for task in range(layout.tasks)]
    assert all(by_task)
    assert [shard for task in by_task for shard in task] == list(range(shards))


@given(shards=POWERS_OF_TWO, hashes=st.lists(st.integers(0, 2**64 - 1)))
def test_a_shard_is_the_hashes_top_bits(shards: int, hashes: list[int]) -> None:
    found = Layout.keyed(shards, 1).shards_in(np.array(hashes, np.uint64))
    assert found.tolist() == [value * shards // 2**64 for value in hashes]


def test_the_partitions_of_an_unkeyed_stream_take_turns() -> None:
    layout = Layout.unkeyed(4)
    assert [layout.shards_of(partition) for partition in (0, 3, 4, 9)] == [(0,), (3,), (0,), (1,)]


@given(hashes=st.lists(st.integers(0, 2**64 - 1)))
def test_splitting_loses_no_row_and_keeps_the_order_within_a_shard(hashes: list[int]) -> None:
    layout = Layout.keyed(8, 2)
    array = np.array(hashes, np.uint64)
    rows = pa.table({"at": np.arange(len(hashes))})
    seen = []
    for shard, its_hashes, its_rows in split(layout, array, rows):
        places = its_rows["at"].to_pylist()
        assert places == sorted(places)
        assert its_hashes.tolist() == [hashes[place] for place in places]
        assert set(layout.shards_in(its_hashes).tolist()) == {shard}
        seen += places
    assert sorted(seen) == list(range(len(hashes)))


def test_batches_are_put_together_up_to_the_limit() -> None:
    batches = [pa.record_batch({"x": np.arange(rows)}) for rows in (10, 0, 10, 10, 5)]
    assert [chunk.num_rows for chunk in chunks_of(batches, 160)] == [20, 15]
    assert [chunk.num_rows for chunk in chunks_of(batches, 1)] == [10, 10, 10, 5]
    assert list(chunks_of([], 1)) == []
