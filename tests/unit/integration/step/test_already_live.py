"""A run beside a live one: when it leaves the stream to it, and when it must open the stream as usual."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import dagster as dg
import pytest

from dagster_ckpt.errors import CorruptStateError, StoreUnavailableError
from dagster_ckpt.ids import Epoch, Term, Version
from dagster_ckpt.integration.events.table_metadata import TableMetadata, TablePlace, column_schema
from dagster_ckpt.integration.recovery.crash_loop import RunError
from dagster_ckpt.integration.recovery.crash_loop_check import CHECK, evaluation_failed, evaluation_passed
from dagster_ckpt.integration.recovery.decision import GaveUp
from dagster_ckpt.integration.recovery.stream_status import StreamStatus
from dagster_ckpt.integration.step.already_live import Beside, LiveRun, live_run, result_beside
from dagster_ckpt.protocol.lease import Lease, LeaseHolder
from dagster_ckpt.protocol.manifest.manifest import Owner, Statistics
from dagster_ckpt.storage.leases.process_identity import this_process
from tests.worlds.clock import StillClock
from tests.worlds.manifests import a_manifest
from tests.worlds.streams import a_holder

TIMEOUT_MS = 30_000
OWNER = Owner("ours", "delays")
HOLDER = LeaseHolder("run-1", "ours", a_holder().process)
BESIDE = Beside("run-2", OWNER, None, TIMEOUT_MS)
KEY = dg.AssetKey("delays")


@dataclass
class Stream:
    """A stream whose writer beats every third of its time-out, until `events` happen: by the look before which."""

    clock: StillClock = field(default_factory=StillClock)
    owner: Owner = OWNER
    lease: Lease = field(default_factory=lambda: Lease(Term(3), HOLDER, TIMEOUT_MS, Epoch(7)))
    rollbacks: tuple[str, ...] = ()
    beats: bool = True
    events: dict[int, Callable[["Stream"], None]] = field(default_factory=dict)
    looks: int = 0
    began_ms: int = field(init=False)

    def __post_init__(self) -> None:
        self.began_ms = self.clock.monotonic_ms()

    def look(self) -> StreamStatus:
        self.looks += 1
        if self.looks in self.events:
            self.events[self.looks](self)
        counter = 1 + self.waited_ms // (TIMEOUT_MS // 3) if self.beats else 1
        manifest = a_manifest(epoch=Epoch(7), version=Version(7), term=self.lease.term)
        manifest = replace(manifest, owner=self.owner, rollbacks=self.rollbacks)
        return StreamStatus(manifest, replace(self.lease, counter=counter))

    @property
    def waited_ms(self) -> int:
        return self.clock.monotonic_ms() - self.began_ms

    def found(self, beside: Beside = BESIDE, **options: Any) -> str | None:
        known = {"root_run": None, "goes_on": lambda run_id: True, **options}
        live = live_run(self.look, beside, known["root_run"], known["goes_on"], self.clock)
        return None if live is None else live.run_id


def test_a_writer_that_beats_is_live_after_a_third_of_its_time_out() -> None:
    stream = Stream()
    assert stream.found() == "run-1"
    assert stream.waited_ms == TIMEOUT_MS // 3


@pytest.mark.parametrize(
    ("stream", "beside", "options"),
    [
        (Stream(owner=Owner("theirs", "delays")), BESIDE, {}),
        (Stream(owner=Owner("ours", "other")), BESIDE, {}),
        (Stream(lease=Lease(Term(3), replace(HOLDER, instance="theirs"), TIMEOUT_MS, Epoch(7))), BESIDE, {}),
        (Stream(lease=Lease(Term(3), HOLDER, TIMEOUT_MS, Epoch(7), closed="stopped")), BESIDE, {}),
        (Stream(), replace(BESIDE, run_id="run-1"), {}),
        (Stream(), replace(BESIDE, may_fence=Term(3)), {}),
        (Stream(), BESIDE, {"root_run": "run-2"}),
        (Stream(), BESIDE, {"goes_on": lambda run_id: False}),
    ],
    ids=[
        "another instance",
        "another asset",
        "taken over",
        "has ended",
        "own step tried again",
        "judged dead by the sensor",
        "must roll back",
        "ending",
    ],
)
def test_a_stream_is_opened_as_usual_without_a_wait(stream: Stream, beside: Beside, options: Any) -> None:
    assert stream.found(beside, **options) is None
    assert stream.waited_ms == 0


def test_a_rollback_that_was_done_is_not_done_again() -> None:
    assert Stream(rollbacks=("run-2",)).found(root_run="run-2") == "run-1"


def test_a_sensors_right_to_fence_an_older_term_fences_no_newer_one() -> None:
    assert Stream().found(replace(BESIDE, may_fence=Term(2))) == "run-1"


def test_a_silent_writer_has_died_after_its_time_out() -> None:
    stream = Stream(beats=False)
    assert stream.found() is None
    assert stream.waited_ms == TIMEOUT_MS


def test_a_process_that_is_gone_is_not_waited_for() -> None:
    me = this_process()
    gone = replace(HOLDER, process=replace(me, started_ticks=me.started_ticks + 1))
    stream = Stream(lease=Lease(Term(3), gone, TIMEOUT_MS, Epoch(7)))
    assert stream.found() is None
    assert stream.waited_ms == 0


def test_a_writer_that_ends_during_the_look_is_not_live() -> None:
    def end(stream: Stream) -> None:
        stream.lease = replace(stream.lease, closed="run_for")

    stream = Stream(events={3: end})
    assert stream.found() is None
    assert stream.looks == 3


def test_a_new_writer_is_seen_to_beat_itself() -> None:
    def take_over(stream: Stream) -> None:
        newer = replace(HOLDER, dagster_run_id="run-3")
        stream.lease, stream.beats = Lease(Term(8), newer, TIMEOUT_MS, Epoch(7)), False

    assert Stream(events={3: take_over}).found() is None


@pytest.mark.parametrize("error", [StoreUnavailableError("no answer"), CorruptStateError("damaged")])
def test_what_cannot_be_read_is_left_to_the_opening(error: Exception) -> None:
    def fail(stream: Stream) -> None:
        raise error

    assert Stream(events={2: fail}).found() is None


def the_result(instance: dg.DagsterInstance) -> dg.MaterializeResult[Any]:
    manifest = a_manifest(epoch=Epoch(7), version=Version(7), statistics=Statistics(table_rows=105))
    return result_beside(
        instance, KEY, "delays", LiveRun(HOLDER, manifest), TableMetadata(TablePlace("file:///store/delays"))
    )


def test_the_result_names_epoch_and_run_and_repeats_no_figure_of_the_epoch() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        result = the_result(instance)
    metadata = result.metadata or {}
    assert metadata["already_live"] == dg.MetadataValue.text("already live, epoch 7, run run-1")
    assert metadata["live_run"] == dg.MetadataValue.dagster_run("run-1")
    assert metadata["epoch"] == dg.MetadataValue.int(7)
    assert "rows_in" not in metadata
    assert metadata["dagster/row_count"] == dg.MetadataValue.int(105)
    assert metadata["dagster/uri"] == dg.MetadataValue.text("file:///store/delays")
    assert metadata["dagster/column_schema"] == column_schema(a_manifest().pipeline), (
        "the page shows the newest event's"
    )
    assert result.data_version == dg.DataVersion(f"delays@7-{'a' * 32}")
    checks = {check.check_name: check for check in result.check_results or []}
    assert checks[CHECK].passed
    assert checks["is_live"].passed
    assert checks["is_live"].metadata["dagster_run"].value == "run-1"


def test_a_failed_check_stays_failed_until_an_epoch_is_committed() -> None:
    run = dg.DagsterRun("delays_job", run_id="00000000-0000-4000-8000-000000000001")
    failed = evaluation_failed(KEY, run, Epoch(7), GaveUp(3, RunError("ValueError", "no such row"), same=True))
    with dg.DagsterInstance.ephemeral() as instance:
        instance.report_runless_asset_event(failed)
        check = next(check for check in the_result(instance).check_results or [] if check.check_name == CHECK)
        assert not check.passed
        assert check.description == failed.description
        instance.report_runless_asset_event(evaluation_passed(KEY, Epoch(8)))
        check = next(check for check in the_result(instance).check_results or [] if check.check_name == CHECK)
        assert check.passed
