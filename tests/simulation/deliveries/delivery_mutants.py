"""Deliveries with one rule left out each: what the oracle must catch. None of it is a switch in the product."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from dagster_ckpt.delivery.delivery_rows import DeliveryRows, NextRows
from dagster_ckpt.delivery.delivery_run import _DeliveryWork
from dagster_ckpt.delivery.destination import DeliveryMode, DestinationUnavailableError, Session, Transaction
from dagster_ckpt.delivery.judgement import Judgement, Move, judge
from dagster_ckpt.ids import Epoch, StreamUuid
from dagster_ckpt.protocol.epochs.upstream import Reader, Trouble, UpstreamPosition, decode
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.storage.retention_refs.upstream_log import NothingFollowsError, UpstreamLog
from tests.simulation.deliveries.database import SimulatedDestination, SimulatedSession

# ---- destinations


class WritesThePositionLater(SimulatedSession):
    """Rows and position are committed one after the other."""

    def apply(self, transaction: Transaction) -> None:
        rows = list(transaction.rows)
        self.to.request("commit", lambda _: self._write(transaction, rows))
        super().apply(replace(transaction, rows=iter(())))

    def _write(self, transaction: Transaction, rows: Sequence[pa.RecordBatch]) -> None:
        contents = self.database.contents
        contents = contents.changed(self.table, transaction, rows)
        self.database.commit(self.delivery, contents, replaces=transaction.replaces)


class TakesNoFence(SimulatedSession):
    """A session that was opened earlier may still commit."""

    def may_commit(self, transaction: Transaction) -> bool:
        return self.database.contents.positions.get(self.delivery) == transaction.after


class ComparesNothing(SimulatedSession):
    """Neither fence nor position is looked at."""

    def may_commit(self, transaction: Transaction) -> bool:
        return True


class TriesAgainBlindly(SimulatedSession):
    """A commit without a reply was none, so it is sent again, whatever the position is by now."""

    tries = 0

    def apply(self, transaction: Transaction) -> None:
        rows = list(transaction.rows)
        try:
            super().apply(replace(transaction, rows=iter(rows)))
        except DestinationUnavailableError:
            self.tries += 1
            super().apply(replace(transaction, rows=iter(rows)))

    def may_commit(self, transaction: Transaction) -> bool:
        return self.tries > 0 or super().may_commit(transaction)


def with_session(kind: type[SimulatedSession]) -> type[SimulatedDestination]:
    class Mutant(SimulatedDestination):
        def open(self, *what: Any) -> SimulatedSession:
            return kind(self, *what)

    return Mutant


# ---- the run


begun = _DeliveryWork._resume


def begins_at_any_stream(run: _DeliveryWork, session: Session) -> UpstreamPosition:
    """A position is an epoch alone: of whatever stream has that name now."""
    if session.position is not None:
        now = replace(decode(session.position), uuid=run._rows.log.newest().uuid)
        vars(session)["position"] = now.encode()
    return begun(run, session)


class ForgetsTheStream(SimulatedSession):
    """For `begins_at_any_stream`: the stream is no part of a position."""

    def may_commit(self, transaction: Transaction) -> bool:
        position = self.database.contents.positions.get(self.delivery)
        return self.database.is_held(self.delivery, self.hold) and _epoch(position) == _epoch(transaction.after)


def _epoch(position: str | None) -> UpstreamPosition | None:
    return None if position is None else replace(decode(position), uuid=StreamUuid(""))


def begins_at_its_manifest(run: _DeliveryWork, session: Session) -> UpstreamPosition:
    """The manifest says what was delivered, and the destination is not asked."""
    vars(session)["position"] = run._position().current
    return begun(run, session)


def records_before_it_commits(
    run: _DeliveryWork, session: Session, _: UpstreamPosition, step: NextRows
) -> UpstreamPosition:
    """The manifest comes first."""
    run._commit(step.until, 0, 0, step.table_rows)
    session.apply(Transaction(run._there, step.until.encode(), step.rows, step.replaces))
    run._there = step.until.encode()
    return step.until


class LeavesAGap(DeliveryRows):
    """After the snapshot it follows the log from now on, not from the snapshot on."""

    def following(self, at: UpstreamPosition, reader: Reader, until: Epoch | None = None) -> NextRows | None:
        if at.parts and not at.in_snapshot:
            at = UpstreamPosition(at.uuid, self.log.newest().epoch)
        return super().following(at, reader, until)


class SnapsTheNewest(DeliveryRows):
    """The parts of the snapshot are of the newest table, not of the one that was pinned."""

    def _of_table(self, shown: Manifest, *what: Any) -> Any:
        return super()._of_table(self.log.newest(), *what)


class JudgesNoRollback(UpstreamLog):
    """An epoch that a rollback abandoned counts as one to go on from."""

    def _raise_trouble(self, newest: Manifest, at: UpstreamPosition) -> None:
        if newest.uuid != at.uuid:
            raise NothingFollowsError(Trouble.RECREATED, at)


def begins_again_where_it_was_emptied(
    mode: DeliveryMode, there: UpstreamPosition | None, known: Epoch, trouble: Trouble | None, **more: bool
) -> Judgement:
    """No position is a new delivery, whatever was delivered before."""
    return Judgement(Move.BEGIN) if there is None else judge(mode, there, known, trouble, **more)


def stops_where_it_could_replace(
    mode: DeliveryMode, there: UpstreamPosition | None, known: Epoch, trouble: Trouble | None, **more: bool
) -> Judgement:
    """An upsert delivery stops where an append delivery does."""
    return judge(DeliveryMode.APPEND, there, known, trouble, **more)


def replaces_what_it_must_not(
    mode: DeliveryMode, there: UpstreamPosition | None, known: Epoch, trouble: Trouble | None, **more: bool
) -> Judgement:
    """An append delivery replaces the table, as if rows of its users' could be taken away."""
    return judge(DeliveryMode.UPSERT, there, known, trouble, **more)
