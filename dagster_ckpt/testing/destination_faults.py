"""What a destination must survive, as tests: part of `DestinationSuite`.

A process delivers three transactions. At each of its calls in turn, to the destination and from there to the outside,
it is killed, or its reply is lost, or it is suspended until another process has delivered everything. Each time the
rows match the position, and in the end each row is there once.
"""

import multiprocessing
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from dagster_ckpt.delivery.destination import DeliveryMode, Destination, DestinationUnavailableError, Transaction
from dagster_ckpt.errors import CheckpointError
from dagster_ckpt.protocol.change_columns import DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE
from dagster_ckpt.testing.destination_case import APPENDED, UPSERTED, DestinationCase, Row, added, changed
from dagster_ckpt.testing.failing_calls import PROTOCOL, Calls, FailingDestination, kill_this_process, outside_through

_A_PROCESS_S = 60
TABLES = {DeliveryMode.APPEND: APPENDED, DeliveryMode.UPSERT: UPSERTED}


@dataclass(frozen=True)
class _Step:
    """One transaction, and the table's rows after it in order."""

    until: str
    batches: Sequence[pa.RecordBatch]
    rows: Sequence[Row]
    replaces: bool = False

    def transaction(self, after: str | None) -> Transaction:
        return Transaction(after, self.until, iter(self.batches), self.replaces)


@dataclass(frozen=True)
class _Cut:
    """Where a process fails: before or after the call with this number."""

    number: int
    name: str
    after: bool

    @property
    def folder(self) -> str:
        return f"{self.number}{'-after' if self.after else ''}"

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'} call {self.number} {self.name}"


def _steps(mode: DeliveryMode) -> tuple[_Step, ...]:
    if mode is DeliveryMode.APPEND:
        two, three = [("AA", 2), ("UA", 1)], [("AA", 2), ("UA", 1), ("UA", 1)]
        return (
            _Step("1", [*added(("UA", 1), ("AA", 2))], two),
            _Step("2", [*added(("UA", 1))], three),
            _Step("3", [], three),
        )
    first = changed((INSERT, ("UA", 1)), (INSERT, ("AA", 2)), (INSERT, (None, 5)))
    updated = ((UPDATE_PREIMAGE, ("UA", 1)), (UPDATE_POSTIMAGE, ("UA", 7)))
    return (
        _Step("1", [*first], [("AA", 2), ("UA", 1), (None, 5)]),
        _Step(
            "2", [*changed(*updated, (DELETE, ("AA", 2)), (INSERT, ("DL", None)))], [("DL", None), ("UA", 7), (None, 5)]
        ),
        _Step("3", [*changed((INSERT, ("AA", 3)), (INSERT, (None, 1)))], [("AA", 3), (None, 1)], replaces=True),
    )


def _deliver(destination: Destination, mode: DeliveryMode, calls: Calls, outside: Sequence[str] = ()) -> None:
    """What one process does: it reads the position and delivers what follows, in two sessions."""
    steps = _steps(mode)
    positions = [None, *(step.until for step in steps)]
    with outside_through(calls, outside):
        for at_most in (1, len(steps)):
            with FailingDestination(destination, calls).open("one", TABLES[mode]) as session:
                done = positions.index(session.position)
                for after, step in list(zip(positions[done:], steps[done:], strict=False))[:at_most]:
                    session.apply(step.transaction(after))


def _deliver_and_die(destination: Destination, mode: DeliveryMode, number: int, outside: Sequence[str]) -> None:
    _deliver(destination, mode, Calls(number, fail=kill_this_process), outside)


class DestinationFaults(DestinationCase):
    """Tests of what a destination must survive."""

    @pytest.fixture(params=list(DeliveryMode), ids=str)
    def mode(self, request: pytest.FixtureRequest) -> DeliveryMode:
        mode: DeliveryMode = request.param
        if mode not in self.modes:
            pytest.skip("this destination does not have this mode")
        return mode

    def test_no_row_is_lost_or_doubled_by_a_kill_at_any_call(self, mode: DeliveryMode, tmp_path: Path) -> None:
        for cut in self._cuts(mode, tmp_path / "whole"):
            destination, calls = self._make_in(tmp_path / cut.folder), Calls(cut.number, cut.after)
            assert not self._lives(destination, mode, calls), cut
            self._judge(destination, mode, calls, f"killed {cut}")

    def test_a_process_killed_one_call_later_each_time_finishes(self, mode: DeliveryMode, tmp_path: Path) -> None:
        destination, calls = self.make(tmp_path), Calls(0)
        while not self._lives(destination, mode, calls):
            assert calls.at is not None, "a process died without a kill"
            calls = Calls(calls.at + 1, positions=calls.positions)
        self._judge(destination, mode, calls, "killed again and again")

    def test_a_kill_9_at_any_call_of_a_transaction(self, mode: DeliveryMode, tmp_path: Path) -> None:
        cuts = self._cuts(mode, tmp_path / "whole")
        begin, end = [cut.number for cut in cuts if cut.name == "apply" and not cut.after][1:]
        processes = multiprocessing.get_context("forkserver")
        processes.set_forkserver_preload([__name__])
        for cut in (cut for cut in cuts if begin <= cut.number < end and not cut.after):
            destination = self._make_in(tmp_path / cut.folder)
            process = processes.Process(target=_deliver_and_die, args=(destination, mode, cut.number, self.outside))
            process.start()
            process.join(_A_PROCESS_S)
            assert process.exitcode == -signal.SIGKILL, f"{cut}: {process.exitcode}"
            process.close()
            self._judge(destination, mode, Calls(positions=["1"]), f"killed {cut}")

    def test_no_row_is_lost_or_doubled_by_a_lost_reply_of_any_call(self, mode: DeliveryMode, tmp_path: Path) -> None:
        def lose_reply() -> None:
            raise self.no_reply()

        for cut in self._cuts(mode, tmp_path / "whole"):
            # If the calls to the outside are known, their lost replies cover those of the protocol's calls.
            if cut.name in PROTOCOL and (self.outside or cut.name != "apply"):
                continue
            destination, calls = self._make_in(tmp_path / cut.folder), Calls(cut.number, cut.after, lose_reply)
            # After this error a delivery opens the destination again. Any other error would end it.
            with suppress(DestinationUnavailableError):
                _deliver(destination, mode, calls, self.outside)
            assert calls.failed, cut
            self._judge(destination, mode, calls, f"no reply {cut}")

    def test_a_process_that_resumes_after_its_successor_writes_nothing(
        self, mode: DeliveryMode, tmp_path: Path
    ) -> None:
        for cut in self._cuts(mode, tmp_path / "whole"):
            if cut.after:  # the same as before the next call
                continue
            destination = self._make_in(tmp_path / cut.folder)

            def overtaken(destination: Destination = destination) -> None:
                # The suspended process may hold a lock that this one needs.
                with suppress(DestinationUnavailableError):
                    _deliver(destination, mode, Calls())

            calls = Calls(cut.number, cut.after, overtaken)
            with suppress(CheckpointError):
                _deliver(destination, mode, calls, self.outside)
            assert calls.failed, cut
            self._judge(destination, mode, calls, f"overtaken {cut}")

    def test_maintenance_leaves_rows_and_position(self, mode: DeliveryMode, tmp_path: Path) -> None:
        destination, after = self.make(tmp_path), None
        for step in _steps(mode):
            with suppress(DestinationUnavailableError), destination.open("one", TABLES[mode]) as session:
                if after is not None:
                    self.maintain(destination)  # while it is open
                session.apply(step.transaction(after))
            if self._position(destination, mode) == after:  # the transaction was refused
                with destination.open("one", TABLES[mode]) as session:
                    session.apply(step.transaction(after))
            self.maintain(destination)
            assert self.sorted_rows(destination) == list(step.rows), step.until
            assert self._position(destination, mode) == step.until
            after = step.until

    def _cuts(self, mode: DeliveryMode, folder: Path) -> list[_Cut]:
        """Where a process can fail: the calls of one that does not."""
        destination, calls = self._make_in(folder), Calls()
        _deliver(destination, mode, calls, self.outside)
        assert self.sorted_rows(destination) == list(_steps(mode)[-1].rows)
        if self.outside:
            assert set(calls.names) > set(PROTOCOL), f"none of these calls was made: {self.outside}"
        numbered = list(enumerate(calls.names))
        # After a pull of rows is the same as before the next call.
        after = [_Cut(number, name, after=True) for number, name in numbered if name != "rows"]
        return [*(_Cut(number, name, after=False) for number, name in numbered), *after]

    def _lives(self, destination: Destination, mode: DeliveryMode, calls: Calls) -> bool:
        """Deliver as one process does; returns whether it survived."""
        try:
            _deliver(destination, mode, calls, self.outside)
        except BaseException:
            if not calls.dead:
                raise
        return not calls.dead

    def _judge(self, destination: Destination, mode: DeliveryMode, calls: Calls, what: str) -> None:
        """Rows and position match, and nothing that was reported as committed is missing; then deliver the rest."""
        steps = _steps(mode)
        positions, rows = [None, *(step.until for step in steps)], [[], *(list(step.rows) for step in steps)]
        with destination.open("one", TABLES[mode]) as session:
            done = positions.index(session.position)
            assert (session.position or "") >= max(calls.positions, default=""), f"{what}: {done} of {calls.positions}"
            found = self.sorted_rows(destination)
            assert found == rows[done], f"{what}: at position {session.position} it has {found}"
            for after, step in zip(positions[done:], steps[done:], strict=False):
                session.apply(step.transaction(after))
        found = self.sorted_rows(destination)
        assert found == rows[-1], f"{what}: in the end it has {found}"

    def _position(self, destination: Destination, mode: DeliveryMode) -> str | None:
        with destination.open("one", TABLES[mode]) as session:
            return session.position

    def _make_in(self, folder: Path) -> Destination:
        folder.mkdir()
        return self.make(folder)
