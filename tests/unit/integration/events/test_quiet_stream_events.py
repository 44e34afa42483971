"""What a live stream without new epochs logs to Dagster, and what Dagster's freshness daemon makes of it."""

import asyncio
from datetime import timedelta
from typing import TypeVar

import dagster as dg
import pytest
from dagster._core.definitions.freshness import FreshnessState
from dagster._core.loader import LoadingContextForTest
from dagster._core.test_utils import freeze_time
from dagster._daemon.freshness import FreshnessDaemon

from dagster_ckpt.ids import EMPTY, Epoch, Version
from dagster_ckpt.integration.events.event_totals import NO_TOTALS, NO_WORK, read_totals
from dagster_ckpt.integration.events.step_events import EpochEvents, Event, EventLog, refresh_ms_of
from dagster_ckpt.protocol.manifest.manifest import Manifest, Statistics
from dagster_ckpt.runtime.lag.lag import Lag, SourceLag
from dagster_ckpt.runtime.micro_batch.epoch_driver import CommittedEpoch
from tests.worlds.clock import StillClock
from tests.worlds.manifests import a_manifest

Kind = TypeVar("Kind", dg.AssetMaterialization, dg.AssetObservation)
KEY = dg.AssetKey("delays")
READ, BEHIND = SourceLag(files=0, file_bytes=0), SourceLag(files=3, file_bytes=700, since_ms=1_699_999_990_000)
MINUTE = dg.FreshnessPolicy.time_window(fail_window=timedelta(minutes=10), warn_window=timedelta(minutes=1))


def manifest_of(epoch: int) -> Manifest:
    return a_manifest(
        epoch=Epoch(epoch), version=Version(epoch), statistics=Statistics(rows_in=5, total_rows_in=9 * epoch)
    )


class Quiet:
    """A stream that waits: `wait` lets time pass, in which its lag is measured every 30 s, as `waiting` then."""

    def __init__(self, policy: dg.FreshnessPolicy | None = None, waiting: SourceLag | None = READ) -> None:
        self.clock = StillClock()
        self.instance = dg.DagsterInstance.ephemeral()
        self.waiting = waiting
        self.logged: list[Event] = []
        log = EventLog(KEY, "delays", None, self._log, lambda manifest: True, lambda: read_totals(self.instance, KEY))
        before = log.materialization(manifest_of(7), NO_WORK, NO_TOTALS)
        self.instance.report_runless_asset_event(before)
        self.events = EpochEvents(log, 30_000, self.clock, refresh_ms_of(policy))
        self.measure()

    def _log(self, event: Event) -> None:
        self.logged.append(event)
        with freeze_time(self.clock.now_ms() / 1000):
            self.instance.report_runless_asset_event(event)

    def measure(self) -> None:
        waiting = self.waiting
        self.events.on_lag(None if waiting is None else Lag(self.clock.now_ms(), waiting))

    def wait(self, seconds: int) -> None:
        for second in range(1, seconds + 1):
            self.clock.sleep_ms(1_000)
            if second % 30 == 0:
                self.measure()
            self.events.idle()

    def commit(self, epoch: int) -> None:
        self.events.on_commit(CommittedEpoch(manifest_of(epoch), 1, 2, {}))

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [event for event in self.logged if isinstance(event, kind)]


def test_a_quiet_stream_is_observed_once_a_minute_from_its_opening_on() -> None:
    quiet = Quiet()
    quiet.events.on_open(manifest_of(7))
    quiet.wait(3_600)
    observed = quiet.of(dg.AssetObservation)
    assert len(observed) == len(quiet.logged) == 60
    assert {label: value.value for label, value in observed[-1].metadata.items()} == {
        "lag_seconds": 0.0,
        "lag/files": 0,
        "lag/bytes": 0,
        "epoch": 7,
    }


def test_an_observation_is_small() -> None:
    quiet = Quiet()
    quiet.events.on_open(manifest_of(7))
    quiet.wait(60)
    [record] = quiet.instance.fetch_observations(KEY, limit=9).records
    assert len(dg.serialize_value(record.event_log_entry)) < 1_500


def test_before_the_stream_is_open_nothing_is_observed() -> None:
    quiet = Quiet()
    quiet.wait(600)
    assert quiet.logged == []


def test_an_epoch_puts_the_next_observation_off_and_is_itself_logged_first() -> None:
    quiet = Quiet()
    quiet.events.on_open(manifest_of(7))
    quiet.wait(59)
    quiet.commit(8)
    quiet.wait(31)
    [epoch] = quiet.of(dg.AssetMaterialization)
    assert epoch.metadata["epoch"].value == 8
    quiet.wait(57)
    assert quiet.of(dg.AssetObservation) == []
    quiet.wait(3)
    [observed] = quiet.of(dg.AssetObservation)
    assert observed.metadata["epoch"].value == 8


def test_the_lag_grows_while_what_waits_is_not_read_and_is_left_out_while_it_is_unknown() -> None:
    quiet = Quiet(waiting=BEHIND)
    quiet.events.on_open(manifest_of(7))
    quiet.wait(120)
    first, second = (event.metadata["lag_seconds"].value for event in quiet.of(dg.AssetObservation))
    assert (first, second) == (70.0, 130.0)
    quiet.waiting = None
    quiet.wait(60)
    assert set(quiet.logged[-1].metadata) == {"epoch"}


def test_the_event_of_an_epoch_has_a_lag_that_was_measured_after_it() -> None:
    quiet = Quiet(waiting=BEHIND)
    quiet.events.on_open(manifest_of(7))
    quiet.clock.sleep_ms(10)
    quiet.commit(8)
    for _ in range(35):
        quiet.clock.sleep_ms(1_000)
        quiet.events.idle()
    assert quiet.of(dg.AssetMaterialization) == [], "the measurement is older than the epoch"
    quiet.waiting = READ
    quiet.measure()
    quiet.events.idle()
    [epoch] = quiet.of(dg.AssetMaterialization)
    assert epoch.metadata["lag_seconds"].value == 0


def states(quiet: Quiet, policy: dg.FreshnessPolicy, seconds: int) -> list[FreshnessState]:
    """What Dagster's freshness daemon finds while that time passes, one entry for each change."""

    @dg.asset(key=KEY, freshness_policy=policy)
    def delays() -> None: ...

    node = dg.Definitions([delays]).resolve_asset_graph().get(KEY)
    found: list[FreshnessState] = []
    for _ in range(seconds // 30):
        quiet.wait(30)
        context = LoadingContextForTest(quiet.instance)
        with freeze_time(quiet.clock.now_ms() / 1000):
            asyncio.run(FreshnessDaemon()._evaluate_asset(context, node))  # one iteration, one asset
        state = quiet.instance.get_freshness_state_records([KEY])[KEY].freshness_state
        found += [state] if found[-1:] != [state] else []
    return found


@pytest.mark.parametrize(
    "policy",
    [
        dg.FreshnessPolicy.time_window(fail_window=timedelta(minutes=1)),
        MINUTE,
        dg.FreshnessPolicy.cron("*/10 * * * *", lower_bound_delta=timedelta(minutes=5)),
    ],
)
def test_a_quiet_stream_that_has_read_everything_stays_fresh(policy: dg.FreshnessPolicy) -> None:
    quiet = Quiet(policy)
    quiet.events.on_open(manifest_of(7))
    assert states(quiet, policy, 1_500) == [FreshnessState.PASS]
    again = quiet.of(dg.AssetMaterialization)
    assert {(event.tags or {})["dagster/data_version"] for event in again} == {f"delays@7-{'a' * 32}"}
    assert {event.metadata["rows_in"].value for event in again} == {0}, "its rows were reported with the epoch"
    assert len(quiet.logged) <= 1_500 / 30


def test_a_stream_that_falls_behind_or_whose_lag_is_unknown_does_not_stay_fresh() -> None:
    for waiting in (BEHIND, None):
        quiet = Quiet(MINUTE)
        quiet.events.on_open(manifest_of(7))
        quiet.wait(60)
        quiet.waiting = waiting
        assert states(quiet, MINUTE, 1_200) == [FreshnessState.PASS, FreshnessState.WARN, FreshnessState.FAIL]


def test_without_a_policy_or_an_epoch_nothing_is_logged_again() -> None:
    for policy, epoch in ((None, 7), (MINUTE, int(EMPTY))):
        quiet = Quiet(policy)
        quiet.events.on_open(manifest_of(epoch))
        quiet.wait(3_600)
        assert quiet.of(dg.AssetMaterialization) == []
