import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.runtime.task.shard_assignment import ShardAssignment

POWERS_OF_TWO = st.sampled_from([1, 2, 4, 8, 64, 512])


@given(shards=POWERS_OF_TWO, tasks_max=st.integers(1, 600))
def test_every_shard_has_one_task_and_every_task_a_shard(shards: int, tasks_max: int) -> None:
    assignment = ShardAssignment.keyed(shards, tasks_max)
    assert assignment.tasks is not None
    assert assignment.tasks <= tasks_max
    by_task = [assignment.shards_of(task) for task in range(assignment.tasks)]
    assert all(by_task)
    assert [shard for task in by_task for shard in task] == list(range(shards))


@given(shards=POWERS_OF_TWO, hashes=st.lists(st.integers(0, 2**64 - 1)))
def test_a_shard_is_the_hashes_top_bits(shards: int, hashes: list[int]) -> None:
    found = ShardAssignment.keyed(shards, 1).shards_in(np.array(hashes, np.uint64))
    assert found.tolist() == [value * shards // 2**64 for value in hashes]


def test_the_partitions_of_an_unkeyed_stream_take_turns() -> None:
    assignment = ShardAssignment.unkeyed(4)
    assert [assignment.shards_of(partition) for partition in (0, 3, 4, 9)] == [(0,), (3,), (0,), (1,)]
