"""The events that a stream logs to Dagster, and when."""

import threading
from dataclasses import replace
from typing import Any

import dagster as dg
import pytest

from dagster_ckpt.errors import StoreUnavailableError
from dagster_ckpt.ids import Epoch, Shard, Version
from dagster_ckpt.integration.events.epoch_metadata import epoch_metadata, lag_metadata
from dagster_ckpt.integration.events.event_totals import NO_TOTALS, NO_WORK, NOTHING, Totals
from dagster_ckpt.integration.events.step_events import TRIES, EpochEvents, Event, EventLog, final_result
from dagster_ckpt.integration.recovery.crash_loop_check import CHECK
from dagster_ckpt.protocol.epochs.topic_offsets import LossReason, LostOffsets
from dagster_ckpt.protocol.manifest.manifest import (
    FileSeen,
    IndexedList,
    IndexRef,
    Manifest,
    ReadBy,
    ShardTime,
    SourcePosition,
    Statistics,
)
from dagster_ckpt.runtime.lag.lag import Lag, SourceLag
from dagster_ckpt.runtime.micro_batch.epoch_driver import CommittedEpoch
from tests.worlds.clock import StillClock
from tests.worlds.manifests import PIPELINE, SOURCE, a_manifest

KEY = dg.AssetKey("delays")
NOW_MS = 1_700_000_030_000
NUMBERS = {
    "epoch",
    "rows_in",
    "rows_out",
    "rows_per_second",
    "epoch_milliseconds",
    "commit_milliseconds",
    "state_rows",
    "state_bytes",
    "runs",
    "merged_rows",
    "stall_milliseconds",
    "late_rows",
    "checkpoint_interval_seconds",
    "dagster/row_count",
    "keys_touched",
    "epochs",
    "rows_in_total",
    "rows_out_total",
    "late_rows_total",
    "epochs_total",
}
SINCE = ("rows_in", "rows_out", "late_rows", "epochs")
TOTALS = tuple(f"{label}_total" for label in SINCE)


class Listener:
    """Dagster's end of `log_event`; refuses the first `deaf` materializations. `passed` are those of the check."""

    def __init__(self, deaf: int = 0) -> None:
        self.deaf = deaf
        self.tries = 0
        self.heard: list[object] = []
        self.rows_in: list[object] = []
        self.passed: list[object] = []
        self.observed: list[dg.AssetObservation] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, dg.AssetObservation):
            self.observed.append(event)
            return
        if isinstance(event, dg.AssetCheckEvaluation):
            assert event.passed
            assert event.asset_check_key == dg.AssetCheckKey(KEY, CHECK)
            self.passed.append(event.metadata["last_epoch"].value)
            return
        self.tries += 1
        if self.tries <= self.deaf:
            raise OSError("database is locked")
        self.heard.append(event.metadata["epoch"].value)
        self.rows_in.append(event.metadata["rows_in"].value)


def committed(epoch: int) -> CommittedEpoch:
    did = Statistics(10, 5, epoch_ms=40, total_rows_in=10 * epoch, total_rows_out=5 * epoch, total_epochs=epoch)
    manifest = a_manifest(epoch=Epoch(epoch), version=Version(epoch), statistics=did)
    return CommittedEpoch(manifest, commit_ms=3, epoch_ms=40, counters={})


def event_of(epoch: CommittedEpoch, code_version: str | None = None) -> dg.AssetMaterialization:
    event_log = EventLog(KEY, "delays", code_version, Listener(), lambda manifest: True, lambda: NOTHING)
    return event_log.materialization(epoch.manifest, NO_WORK.plus(epoch), NO_TOTALS)


def numbers_of(metadata: Any, *labels: str) -> list[object]:
    return [metadata[label].value for label in labels]


def events_for(listener: Listener, clock: StillClock, interval_s: int = 30) -> EpochEvents:
    return EpochEvents(
        EventLog(KEY, "delays", "7", listener, lambda manifest: True, lambda: NOTHING), interval_s * 1000, clock
    )


def test_while_epochs_come_an_event_goes_out_once_an_interval_and_the_newest_is_held_back() -> None:
    clock, listener = StillClock(), Listener()
    events = events_for(listener, clock)
    for epoch in range(1, 11):
        events.on_commit(committed(epoch))
        clock.sleep_ms(10_000)
    assert listener.heard == [1, 4, 7]


def test_a_quiet_stream_logs_its_newest_epoch_after_one_interval_and_only_once() -> None:
    clock, listener = StillClock(), Listener()
    events = events_for(listener, clock)
    events.on_commit(committed(1))
    for _ in range(60):
        clock.sleep_ms(1_000)
        events.idle()
        assert listener.heard == ([1] if clock.monotonic_ms() >= 1_700_000_030_000 else [])
    clock.sleep_ms(600_000)
    events.idle()
    assert listener.heard == [1]


def test_an_epoch_logged_while_quiet_is_not_logged_again_with_the_next_one() -> None:
    clock, listener = StillClock(), Listener()
    events = events_for(listener, clock)
    events.on_commit(committed(1))
    clock.sleep_ms(40_000)
    events.idle()
    clock.sleep_ms(40_000)
    events.on_commit(committed(2))
    assert listener.heard == [1]


def test_a_step_that_ends_without_a_result_logs_the_held_event() -> None:
    listener = Listener()
    events = events_for(listener, StillClock())
    events.flush()
    events.on_commit(committed(1))
    events.flush()
    events.flush()
    assert listener.heard == [1]


def test_a_dagster_that_is_busy_is_asked_again_and_never_fails_the_stream() -> None:
    patient, stubborn = Listener(deaf=TRIES - 1), Listener(deaf=TRIES)
    for listener in (patient, stubborn):
        events = events_for(listener, StillClock())
        events.on_commit(committed(1))
        events.flush()
    assert (patient.heard, stubborn.heard, stubborn.tries) == ([1], [], TRIES)


def test_a_locked_database_costs_the_stream_a_twentieth_of_its_time() -> None:
    clock, listener = StillClock(), Listener()
    locked = True

    def waits_and_gives_up(event: Event) -> None:
        if isinstance(event, dg.AssetMaterialization) and locked:
            clock.sleep_ms(30_000)  # what SQLite waits
            listener.tries += 1
            raise OSError("database is locked")
        listener(event)

    events = EpochEvents(
        EventLog(KEY, "delays", "7", waits_and_gives_up, lambda manifest: True, lambda: NOTHING), 2_000, clock
    )
    began_ms = clock.monotonic_ms()
    for epoch in range(1, 3_600):
        events.on_commit(committed(epoch))
        clock.sleep_ms(1_000)
        events.idle()
    assert listener.tries == 7, "an hour of epochs, a failure each ten minutes"
    assert clock.monotonic_ms() - began_ms < 3_600_000 * 1.06
    locked = False
    for epoch in range(3_600, 4_210):
        events.on_commit(committed(epoch))
        clock.sleep_ms(1_000)
    later, last = (epoch for epoch in listener.heard[-2:] if isinstance(epoch, int))
    assert 4_206 <= last == later + 2, "and then as before"


def test_a_fenced_writer_reports_nothing() -> None:
    listener = Listener()
    events = EpochEvents(
        EventLog(KEY, "delays", None, listener, lambda manifest: False, lambda: NOTHING), 1, StillClock()
    )
    events.on_commit(committed(1))
    events.flush()
    assert (listener.tries, listener.passed) == (0, [])


def test_a_writer_fenced_between_two_events_reports_no_more_and_each_check_is_for_the_reported_epoch() -> None:
    listener, asked, fenced = Listener(), [], False

    def may_report(manifest: Manifest) -> bool:
        asked.append(manifest.epoch)
        return not fenced

    clock = StillClock()
    events = EpochEvents(EventLog(KEY, "delays", None, listener, may_report, lambda: NOTHING), 1_000, clock)
    events.on_commit(committed(1))
    clock.sleep_ms(1_000)
    events.on_commit(committed(2))
    fenced = True
    clock.sleep_ms(1_000)
    events.on_commit(committed(3))
    events.idle()
    events.flush()
    assert (listener.heard, listener.passed) == ([1], [1])
    assert asked == [1, 1, 2, 3], "each event is asked for, the check's too"


def test_records_that_an_epoch_goes_on_without_are_logged_at_once_with_topic_partition_and_offsets() -> None:
    listener = Listener()
    events = events_for(listener, StillClock())
    lost = [
        LostOffsets("trips", 0, LossReason.REMOVED, read_to=100, begin=100, end=150),
        LostOffsets("trips", 1, LossReason.GONE, read_to=7, begin=7, end=7),
    ]
    events.on_open(a_manifest())
    events.skips(lost)
    [event] = listener.observed
    assert event.description is not None
    assert "trips-0 offsets 100 to 149; trips-1 (read up to offset 7)" in event.description
    assert event.metadata["skipped_rows_max"].value == 50
    table = event.metadata["skipped_offsets"]
    assert isinstance(table, dg.TableMetadataValue)
    dg.serialize_value(event)
    assert table.records[0].data == {"topic": "trips", "partition": 0, "begin": 100, "end": 150, "reason": "removed"}


def test_the_first_epoch_of_a_step_passes_the_check_at_once_and_no_later_one_does() -> None:
    listener = Listener()
    events = events_for(listener, StillClock())
    for epoch in (41, 42, 43):
        events.on_commit(committed(epoch))
        assert listener.passed == [41]


def test_an_epoch_that_is_just_coming_in_was_not_held_for_long() -> None:
    clock = StillClock()
    beside: list[threading.Thread] = []

    class Slow(Listener):
        def __call__(self, event: Event) -> None:
            if isinstance(event, dg.AssetCheckEvaluation):
                beside.append(threading.Thread(target=events.idle))
                beside[0].start()
                beside[0].join(0.2)
            super().__call__(event)

    listener = Slow()
    events = events_for(listener, clock)
    events.on_commit(committed(1))
    beside[0].join(10)
    assert listener.heard == []


def test_a_store_that_does_not_answer_is_asked_again_and_never_fails_the_stream() -> None:
    listener, asked = Listener(), []

    def may_report(manifest: Manifest) -> bool:
        asked.append(manifest.epoch)
        if len(asked) == 1:
            raise StoreUnavailableError("later")
        return True

    events = EpochEvents(EventLog(KEY, "delays", None, listener, may_report, lambda: NOTHING), 1_000, StillClock())
    events.on_commit(committed(1))
    assert listener.passed == [1]


def test_an_interruption_while_an_event_is_logged_is_not_swallowed() -> None:
    class Interruption(BaseException): ...

    def interrupted(event: Event) -> None:
        if isinstance(event, dg.AssetMaterialization):
            raise Interruption

    events = EpochEvents(
        EventLog(KEY, "delays", None, interrupted, lambda manifest: True, lambda: NOTHING), 1, StillClock()
    )
    events.on_commit(committed(1))
    with pytest.raises(Interruption):
        events.flush()


def test_an_event_carries_the_tags_that_dagster_itself_would_set() -> None:
    event = event_of(committed(4), "7")
    assert event.tags == {
        "dagster/data_version": f"delays@4-{'a' * 32}",
        "dagster/data_version_is_user_provided": "true",
        "dagster/code_version": "7",
    }
    without = event_of(committed(4))
    assert "dagster/code_version" not in (without.tags or {})


@pytest.mark.parametrize("manifest", [a_manifest(), a_manifest(epoch=Epoch(9), statistics=Statistics(5, 4, 3, 2, 1))])
def test_every_number_is_reported_every_time_because_each_is_a_plot(manifest: Manifest) -> None:
    metadata = epoch_metadata(manifest)
    assert {label for label, value in metadata.items() if isinstance(value.value, int | float)} == NUMBERS
    assert isinstance(metadata["rows_per_second"], dg.FloatMetadataValue)
    assert isinstance(metadata["rows_in"], dg.IntMetadataValue)


def test_a_row_count_that_an_older_release_did_not_write_is_left_out() -> None:
    counted = a_manifest(statistics=Statistics(state_rows=12, total_epochs=1, table_rows=5))
    assert epoch_metadata(counted)["dagster/row_count"].value == 5
    two_tables = replace(PIPELINE, tables=(*PIPELINE.tables, *PIPELINE.tables))
    uncounted = Statistics(state_rows=12, total_epochs=1, table_rows=None)
    assert "dagster/row_count" not in epoch_metadata(a_manifest(statistics=uncounted, pipeline=two_tables))


def test_source_positions_are_json_with_how_many_files_were_seen() -> None:
    seen = IndexedList((IndexRef("index/a", 40, 9, "c"),), (FileSeen("f1", 1), FileSeen("f2", 2)))
    sources = (
        SourcePosition(SOURCE, '{"logOffset":3}', files=seen),
        SourcePosition(SOURCE, "rate v7"),
        SourcePosition(SOURCE),
    )
    shown = epoch_metadata(a_manifest(sources=sources))["source_positions"].value
    where = {"format": "parquet", "address": "file:///data/departures"}
    assert shown == [
        {**where, "position": {"logOffset": 3}, "files": 42},
        {**where, "position": "rate v7"},
        {**where, "position": None},
    ]


def test_the_result_is_the_epoch_that_the_step_committed() -> None:
    instance = dg.DagsterInstance.ephemeral()
    result = final_result(instance, KEY, "delays", committed(4).manifest, NO_WORK.plus(committed(4)))
    assert numbers_of(result.metadata, "rows_per_second", *SINCE, *TOTALS) == [250, 40, 20, 0, 4, 40, 20, 0, 4]
    assert result.data_version == dg.DataVersion(f"delays@4-{'a' * 32}")
    [check] = result.check_results or []
    assert (check.check_name, check.passed, check.metadata["last_epoch"].value) == (CHECK, True, 4)


def test_a_step_without_news_reports_no_epoch_twice() -> None:
    instance = dg.DagsterInstance.ephemeral()
    instance.report_runless_asset_event(event_of(committed(4)))
    result = final_result(instance, KEY, "delays", committed(4).manifest, NO_WORK)
    assert numbers_of(result.metadata, *SINCE, "rows_per_second", "epoch_milliseconds") == [0, 0, 0, 0, 0, 0]
    assert numbers_of(result.metadata, *TOTALS) == [40, 20, 0, 4]
    assert result.data_version == dg.DataVersion(f"delays@4-{'a' * 32}")
    assert set(result.metadata or {}) == {
        *NUMBERS,
        "epoch_nonce",
        "source_positions",
        "slowest_shards",
        "dagster/column_schema",
    }


def test_an_event_reports_how_all_epochs_since_the_last_one_went() -> None:
    first, slow = committed(1), committed(2)
    did = replace(slow.manifest.statistics, epoch_ms=900, merged_rows=7, stall_ms=3)
    slow = replace(slow, manifest=replace(slow.manifest, statistics=did), epoch_ms=960, counters={"keys_touched": 4})
    work = NO_WORK.plus(slow).plus(replace(committed(3), counters={"keys_touched": 5}))
    metadata = epoch_metadata(committed(3).manifest, work, Totals.of(first.manifest))
    assert numbers_of(metadata, *SINCE) == [20, 10, 0, 2]
    labels = ("rows_per_second", "epoch_milliseconds", "merged_rows", "stall_milliseconds", "keys_touched")
    assert numbers_of(metadata, *labels) == [20, 900, 7, 3, 9]
    assert numbers_of(epoch_metadata(committed(3).manifest, work), *SINCE) == [30, 15, 0, 3], "the first event"


def test_an_event_says_who_read_the_newest_epoch() -> None:
    made = committed(2).manifest
    assert "read_by" not in epoch_metadata(made, NO_WORK)
    made = replace(made, statistics=replace(made.statistics, read_by=ReadBy.DRIVER))
    label = epoch_metadata(made, NO_WORK)["read_by"].value
    assert (label, type(label)) == ("driver", str), "Dagster serializes no other class"


def test_an_epoch_of_the_watermark_alone_waits_for_the_next_event() -> None:
    clock, listener = StillClock(), Listener()
    events = events_for(listener, clock)
    one, two = committed(1), committed(2)
    did = replace(one.manifest.statistics, rows_in=0, rows_out=0, total_epochs=2)
    events.on_commit(one)
    events.on_commit(replace(two, manifest=replace(two.manifest, statistics=did)))
    assert listener.heard == [], "one event for both"
    clock.sleep_ms(30_000)
    events.idle()
    assert (listener.heard, listener.rows_in) == ([2], [10])


def test_epoch_metadata_lists_first_what_shows_whether_a_stream_keeps_up() -> None:
    manifest = a_manifest(event_times_us=(None, 1_700_000_000_000_000))
    lag = lag_metadata(Lag(NOW_MS, SourceLag(files=2, file_bytes=9, since_ms=NOW_MS - 500)), manifest, NOW_MS)
    first = list(epoch_metadata(manifest, lag=lag))[:9]
    assert first == [
        "rows_per_second",
        "lag_seconds",
        "lag/files",
        "lag/bytes",
        "event_time_lag_seconds",
        "epoch_milliseconds",
        "state_rows",
        "state_bytes",
        "late_rows",
    ]


def test_epoch_metadata_has_the_interval_and_a_table_of_the_slowest_shards() -> None:
    slowest = (ShardTime(Shard(3), "worker-2", 900, 70), ShardTime(Shard(0), "worker-1", 20, 5))
    metadata = epoch_metadata(a_manifest(checkpoint_interval_ms=2_500, slowest_shards=slowest))
    assert metadata["checkpoint_interval_seconds"].value == 2.5
    table = metadata["slowest_shards"]
    assert isinstance(table, dg.TableMetadataValue)
    assert [column.name for column in table.schema.columns] == ["shard", "host", "milliseconds", "rows_in"]
    assert [record.data for record in table.records] == [
        {"shard": 3, "host": "worker-2", "milliseconds": 900, "rows_in": 70},
        {"shard": 0, "host": "worker-1", "milliseconds": 20, "rows_in": 5},
    ]
    without = epoch_metadata(a_manifest())
    assert without.keys() == metadata.keys()
    assert without["checkpoint_interval_seconds"].value == 0


def test_the_first_event_after_functions_have_changed_says_so_with_the_way_to_have_all_rows_made_again() -> None:
    clock, said = StillClock(), list[str]()

    def log(event: Event) -> None:
        if isinstance(event, dg.AssetMaterialization):
            said.append(str(event.metadata["changed_functions"].value) if "changed_functions" in event.metadata else "")

    events = EpochEvents(EventLog(KEY, "delays", None, log, lambda _: True, lambda: NOTHING), 10_000, clock)
    events.on_open(committed(4).manifest)
    events.on_changed_functions(["twice", "plus"])
    assert "`twice`, `plus`" in str(events.once["changed_functions"].value)
    for epoch in range(5, 8):
        events.on_commit(committed(epoch))
        clock.sleep_ms(10_000)
    assert len(said) == 2
    assert "`dagster-ckpt rebuild delays`" in said[0]
    assert (said[1], events.once) == ("", {})
