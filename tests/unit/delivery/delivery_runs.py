"""What a delivery's runs must do whatever the destination's calls do: mixed into a test class of `DestinationSuite`."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from dagster_ckpt.delivery.destination import DeliveryMode, Destination
from dagster_ckpt.testing.destination_case import DestinationCase, Row
from dagster_ckpt.testing.failing_calls import Calls, FailingDestination, KilledError, outside_through
from tests.servers.lossy_proxy import LossyProxy
from tests.unit.delivery.delivering import Delivering
from tests.unit.history.made_streams import departures


class DeliveryRuns(DestinationCase):
    """The tests. Each run delivers two epochs, in two transactions."""

    @pytest.mark.parametrize("fault", ["killed", "never arrives", "reply lost"])
    @pytest.mark.parametrize("runs_in", list(DeliveryMode), ids=str)
    def test_no_row_is_lost_or_doubled_by_a_run_that_fails_at_any_call(
        self, tmp_path: Path, runs_in: DeliveryMode, fault: str
    ) -> None:
        if runs_in not in self.modes:
            pytest.skip("this destination does not have this mode")

        def no_reply() -> None:
            raise self.no_reply()

        (tmp_path / "destination").mkdir()
        to = self.make(tmp_path / "destination")
        delivering = Delivering(tmp_path, mode=runs_in, epochs_max=1, retained=1000)
        number, failed = 0, True
        while failed:
            if number:  # the first one delivers the table, in which two epochs are one
                delivering.stream.commit(departures({"UA": [float(number)], "AA": [1.0]}))
            delivering.stream.commit(departures({"UA": [1.0], f"{number}": [1.0]}))
            calls = Calls(number, fault == "reply lost", None if fault == "killed" else no_reply)
            # The driver's error is not what our own calls raise.
            destination = FailingDestination(to, calls) if fault == "killed" or not self.outside else to
            with suppress(KilledError), outside_through(calls, self.outside):
                delivering.deliver(destination)
            if calls.dead:
                delivering.deliver(to)
            expected = delivering.table() if runs_in is DeliveryMode.UPSERT else delivering.changes()
            found = sorted(self.rows(to), key=repr)
            assert found == sorted(((row[0], row[1]) for row in expected), key=repr), f"{fault}: call {number}"
            failed, number = calls.failed, number + 1
        assert number > 2, "no call has failed"


def deliver_with_losses(
    delivering: Delivering,
    to: Destination,
    proxy: LossyProxy,
    request: bytes,
    rows: Callable[[], Iterable[Row]],
    *,
    reply: bool,
) -> int:
    """Run deliveries of an upsert through a proxy that loses each request with this pattern in turn, or its reply.

    Returns how many were lost, one in each run.
    """
    number, lost = 0, True
    while lost:
        delivering.stream.commit(departures({"UA": [float(number)], "AA": [1.0]}))
        delivering.stream.commit(departures({"UA": [1.0], f"{number}": [1.0]}))
        proxy.lose(request, reply=reply, skipped=number)
        delivering.deliver(to)
        lost = proxy.has_lost()
        expected = sorted(((row[0], row[1]) for row in delivering.table()), key=repr)
        assert sorted(rows(), key=repr) == expected, f"request {number}"
        number += 1
    return number - 1
