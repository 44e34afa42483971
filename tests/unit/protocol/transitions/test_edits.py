from dataclasses import replace
from typing import Any

import pytest

from dagster_ckpt.ids import EMPTY, Nonce, Shard, StreamUuid
from dagster_ckpt.protocol.ack import FilesMerged, ShardAck
from dagster_ckpt.protocol.manifest.manifest import (
    Ancestor,
    FileSeen,
    IndexedList,
    Manifest,
    SourceIdentity,
    SourcePosition,
    StepWork,
)
from dagster_ckpt.protocol.transitions.edits import (
    SLOWEST_MAX,
    Beginning,
    EpochEdit,
    Forking,
    Stamp,
    epoch_manifest,
    first_manifest,
    forked_empty,
    opening_manifest,
    rollback_manifest,
)
from dagster_ckpt.protocol.transitions.manifest_rules import violations
from dagster_ckpt.protocol.transitions.well_formed import broken_rules
from tests.worlds.manifests import OWNER, PIPELINE
from tests.worlds.several_steps import shops_counted
from tests.worlds.streams import an_edit

FORKED_FROM = (Ancestor(StreamUuid("u"), "a/b", EMPTY),)
FIRST = first_manifest(Beginning("a/b", StreamUuid("u"), OWNER, PIPELINE, 2), Stamp(Nonce("n"), 1))
APPEND = replace(PIPELINE, operator="append", parameters={}, keys=(), tables=(), appends=True)
EMPTY_TABLE = first_manifest(Beginning("a/b", StreamUuid("u"), OWNER, APPEND, 2), Stamp(Nonce("n"), 1))


def with_times(edit: EpochEdit, *times_us: tuple[int | None, ...], delays_us: tuple[int | None, ...]) -> EpochEdit:
    acks = tuple(replace(ack, event_times_us=times) for ack, times in zip(edit.acks, times_us, strict=True))
    return replace(edit, acks=acks, delays_us=delays_us)


def after(
    parent: Manifest, *times_us: tuple[int | None, ...], delays_us: tuple[int | None, ...], **more: Any
) -> Manifest:
    edit = with_times(an_edit(parent), *times_us, delays_us=delays_us)
    return epoch_manifest(parent, replace(edit, **more), 5, Stamp(Nonce("m"), 2))


@pytest.mark.parametrize(
    ("times_us", "delays_us", "event_times_us", "watermark_us"),
    [
        ([(50,), (70,)], (10,), (70,), 60),
        ([(50,), ()], (10,), (50,), 40),
        ([(None,), (-5,)], (10,), (-5,), -15),
        ([(None,), (None,)], (10,), (None,), None),
        ([(50,), (70,)], (None,), (70,), None),
        ([(50,), (70,)], (), (70,), None),
        ([(50, 20), (70, None)], (10, 10), (70, 20), 10),
        ([(50, None), (70, None)], (10, 10), (70, None), None),
        ([(50, None), (70, None)], (10, None), (70, None), 60),
    ],
)
def test_the_watermark_is_the_least_that_every_input_has_reached(
    times_us: list[tuple[int | None, ...]],
    delays_us: tuple[int | None, ...],
    event_times_us: tuple[int | None, ...],
    watermark_us: int | None,
) -> None:
    manifest = after(FIRST, *times_us, delays_us=delays_us)
    assert (manifest.event_times_us, manifest.watermark_us) == (event_times_us, watermark_us)


def test_the_watermark_never_goes_back_not_even_with_a_longer_delay_or_without_rows() -> None:
    first = after(FIRST, (50,), (70,), delays_us=(10,))
    for second in [
        after(first, (5,), (5,), delays_us=(10,)),
        after(first, (), (), delays_us=(10,)),
        after(first, (71,), (71,), delays_us=(50,)),
        after(first, (), (), delays_us=(None,)),
    ]:
        assert second.watermark_us == 60


@pytest.mark.parametrize(
    ("idle", "watermark_us"),
    [
        ((False, False), 10),
        ((False, True), 60),  # the second input is not waited for
        ((True, True), 60),  # as if the second, which is behind, had become idle first
    ],
)
def test_an_idle_input_is_not_waited_for(idle: tuple[bool, ...], watermark_us: int | None) -> None:
    assert after(FIRST, (70, 20), (70, 20), delays_us=(10, 10), idle=idle).watermark_us == watermark_us


def test_an_idle_input_that_never_showed_a_time_does_not_hold_the_others() -> None:
    assert after(FIRST, (70, None), (), delays_us=(10, 10), idle=(False, True)).watermark_us == 60
    waiting = after(FIRST, (70, None), (), delays_us=(10, 10))
    moved = after(waiting, (), (), delays_us=(10, 10), idle=(False, True))
    assert (waiting.watermark_us, moved.watermark_us) == (None, 60)
    # When it comes back with older rows, the watermark stays: they are late.
    assert after(moved, (None, 5), (), delays_us=(10, 10)).watermark_us == 60


def test_the_order_in_which_inputs_become_idle_does_not_count() -> None:
    both = after(FIRST, (70, 20), (), delays_us=(10, 10))
    at_once = after(both, (), (), delays_us=(10, 10), idle=(True, True), ran_tasks=False)
    first = after(both, (), (), delays_us=(10, 10), idle=(False, True), ran_tasks=False)
    then = after(first, (), (), delays_us=(10, 10), idle=(True, True), ran_tasks=False)
    assert at_once.watermark_us == then.watermark_us == 60
    # An input that never saw a time does not count, and if none did there is no watermark.
    assert after(FIRST, (70, None), (), delays_us=(10, 10), idle=(True, True)).watermark_us == 60
    assert after(FIRST, (None, None), (), delays_us=(10, 10), idle=(True, True)).watermark_us is None


@pytest.mark.parametrize("time_us", [2**63 - 1, -(2**63)])
def test_a_broken_event_time_moves_the_watermark_no_further_than_can_be_reckoned_with(time_us: int) -> None:
    moved = after(FIRST, (time_us,), (), delays_us=(2**61,)).watermark_us
    assert moved is not None
    assert abs(moved) <= 2**62


def test_the_end_of_the_input_moves_the_watermark_and_never_back() -> None:
    first = after(FIRST, (50,), (70,), delays_us=(10,))
    assert after(first, (), (), delays_us=(10,), ran_tasks=False, at_least_us=99).watermark_us == 99
    assert after(first, (), (), delays_us=(10,), ran_tasks=False, at_least_us=9).watermark_us == 60


def test_the_end_of_an_input_with_a_broken_event_time_moves_the_watermark_no_further_either() -> None:
    end = after(FIRST, (2**63 - 1,), (), delays_us=(10,), at_least_us=2**63 + 2**61)
    assert end.watermark_us == 2**62


def test_an_epoch_with_work_has_emitted_up_to_the_watermark_it_began_with() -> None:
    first = after(FIRST, (50,), (70,), delays_us=(10,))
    second = after(first, (80,), (80,), delays_us=(10,))
    third = after(second, (), (), delays_us=(10,), ran_tasks=False)
    assert [each.harvested_us for each in (first, second, third)] == [None, 60, 60]
    assert third.watermark_us == 70


def test_a_table_that_a_shard_does_not_name_keeps_its_runs() -> None:
    first = epoch_manifest(FIRST, an_edit(FIRST), 5, Stamp(Nonce("m"), 2))
    edit = an_edit(first)
    silent = replace(edit, acks=(ShardAck(edit.acks[0].shard), edit.acks[1]))
    second = epoch_manifest(first, silent, 5, Stamp(Nonce("o"), 3))
    assert second.runs["total"][0] == first.runs["total"][0]
    assert second.runs["total"][1] == edit.acks[1].tables[0].runs


def test_an_estimate_of_rows_that_errs_fails_no_epoch() -> None:
    edit = an_edit(FIRST)
    erring = replace(edit, acks=tuple(replace(ack, state_rows=-1) for ack in edit.acks))
    second = epoch_manifest(FIRST, erring, 5, Stamp(Nonce("m"), 2))
    assert second.statistics.state_rows == 0
    assert not broken_rules(second)


def test_the_parent_is_a_value_that_no_edit_changes() -> None:
    before = replace(FIRST, runs=dict(FIRST.runs))
    epoch_manifest(FIRST, an_edit(FIRST), 5, Stamp(Nonce("m"), 2))
    assert before == FIRST


def merging(edit: EpochEdit, *replaced: str, rows: int) -> EpochEdit:
    """The edit in which these files have become one."""
    file = replace(edit.acks[0].changes[0], path="table/1/1-9-0-0.parquet", rows=rows)
    first = replace(edit.acks[0], files_merged=FilesMerged(replaced, file), merged_rows=rows)
    return replace(edit, acks=(first, *edit.acks[1:]))


def test_a_merged_file_stands_where_its_neighbours_stood_and_the_epochs_own_files_come_last() -> None:
    first = epoch_manifest(EMPTY_TABLE, an_edit(EMPTY_TABLE), 5, Stamp(Nonce("m"), 2))
    second = epoch_manifest(first, an_edit(first), 5, Stamp(Nonce("o"), 3))
    paths = [file.path for file in second.files.tail]
    assert len(paths) == 4
    edit = merging(an_edit(second), *paths[1:3], rows=10)
    third = epoch_manifest(second, edit, 5, Stamp(Nonce("p"), 4))
    own = [change.path for change in third.changes]
    assert [file.path for file in third.files.tail] == [paths[0], "table/1/1-9-0-0.parquet", paths[3], *own]
    assert third.statistics.merged_rows == 10
    assert [file.path for file in second.files.tail] == paths, "the parent is a value"


@pytest.mark.parametrize(
    ("chosen", "rows", "message"),
    [
        ([0, 2], 10, "not neighbours"),
        ([1, 0], 10, "not neighbours"),
        ([3, 4], 10, "not neighbours"),
        ([4, 5], 10, "not neighbours"),
        ([1, 2], 9, "lacks rows"),
    ],
)
def test_what_was_merged_of_another_list_is_never_committed(chosen: list[int], rows: int, message: str) -> None:
    first = epoch_manifest(EMPTY_TABLE, an_edit(EMPTY_TABLE), 5, Stamp(Nonce("m"), 2))
    second = epoch_manifest(first, an_edit(first), 5, Stamp(Nonce("o"), 3))
    paths = [*(file.path for file in second.files.tail), "changes/1-1-0-0.parquet", "changes/1-1-1-0.parquet"]
    edit = merging(an_edit(second), *(paths[at] for at in chosen), rows=rows)
    with pytest.raises(AssertionError, match=message):
        epoch_manifest(second, edit, 5, Stamp(Nonce("p"), 4))


LATEST = SourceIdentity("kafka", "", (("subscribe", "departures"),))
FOLDER = SourceIdentity("parquet", "file:/data/departures")


def having_read() -> Manifest:
    """A stream that has read a topic from `latest` on, and a folder."""
    begun = replace(an_edit(FIRST), sources=(SourcePosition(LATEST, initial="at 12"), SourcePosition(FOLDER)))
    first = epoch_manifest(FIRST, begun, 5, Stamp(Nonce("m"), 2))
    seen = SourcePosition(FOLDER, current="0", files=IndexedList(tail=(FileSeen("file:///data/departures/0", 1),)))
    read = (SourcePosition(LATEST, current="at 19", initial="at 12"), seen)
    return epoch_manifest(first, replace(an_edit(first), sources=read), 5, Stamp(Nonce("o"), 3))


def test_rollback_to_epoch_0_keeps_where_each_source_began() -> None:
    stream = having_read()
    back = rollback_manifest(opening_manifest(stream, OWNER, PIPELINE, Stamp(Nonce("p"), 4)), None, "run-2")
    assert back.sources == (SourcePosition(LATEST, initial="at 12"),)
    assert violations(stream, back) == []
    again = rollback_manifest(opening_manifest(back, OWNER, PIPELINE, Stamp(Nonce("q"), 5)), None, "run-3")
    assert again.sources == back.sources


def test_fork_of_epoch_0_begins_where_the_sources_of_its_origin_began() -> None:
    fork = forked_empty(having_read(), Forking("c", StreamUuid("v"), FORKED_FROM), Stamp(Nonce("p"), 4))
    assert fork.sources == (SourcePosition(LATEST, initial="at 12"),)
    assert violations(None, fork) == []


def test_epoch_0_may_go_on_with_other_sources() -> None:
    back = rollback_manifest(opening_manifest(having_read(), OWNER, PIPELINE, Stamp(Nonce("p"), 4)), None, "run-2")
    other = replace(an_edit(back), sources=(SourcePosition(SourceIdentity("rate", ""), initial="now"),))
    assert violations(back, epoch_manifest(back, other, 5, Stamp(Nonce("q"), 5))) == []


def test_an_epoch_shows_its_interval_and_the_shards_that_took_longest() -> None:
    took = [(0, 30, 1), (1, 900, 5), (2, 900, 9), (3, 0, 0)]
    of_four = first_manifest(Beginning("a/b", StreamUuid("u"), OWNER, PIPELINE, 4), Stamp(Nonce("n"), 1))
    acks = tuple(ShardAck(Shard(at), milliseconds=ms, rows_in=rows, host="worker") for at, ms, rows in took)
    edit = replace(an_edit(of_four), acks=acks, interval_ms=10_000)
    shown = epoch_manifest(of_four, edit, 5, Stamp(Nonce("m"), 2))
    assert shown.checkpoint_interval_ms == 10_000
    assert [(each.shard, each.milliseconds, each.rows_in) for each in shown.slowest_shards] == [
        (2, 900, 9),
        (1, 900, 5),
        (0, 30, 1),
        (3, 0, 0),
    ]
    again = opening_manifest(shown, OWNER, PIPELINE, Stamp(Nonce("o"), 3))
    assert (again.checkpoint_interval_ms, again.slowest_shards) == (10_000, shown.slowest_shards)
    without_work = replace(an_edit(again), acks=tuple(ShardAck(ack.shard) for ack in acks), ran_tasks=False)
    assert epoch_manifest(again, without_work, 5, Stamp(Nonce("p"), 4)).slowest_shards == ()


def test_a_manifest_has_the_times_of_a_bounded_number_of_shards() -> None:
    many = first_manifest(Beginning("a/b", StreamUuid("u"), OWNER, PIPELINE, 64), Stamp(Nonce("n"), 1))
    acks = tuple(ShardAck(Shard(at), milliseconds=at, host="worker") for at in range(64))
    shown = epoch_manifest(many, replace(an_edit(many), acks=acks), 5, Stamp(Nonce("m"), 2)).slowest_shards
    assert [each.shard for each in shown] == list(range(63, 63 - SLOWEST_MAX, -1))


def test_an_epoch_has_the_work_of_each_of_several_steps() -> None:
    begun = first_manifest(Beginning("a/b", StreamUuid("u"), OWNER, shops_counted(), 2), Stamp(Nonce("n"), 1))

    def ack(step: int, shard: int, milliseconds: int, **rows: Any) -> ShardAck:
        return ShardAck(Shard(shard), step=step, milliseconds=milliseconds, host="worker", **rows)

    acks = (
        ack(0, 0, 30, rows_in=7, late_rows=2, late_rows_by_input=(2, 0, 0), rows_to_steps=5),
        ack(0, 1, 30, rows_in=3),
        ack(1, 0, 50, rows_from_steps=1, rows_to_steps=4),
        ack(1, 1, 90, rows_from_steps=4),
        ack(2, 0, 10, rows_from_steps=4, rows_out=3),
        ack(2, 1, 20),
    )
    shown = epoch_manifest(begun, replace(an_edit(begun), acks=acks), 5, Stamp(Nonce("m"), 2))
    assert shown.steps == (StepWork(10, 5, 2, 30), StepWork(5, 4, 0, 90), StepWork(4, 3, 0, 20))
    assert (shown.statistics.rows_in, shown.statistics.rows_out, shown.statistics.late_rows) == (10, 3, 2)
    assert [(each.step, each.shard, each.rows_in) for each in shown.slowest_shards[:3]] == [
        (1, 1, 4),
        (1, 0, 1),
        (0, 0, 7),
    ]
    assert opening_manifest(shown, OWNER, shown.pipeline, Stamp(Nonce("o"), 3)).steps == shown.steps
    assert rollback_manifest(shown, None, "run").steps == ()
    assert epoch_manifest(FIRST, an_edit(FIRST), 5, Stamp(Nonce("m"), 2)).steps == ()
