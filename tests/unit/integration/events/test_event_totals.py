"""The events of a stream add up to its totals, whatever happens to the Dagster runs that log them."""

import random
from collections.abc import Callable
from dataclasses import astuple, replace
from itertools import accumulate

import dagster as dg
import pyarrow as pa
import pytest

from dagster_ckpt.ids import Epoch, Version
from dagster_ckpt.integration.events.epoch_metadata import epoch_metadata
from dagster_ckpt.integration.events.event_totals import NO_WORK, NOTHING, Reported, Totals, read_totals
from dagster_ckpt.integration.events.step_events import EpochEvents, Event, EventLog, final_result
from dagster_ckpt.integration.reading.late_rows_asset import late_key, late_rows_reported
from dagster_ckpt.operators.shared.late_rows import KEEP, late_tables
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Manifest, SourcePosition, Statistics
from dagster_ckpt.runtime.micro_batch.epoch_driver import CommittedEpoch
from tests.worlds.clock import StillClock
from tests.worlds.manifests import PIPELINE, SOURCE, a_manifest

KEY = dg.AssetKey("delays")
_INPUT = InputSpec((SOURCE,), pa.schema([("at", pa.timestamp("us"))]))
_LATE = late_tables(KEEP, [_INPUT], ["at"])
KEEPS_LATE_ROWS = a_manifest(
    pipeline=replace(PIPELINE, tables=_LATE, inputs=(_INPUT,)), runs={_LATE[0].name: ((), (), (), ())}
)


class World:
    """One stream, the Dagster runs that write it one after another, and a Dagster whose database may not answer."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.instance = dg.DagsterInstance.ephemeral()
        self.clock = StillClock()
        self.lineage = [KEEPS_LATE_ROWS]
        self.epochs = 0
        self.start()

    @property
    def shown(self) -> Manifest:
        return self.lineage[-1]

    def start(self) -> None:
        """A Dagster run opens the stream; the one before it may have said nothing of its last epochs."""
        log = EventLog(
            KEY,
            "delays",
            None,
            self.store,
            lambda manifest: True,
            lambda: read_totals(self.instance, KEY),
            late_rows_reported=lambda late: late_rows_reported(self.instance, late),
        )
        self.events = EpochEvents(log, 10_000, self.clock)
        self.events.on_open(self.shown)

    def store(self, event: Event) -> None:
        if not isinstance(event, dg.AssetMaterialization):
            return
        fate = self.chance.random()
        if fate < 0.1:
            raise OSError("database is locked")
        self.instance.report_runless_asset_event(event)
        if fate < 0.2:
            raise OSError("the connection was lost, after the event was stored")

    def epoch(self) -> None:
        self._commit(self.chance.randrange(1, 50), self.chance.randrange(50), self.chance.randrange(3), moves=True)

    def epoch_of_the_watermark_alone(self) -> None:
        self._commit(0, 0, 0, moves=False)

    def epoch_that_read_only_rows_that_are_filtered_out(self) -> None:
        self._commit(0, 0, 0, moves=True)

    def quiet(self) -> None:
        for _ in range(2):
            self.clock.sleep_ms(self.chance.randrange(20_000))
            self.events.idle()

    def crash(self) -> None:
        self.start()

    def interruption(self) -> None:
        self.events.flush()
        self.start()

    def drain(self) -> None:
        self.events.finish()
        result = final_result(self.instance, KEY, "delays", self.shown, self.events.work)
        self.instance.report_runless_asset_event(dg.AssetMaterialization(KEY, metadata=result.metadata))
        self.start()

    def rollback(self) -> None:
        del self.lineage[self.chance.randrange(1, len(self.lineage) + 1) :]
        self.start()

    def event_of_a_person(self) -> None:
        self.instance.report_runless_asset_event(dg.AssetMaterialization(KEY, description="mended by hand"))

    def logged(self, key: dg.AssetKey = KEY) -> list[dg.AssetMaterialization]:
        """Events with totals, oldest first."""
        records = self.instance.fetch_materializations(key, limit=1000).records
        found = [each.asset_materialization for each in reversed(records)]
        return [event for event in found if event is not None and "late_rows_total" in event.metadata]

    def _commit(self, rows_in: int, rows_out: int, late_rows: int, *, moves: bool) -> None:
        self.epochs += 1
        did = Totals(rows_in, rows_out, late_rows, 1)
        totals = [old + new for old, new in zip(astuple(Totals.of(self.shown)), astuple(did), strict=True)]
        manifest = replace(
            self.shown,
            version=Version(self.epochs),
            epoch=Epoch(self.epochs),
            sources=(SourcePosition(SOURCE, str(self.epochs)),) if moves else self.shown.sources,
            statistics=Statistics(
                rows_in,
                rows_out,
                late_rows,
                total_rows_in=totals[0],
                total_rows_out=totals[1],
                total_late_rows=totals[2],
                total_epochs=totals[3],
            ),
        )
        self.lineage.append(manifest)
        self.events.on_commit(CommittedEpoch(manifest, 1, 10, {}))
        self.clock.sleep_ms(self.chance.randrange(15_000))


def since(event: dg.AssetMaterialization) -> tuple[int, ...]:
    return tuple(int(str(event.metadata[label].value)) for label in ("rows_in", "rows_out", "late_rows", "epochs"))


def added_up(events: list[dg.AssetMaterialization]) -> Totals:
    return Totals(*(sum(column) for column in zip(*map(since, events), strict=True)))


OFTEN: list[Callable[[World], None]] = [World.epoch, World.epoch_of_the_watermark_alone, World.quiet]
SELDOM: list[Callable[[World], None]] = [
    World.epoch_that_read_only_rows_that_are_filtered_out,
    World.crash,
    World.interruption,
    World.drain,
    World.rollback,
    World.event_of_a_person,
]


@pytest.mark.parametrize("seed", range(8))
def test_the_sum_of_all_events_is_the_streams_total_over_crashes_rollbacks_and_drains(seed: int) -> None:
    world = World(seed)
    events, drained = [], set()
    for what in [*world.chance.choices(OFTEN * 3 + SELDOM, k=60), World.drain]:
        what(world)
        if what is World.drain:
            events = world.logged()
            drained.add(len(events) - 1)
            assert added_up(events) == Totals.of(world.shown), "nothing is left to report"
    for count in range(1, len(events)):
        totals = [events[count - 1].metadata[label].value for label in Totals().labels()]
        assert list(astuple(added_up(events[:count]))) == totals
    assert len(events) > 5
    sources = [event.metadata["source_positions"].value for event in events]
    for at, event in enumerate(events[:-1]):
        if at not in drained and at:
            assert any(since(event)[:3]) or sources[at] != sources[at - 1], "it says something"


@pytest.mark.parametrize("seed", range(4))
def test_the_events_of_the_late_rows_add_up_as_the_streams_do(seed: int) -> None:
    world = World(seed)
    for what in [*world.chance.choices(OFTEN * 3 + SELDOM, k=60), World.drain, World.drain]:
        what(world)
    events = world.logged(late_key(KEY, 0))
    late = [int(str(event.metadata["late_rows"].value)) for event in events]
    totals = [event.metadata["late_rows_total"].value for event in events]
    assert totals == list(accumulate(late)), "each event is the difference to the one before"
    assert len(late) > 3
    assert all(late), "none repeats the one before"
    assert totals[-1] == world.shown.statistics.total_late_rows


def test_no_epoch_is_in_two_events() -> None:
    """Without rollbacks the epochs that events count are all different ones."""
    world = World(0)
    for what in (World.epoch, World.quiet, World.epoch, World.crash, World.epoch, World.interruption, World.drain) * 3:
        what(world)
    events = world.logged()
    assert sum(since(event)[3] for event in events) == world.epochs == events[-1].metadata["epochs_total"].value
    assert all(number >= 0 for event in events for number in since(event))


def test_nothing_is_reported_of_an_asset_without_events() -> None:
    assert read_totals(dg.DagsterInstance.ephemeral(), KEY) == NOTHING


def test_events_that_people_report_say_nothing_of_totals() -> None:
    instance = dg.DagsterInstance.ephemeral()
    by_hand = dg.AssetMaterialization(KEY, description="by hand")
    instance.report_runless_asset_event(by_hand)
    assert read_totals(instance, KEY) == NOTHING
    manifest = a_manifest(epoch=Epoch(9), statistics=Statistics(5, 4, total_rows_in=905, total_epochs=90))
    instance.report_runless_asset_event(dg.AssetMaterialization(KEY, metadata=epoch_metadata(manifest)))
    instance.report_runless_asset_event(by_hand)
    assert read_totals(instance, KEY) == Reported.of(manifest)


def test_a_rollback_takes_back_what_earlier_events_reported() -> None:
    before, shown = Totals(100, 80, 2, 10), a_manifest(statistics=Statistics(total_rows_in=30, total_epochs=3))
    event = dg.AssetMaterialization(KEY, metadata=epoch_metadata(shown, NO_WORK, before))
    assert since(event) == (-70, -80, -2, -7)


def test_an_event_counts_although_its_writer_died_before_dagster_had_noted_it_as_the_latest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PostgreSQL notes it in a transaction of its own, after the event."""
    instance = dg.DagsterInstance.ephemeral()
    first, second = (a_manifest(statistics=Statistics(total_rows_in=rows)) for rows in (10, 30))
    instance.report_runless_asset_event(dg.AssetMaterialization(KEY, metadata=epoch_metadata(first)))
    with monkeypatch.context() as killed:
        storage = type(instance.event_log_storage)
        # Dagster 1.13.0 has it without the underscore.
        noting = "_store_asset_event" if hasattr(storage, "_store_asset_event") else "store_asset_event"
        killed.setattr(storage, noting, lambda *_: None)
        instance.report_runless_asset_event(dg.AssetMaterialization(KEY, metadata=epoch_metadata(second)))
    latest = instance.get_latest_materialization_event(KEY)
    assert latest is not None
    assert latest.asset_materialization is not None
    assert latest.asset_materialization.metadata["rows_in_total"].value == 10, "the world of this test"
    assert read_totals(instance, KEY) == Reported.of(second)
