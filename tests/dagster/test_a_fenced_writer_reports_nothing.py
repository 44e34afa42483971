"""Who may tell Dagster of a stream: the run whose term is the newest, whatever leases say or do not say yet."""

from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from dagster_ckpt.errors import StoreUnavailableError
from dagster_ckpt.integration.step.stream_step import StreamStep
from dagster_ckpt.protocol.object_names import lease_name
from dagster_ckpt.runtime.run_mode import Mode
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from tests.dagster.sensor_world import SensorWorld, a_world


def a_step(world: SensorWorld, run: dg.DagsterRun) -> StreamStep:
    """As much of a step as looks at the store."""
    context: Any = SimpleNamespace(asset_key=dg.AssetKey("s"), run=run)
    nothing: Any = None
    return StreamStep(context, nothing, world.checkpoints, nothing, nothing, Mode.AVAILABLE_NOW, world.clock)


def test_the_writer_may_report_until_another_has_opened_the_stream() -> None:
    world = a_world()
    older, newer = world.started("s"), world.started("s")
    mine = world.open("s", older).manifest
    assert a_step(world, older).may_report(mine)
    theirs = world.open("s", newer).manifest
    assert not a_step(world, older).may_report(mine)
    assert a_step(world, newer).may_report(theirs)


def test_not_even_in_the_moment_before_the_other_has_written_its_lease() -> None:
    world = a_world()
    older, newer = world.started("s"), world.started("s")
    mine = world.open("s", older).manifest
    theirs = world.open("s", newer).manifest
    world.folder("s").delete(lease_name(theirs.term))
    assert not a_step(world, older).may_report(mine)
    assert a_step(world, newer).may_report(theirs), "its own term needs no lease"


def test_a_run_may_still_report_an_epoch_of_its_earlier_term() -> None:
    world = a_world()
    run = world.started("s")
    before = world.open("s", run).manifest
    world.open("s", run)
    assert a_step(world, run).may_report(before)


def test_the_result_is_the_newest_epoch_also_where_another_has_come_since_this_run_closed_the_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = a_world()
    run = world.started("s")
    own = world.open("s", run)
    step = a_step(world, run)
    assert step.newest(own.manifest) == own.manifest
    other = world.open("s", world.started("s"))
    world.commit(other)
    assert step.newest(own.manifest) == other.manifest

    def asleep(*args: object) -> bytes:
        raise StoreUnavailableError("the store sleeps. store=memory")

    monkeypatch.setattr(MemoryObjectStore, "get", asleep)
    assert step.newest(own.manifest) == own.manifest, "all is committed: no store that sleeps undoes it"
