"""A delivery in Dagster runs of its own: what is heard of it, how it ends, and what restarts it. Without Spark."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_ckpt import CheckpointCoordinatorResource, Recovery, Stream, deliver, streaming_asset
from dagster_ckpt.delivery.destination import DestinationUnavailableError
from dagster_ckpt.integration.dagster_names import DRAIN_TAG, UNFIT_TAG
from dagster_ckpt.integration.definitions import build_streaming_definitions
from dagster_ckpt.protocol.lease import Lease
from dagster_ckpt.protocol.object_names import folder_of
from dagster_ckpt.storage.leases.heartbeat import read_lease
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.stores.folder import folder_store
from examples.destinations.sqlite_destination import SQLite
from tests.dagster.conftest import NOTHING_PRINTED
from tests.dagster.place import Beside, until
from tests.dagster.sensor_world import a_world
from tests.dagster.test_a_crash_loop import asked
from tests.unit.delivery.delivering import Delivering
from tests.unit.history.made_streams import departures

NAME = "delays_in_sqlite"
KEY = dg.AssetKey(NAME)


@streaming_asset(mode="continuous", autostart=True)
def delays() -> Stream:
    raise AssertionError("only what it has committed is delivered")


@dataclass
class Shop:
    """A stream with epochs, and its delivery in Dagster."""

    delivering: Delivering
    instance: dg.DagsterInstance

    def run(self, **options: Any) -> dg.ExecuteInProcessResult:
        """Materialize the delivery, in this process. The result does not raise."""
        asset = deliver(delays, to=self.delivering.destination, recovery=Recovery(lease_timeout="2s"), **options)
        checkpoints = CheckpointCoordinatorResource(
            url=self.delivering.url, event_interval="200ms", checkpoint_interval="50ms", tolerable_failures=0
        )
        defs = build_streaming_definitions(
            [delays, asset], checkpoints=checkpoints, spark=dg.ResourceDefinition.none_resource()
        )
        job = defs.resolve_job_def(f"{NAME}_job")
        return job.execute_in_process(instance=self.instance, raise_on_error=False)

    def run_beside(self, **options: Any) -> Beside:
        beside = Beside(lambda: self.run(**options))
        beside.thread.start()
        return beside

    def events(self) -> list[dg.AssetMaterialization]:
        """Oldest first."""
        records = self.instance.fetch_materializations(KEY, limit=1000).records
        return [record.asset_materialization for record in reversed(records) if record.asset_materialization]

    def is_live(self) -> dg.AssetCheckEvaluation:
        record = self.instance.get_latest_asset_check_evaluation_record(dg.AssetCheckKey(KEY, "is_live"))
        assert record is not None
        assert isinstance(record.evaluation, dg.AssetCheckEvaluation)
        return record.evaluation

    def lease(self) -> Lease:
        folder = folder_store(StoreAddress(self.delivering.url).open(), folder_of((NAME,)))
        lease = read_lease(folder, self.delivering.store.stream(NAME).manifest().term)
        assert lease is not None
        return lease

    def has_all(self) -> bool:
        return self.delivering.database.exists() and self.delivering.delivered() == self.delivering.table()


@pytest.fixture
def shop(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    home = tmp_path_factory.mktemp("dagster")
    made = Shop(Delivering(tmp_path), dg.DagsterInstance.local_temp(str(home), overrides=NOTHING_PRINTED))
    made.delivering.stream.commit(departures({"UA": [1.0], "AA": [2.0]}))
    return made


def test_events_and_lag_are_logged_while_it_runs_and_it_drains(shop: Shop) -> None:
    live = shop.run_beside()
    until("the first rows", lambda: shop.events() and shop.has_all())
    shop.delivering.stream.commit(departures({"DL": [1.0]}))
    shop.delivering.stream.commit(departures({"DL": [2.0], "UA": [1.0]}))
    until("the next rows", shop.has_all)
    until("no lag", lambda: shop.events()[-1].metadata.get("lag/epochs") == dg.MetadataValue.int(0))
    assert shop.is_live().metadata["state"].value == "live"
    [run] = shop.instance.get_runs()
    shop.instance.add_run_tags(run.run_id, {DRAIN_TAG: "a new deploy"})
    assert live.end().success
    assert shop.lease().closed == "it was asked to end at the next epoch"
    assert shop.is_live().metadata["state"].value == "ended"
    newest = shop.events()[-1].metadata
    assert newest["consumed_epoch/delays"].value == shop.delivering.store.stream("delays").latest().epoch
    assert newest["dagster/row_count"].value == len(shop.delivering.delivered()) == 3
    totals = shop.delivering.store.stream(NAME).manifest().statistics
    for label, total in (("rows_in", totals.total_rows_in), ("epochs", totals.total_epochs)):
        assert sum(int(str(event.metadata[label].value)) for event in shop.events()) == total


def test_a_run_beside_a_live_one_shows_the_destination_and_delivers_nothing(shop: Shop) -> None:
    live = shop.run_beside()
    until("the first rows", lambda: shop.events() and shop.has_all())
    [run] = shop.instance.get_runs()
    assert shop.run().success
    beside = shop.events()[-1].metadata
    assert beside["live_run"].value == run.run_id
    assert beside["dagster/uri"].value == shop.delivering.destination.address
    assert beside["dagster/table_name"].value == "delays"
    shop.instance.add_run_tags(run.run_id, {DRAIN_TAG: "the test is over"})
    assert live.end().success


def test_a_delivery_that_cannot_go_on_says_why_and_is_tried_again(shop: Shop) -> None:
    assert shop.run(continuous=False).success
    shop.delivering.database.unlink()
    result = shop.run(continuous=False)
    assert not result.success
    [failure] = [event for event in result.all_events if event.is_step_failure]
    error = failure.step_failure_data.error
    assert error is not None
    while error.cause is not None:
        error = error.cause
    assert "has no position of this delivery, although it had one" in error.message
    assert f"asset={NAME}, stream=delays, destination=sqlite:" in error.message
    assert str(error.cls_name).endswith("DestinationMismatchError")
    assert UNFIT_TAG not in shop.instance.get_runs()[0].tags


SHOP = SQLite("shop.db", "delays")


@pytest.mark.parametrize(
    ("error", "restarts"),
    [
        (lambda number: DestinationUnavailableError(f"the server is away. try={number}"), True),
        (lambda number: ValueError("a fault of ours"), False),
    ],
    ids=["does not answer", "always the same error"],
)
def test_the_sensor_restarts_a_delivery_as_it_does_a_stream(
    error: Callable[[int], BaseException], *, restarts: bool
) -> None:
    world = a_world(deliver(delays, to=SHOP, continuous=True))
    run = world.started(NAME)
    for number in range(1, 6 if restarts else 3):
        world.open(NAME, run)
        world.fail(run, NAME, error(number))
        run = world.move(world.launch(asked(world)), dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED)
        world.step(run, NAME, "STEP_START")
    world.open(NAME, run)
    world.fail(run, NAME, error(99))
    if restarts:
        assert asked(world).job_name == f"{NAME}_job"
        return
    assert not world.tick().run_requests
    check = world.check(NAME)
    assert check is not None
    assert not check.passed
    assert world.is_quiet()
