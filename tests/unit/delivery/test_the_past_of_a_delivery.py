"""Streams and destinations that went back, were made again or lost something, with real runs of a delivery."""

import itertools
import shutil
from functools import partial
from pathlib import Path

import pytest

from dagster_ckpt.delivery import delivery_rows
from dagster_ckpt.delivery.destination import DeliveredTable, DeliveryMode, Transaction
from dagster_ckpt.delivery.judgement import Judgement, Move, PositionFinding, judge
from dagster_ckpt.errors import FencedError, IncompatibleStateError
from dagster_ckpt.ids import EMPTY, Epoch, StreamUuid
from dagster_ckpt.lsm.compaction.compaction import CompactionLimits
from dagster_ckpt.protocol.epochs.upstream import Trouble, UpstreamPosition, next_part
from dagster_ckpt.runtime.driver.stream_job import JobHooks
from dagster_ckpt.runtime.micro_batch.epoch_driver import CommittedEpoch
from dagster_ckpt.storage.operations import collector
from examples.destinations.sqlite_destination import SQLite, SQLiteSession
from tests.unit.delivery.delivering import Delivering
from tests.unit.history.made_streams import MadeStream, departures

MODES = pytest.mark.parametrize("mode", list(DeliveryMode))
REPLACES_FILES = CompactionLimits(depth_min=1, depth_max=1, tier_runs=2, slice_rows_min=1, slice_bytes_min=1)
CARRIERS = ("UA", "AA", "DL", "B6", "WN", "AS", "HA", "F9")


def delivered_once(folder: Path, mode: DeliveryMode, retained: int = 20) -> Delivering:
    """A delivery that has delivered two epochs."""
    delivering = Delivering(folder, mode=mode, retained=retained)
    for carrier in CARRIERS[:2]:
        delivering.stream.commit(departures({carrier: [1.0]}))
    delivering.deliver()
    return delivering


def with_a_part_for_each_carrier(folder: Path, mode: DeliveryMode, monkeypatch: pytest.MonkeyPatch) -> Delivering:
    """A delivery that has delivered nothing yet of a table with a row for each of `CARRIERS`."""
    monkeypatch.setattr(delivery_rows, "next_part", partial(next_part, rows_max=1))
    delivering = Delivering(folder, mode=mode)
    for carrier in CARRIERS:
        delivering.stream.commit(departures({carrier: [1.0]}))
    return delivering


def commit_and_collect(delivering: Delivering, max_lag: int) -> None:
    """Commit 32 epochs, as the newest 16 manifests always stay, and remove what the stream does not need after them."""
    for carrier in itertools.chain(*[CARRIERS] * 4):
        delivering.stream.commit(departures({carrier: [2.0]}))
    delivering.stream.open()  # files of the newest term are its writer's to remove
    delivering.store.stream("delays").collect_garbage("1ms", max_lag=max_lag)


@MODES
def test_a_stream_that_was_made_again_is_another_one(tmp_path: Path, mode: DeliveryMode) -> None:
    delivering = delivered_once(tmp_path, mode)
    before = delivering.delivered()
    shutil.rmtree(tmp_path / "store" / "delays")
    again = MadeStream(delivering.url, "delays")
    for carrier in CARRIERS:
        again.commit(departures({carrier: [9.0]}))
    with pytest.raises(IncompatibleStateError, match=r"of another stream: nothing was written.*asset=delays_in_sqlite"):
        delivering.deliver()
    assert delivering.delivered() == before


@MODES
def test_a_log_that_is_gone_is_replaced_by_the_table_or_stops(
    tmp_path: Path, mode: DeliveryMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "_COARSE_MS", 0)  # or all that is younger than a second stays
    delivering = delivered_once(tmp_path, mode, retained=1)
    before = delivering.delivered()
    commit_and_collect(delivering, max_lag=2)
    if mode is DeliveryMode.APPEND:
        with pytest.raises(IncompatibleStateError, match="no longer keeps the change log after what was delivered"):
            delivering.deliver()
        assert delivering.delivered() == before
        return
    delivering.deliver()
    assert delivering.delivered() == delivering.table() != before
    delivering.stream.commit(departures({"UA": [3.0]}))
    delivering.deliver()
    assert delivering.delivered() == delivering.table()


def test_a_replacement_keeps_the_table_that_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "_COARSE_MS", 0)
    delivering = delivered_once(tmp_path, DeliveryMode.UPSERT, retained=1)
    delivering.stream.limits = REPLACES_FILES
    commit_and_collect(delivering, max_lag=2)
    shown, apply = delivering.table(), SQLiteSession.apply

    def slow(session: SQLiteSession, transaction: Transaction) -> None:
        assert transaction.replaces
        commit_and_collect(delivering, max_lag=40)
        apply(session, transaction)

    with monkeypatch.context() as patched:
        patched.setattr(SQLiteSession, "apply", slow)
        delivering.deliver()
    assert delivering.delivered() == shown
    assert delivering.store.stream("delays").pins() == []
    delivering.deliver()
    assert delivering.delivered() == delivering.table() != shown


@MODES
@pytest.mark.parametrize("first", [True, False])
def test_what_is_cut_off_while_it_is_read_is_judged_again(
    tmp_path: Path, mode: DeliveryMode, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is gone with the snapshot or the log is no damage of the stream."""
    monkeypatch.setattr(collector, "_COARSE_MS", 0)
    delivering = Delivering(tmp_path, mode=mode, retained=1)
    delivering.stream.limits = REPLACES_FILES
    for carrier in CARRIERS[:2]:
        delivering.stream.commit(departures({carrier: [1.0]}))
    if not first:
        delivering.deliver()
        delivering.stream.commit(departures({"UA": [2.0]}))
    before, apply = [] if first else delivering.delivered(), SQLiteSession.apply
    tries: list[Transaction] = []

    def slow(session: SQLiteSession, transaction: Transaction) -> None:
        tries.append(transaction)
        if len(tries) == 1:
            commit_and_collect(delivering, max_lag=2)
        apply(session, transaction)

    monkeypatch.setattr(SQLiteSession, "apply", slow)
    if mode is DeliveryMode.APPEND and not first:
        with pytest.raises(IncompatibleStateError, match="no longer keeps the change log after what was delivered"):
            delivering.deliver()
        assert delivering.delivered() == before
        return
    delivering.deliver()
    assert len(tries) == 2
    columns = "carrier, flights" if mode is DeliveryMode.APPEND else "*"
    assert delivering.delivered(columns) == sorted(
        (row[:2] if mode is DeliveryMode.APPEND else row for row in delivering.table()), key=repr
    )


@MODES
def test_an_overtaken_delivery_is_fenced_though_what_it_read_is_gone(
    tmp_path: Path, mode: DeliveryMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "_COARSE_MS", 0)
    delivering = delivered_once(tmp_path, mode, retained=1)
    opened = SQLite.open

    def suspended(destination: SQLite, delivery: str, table: DeliveredTable) -> SQLiteSession:
        session = opened(destination, delivery, table)
        monkeypatch.setattr(SQLite, "open", opened)
        delivering.stream.commit(departures({"UA": [2.0]}))
        delivering.deliver()  # the successor
        commit_and_collect(delivering, max_lag=32)
        return session

    monkeypatch.setattr(SQLite, "open", suspended)
    with pytest.raises(FencedError):
        delivering.deliver()
    assert delivering.store.stream("delays").pins() == []
    delivering.deliver()
    if mode is DeliveryMode.UPSERT:
        assert delivering.delivered() == delivering.table()


@MODES
def test_a_snapshot_that_is_gone_halfway_is_replaced_by_the_table_or_stops(
    tmp_path: Path, mode: DeliveryMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivering = with_a_part_for_each_carrier(tmp_path, mode, monkeypatch)
    committed: list[CommittedEpoch] = []
    some = JobHooks(on_commit=committed.append, stop_reason=lambda: "some of it" if len(committed) == 3 else None)
    manifest = delivering.deliver(hooks=some).manifest
    assert manifest.backfill.position == f"3/{len(CARRIERS)}"
    stream = delivering.store.stream("delays")
    for pin in stream.pins():
        stream.unpin(pin.name)
    before = delivering.delivered()
    if mode is DeliveryMode.APPEND:
        with pytest.raises(IncompatibleStateError, match="the snapshot that was being delivered is gone"):
            delivering.deliver()
        assert delivering.delivered() == before
        return
    delivering.deliver()
    assert delivering.delivered() == delivering.table()


@MODES
def test_a_snapshot_goes_on_where_a_run_has_ended(
    tmp_path: Path, mode: DeliveryMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivering = with_a_part_for_each_carrier(tmp_path, mode, monkeypatch)
    committed: list[CommittedEpoch] = []
    for parts in range(1, 4):
        ends = JobHooks(
            on_commit=committed.append,
            stop_reason=lambda parts=parts: "for now" if len(committed) == 2 * parts else None,  # type: ignore[misc]
        )
        delivering.deliver(hooks=ends)
        delivering.stream.commit(departures({"UA": [float(parts)]}))  # behind the snapshot, in the log
    delivering.deliver()
    rows = delivering.delivered("carrier, flights")
    if mode is DeliveryMode.UPSERT:
        assert delivering.delivered() == delivering.table()
    else:
        assert len(rows) == len(CARRIERS) + 3 * 2


@MODES
def test_a_fork_begins_without_deliveries(tmp_path: Path, mode: DeliveryMode) -> None:
    delivering = delivered_once(tmp_path, mode)
    before = delivering.delivered()
    assert [each.stream for each in delivering.store.stream("delays").subscribers()] == ["delays_in_sqlite"]
    fork = delivering.store.stream("delays").fork("dev/delays")
    assert fork.subscribers() == []
    MadeStream(delivering.url, "dev/delays").commit(departures({"ZZ": [1.0]}))
    delivering.deliver()
    assert delivering.delivered() == before


@MODES
def test_a_rollback_and_new_epochs_of_other_rows_are_noticed(tmp_path: Path, mode: DeliveryMode) -> None:
    """The stream is further than the destination again: a number alone would not tell."""
    delivering = delivered_once(tmp_path, mode)
    first = delivering.store.stream("delays").epochs()[-1].epoch
    before = delivering.delivered()
    delivering.stream.open(from_epoch=first)
    for carrier in CARRIERS[2:]:
        delivering.stream.commit(departures({carrier: [5.0]}))
    if mode is DeliveryMode.APPEND:
        with pytest.raises(IncompatibleStateError, match="rolled back to before what was delivered"):
            delivering.deliver()
        assert delivering.delivered() == before
    else:
        delivering.deliver()
        assert delivering.delivered() == delivering.table() != before


THERE = UpstreamPosition(StreamUuid("9f0c2d6a1e4b4e0f9d3c5a7b8e6f1a2b"), Epoch(7))


@pytest.mark.parametrize(
    ("there", "known", "trouble", "upsert", "append"),
    [
        (None, EMPTY, None, Judgement(Move.BEGIN), Judgement(Move.BEGIN)),
        (
            None,
            Epoch(7),
            None,
            Judgement(Move.STOP, PositionFinding.EMPTIED),
            Judgement(Move.STOP, PositionFinding.EMPTIED),
        ),
        (THERE, Epoch(7), None, Judgement(Move.CONTINUE), Judgement(Move.CONTINUE)),
        (THERE, Epoch(5), None, Judgement(Move.CONTINUE), Judgement(Move.CONTINUE)),
        (
            THERE,
            Epoch(9),
            None,
            Judgement(Move.CONTINUE, PositionFinding.RESTORED),
            Judgement(Move.CONTINUE, PositionFinding.RESTORED),
        ),
        (
            THERE,
            Epoch(7),
            Trouble.RECREATED,
            Judgement(Move.STOP, PositionFinding.FOREIGN),
            Judgement(Move.STOP, PositionFinding.FOREIGN),
        ),
        *(
            (THERE, Epoch(7), trouble, Judgement(Move.REPLACE, found), Judgement(Move.STOP, found))
            for trouble, found in (
                (Trouble.ROLLED_BACK, PositionFinding.ROLLED_BACK),
                (Trouble.CUT_OFF, PositionFinding.CUT_OFF),
                (Trouble.UNPINNED, PositionFinding.UNPINNED),
            )
        ),
    ],
)
def test_each_position_has_one_way_on(
    there: UpstreamPosition | None, known: Epoch, trouble: Trouble | None, upsert: Judgement, append: Judgement
) -> None:
    assert judge(DeliveryMode.UPSERT, there, known, trouble) == upsert
    assert judge(DeliveryMode.APPEND, there, known, trouble) == append


@MODES
@pytest.mark.parametrize("whole", [True, False])
def test_a_store_restored_from_a_backup_is_delivered_again_or_stops(
    tmp_path: Path, mode: DeliveryMode, whole: bool
) -> None:
    """Case 20: the destination is ahead, and the stream reaches the number of its position again, with other rows."""
    delivering = delivered_once(tmp_path, mode)
    store, backup = tmp_path / "store", tmp_path / "backup"
    shutil.copytree(store, backup)
    delivering.stream.commit(departures({"UA": [10.0]}))
    delivering.deliver()
    before = delivering.delivered()
    restored = store if whole else store / "delays"
    shutil.rmtree(restored)
    shutil.copytree(backup if whole else backup / "delays", restored)
    delivering.stream = MadeStream(delivering.url, "delays", retained=20)
    for carrier in ("DL", "B6"):
        delivering.stream.commit(departures({carrier: [7.0]}))
        if mode is DeliveryMode.UPSERT:
            delivering.deliver()
            assert delivering.delivered() == delivering.table()
            continue
        both = r'restored from a backup: nothing was written.*position={.*"epoch": 4, "nonce": .*}, there={.*"nonce": '
        with pytest.raises(IncompatibleStateError, match=both):
            delivering.deliver()
        assert delivering.delivered() == before
