import json
from dataclasses import replace

import pytest

from dagster_ckpt.ids import Epoch, Shard
from dagster_ckpt.protocol.ack import FilesMerged, ShardAck, ShardRuns
from dagster_ckpt.protocol.manifest.manifest import ChangeRef, RunRef
from dagster_ckpt.runtime.task.ack_rows import ShardDecline, decode_replies, encode_replies, merge_acks

RUN = RunRef("state/groups/00000-of-00002/2-3-0-7.arrow", rows=5, bytes=99, checksum="ab", epoch=Epoch(3))
CHANGE = ChangeRef("changes/2-3-1-7.parquet", rows=4, bytes=88, checksum="cd", epoch=Epoch(3), shard=Shard(1))
MERGED = FilesMerged(
    ("changes/2-1-0-1.parquet", "changes/2-2-0-4.parquet"),
    ChangeRef("table/1/2-3-0-7.parquet", rows=9, bytes=70, checksum="ef", epoch=Epoch(2), shard=Shard(0)),
)
ACK = ShardAck(
    Shard(1),
    (ShardRuns("groups", (RUN,)),),
    (CHANGE,),
    rows_in=7,
    rows_out=4,
    late_rows=1,
    state_rows=-2,
    event_times_us=(None, -5),
    milliseconds=12,
    host="worker-1",
    merged_rows=3,
    stall_ms=4,
    counters=(("keys_touched", 2),),
    files_merged=MERGED,
    table_rows=-1,
)
DECLINE = ShardDecline(Shard(3), "worker-2", "OSError", "the disk is full. path=/data")


def test_words_survive_their_bytes() -> None:
    assert decode_replies(encode_replies([ACK, DECLINE])) == [ACK, DECLINE]


def test_each_shard_gets_its_own_runs_back() -> None:
    runs = [replace(RUN, path=f"state/groups/00000-of-00002/2-3-{number}-7.arrow") for number in range(4)]
    first = replace(ACK, tables=(ShardRuns("groups", tuple(runs[:2])), ShardRuns("late", ())))
    bare, last = (
        ShardAck(Shard(2)),
        ShardAck(Shard(3), (ShardRuns("late", (runs[2],)), ShardRuns("groups", (runs[3],)))),
    )
    assert decode_replies(encode_replies([first, bare, last])) == [first, bare, last]
    assert decode_replies(encode_replies([])) == []


def test_run_lists_that_do_not_add_up_are_no_replies() -> None:
    text = json.loads(encode_replies([ACK]))
    for name in ("tables", "counts"):
        with pytest.raises(ValueError, match="argument"):
            decode_replies(json.dumps({**text, name: []}))


def test_the_partitions_of_an_unkeyed_shard_are_one_ack() -> None:
    one = ShardAck(Shard(1), (), (CHANGE,), 4, 4, event_times_us=(7, None), milliseconds=9, host="a")
    other = ShardAck(
        Shard(1), (), (CHANGE,), rows_in=2, rows_out=2, event_times_us=(3, None), milliseconds=20, host="b"
    )
    third = ShardAck(Shard(0), rows_in=1)
    assert merge_acks([one, third, other]) == {
        Shard(0): third,
        Shard(1): ShardAck(Shard(1), (), (CHANGE, CHANGE), 6, 6, event_times_us=(7, None), milliseconds=20, host="b"),
    }


@pytest.mark.parametrize("swap", [1, -1])
def test_what_one_partition_has_merged_is_in_the_ack_of_its_shard(swap: int) -> None:
    acks = [ShardAck(Shard(0), merged_rows=9, files_merged=MERGED), ShardAck(Shard(0), rows_in=4)]
    assert merge_acks(acks[::swap]) == {Shard(0): ShardAck(Shard(0), rows_in=4, merged_rows=9, files_merged=MERGED)}
    with pytest.raises(AssertionError, match="two tasks merged files"):
        merge_acks([acks[0], acks[0]])


def test_two_tasks_on_the_state_of_one_shard_are_our_mistake() -> None:
    with pytest.raises(AssertionError, match="shard=1"):
        merge_acks([ACK, ACK])
