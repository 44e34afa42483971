"""The first epoch of changed steps: one manifest, which is there or not."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from dagster_ckpt.errors import IncompatibleStateError, StoreUnavailableError
from dagster_ckpt.ids import Epoch, Shard, StreamUuid
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.epochs.lineage import lineage_epochs
from dagster_ckpt.protocol.epochs.subscriber import Subscriber
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Manifest, Pipeline, StateTableSpec
from dagster_ckpt.protocol.transitions.edits import EpochEdit
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.retention_refs.subscribers import subscribe
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.writer.stream_writer import StreamWriter, open_stream
from tests.worlds.clock import StillClock
from tests.worlds.faulty_store import Fault, FaultyStore
from tests.worlds.manifests import PIPELINE, ROWS
from tests.worlds.streams import SHARDS, a_store, an_edit, an_opening

CLOCK = StillClock()
FOLLOWER = Pipeline(
    operator="aggregate",
    parameters={"sizes": {"function": "count"}},
    inputs=(InputSpec((), ROWS, 0),),
    keys=("delay",),
    tables=(StateTableSpec("sizes", ROWS, ("delay",)),),
    output=ROWS,
)
TWO = replace(FOLLOWER, before=(PIPELINE,))
OTHER = replace(TWO, parameters={"sizes": {"function": "sum"}})


@pytest.fixture
def opened() -> Iterator[Any]:
    writers: list[StreamWriter] = []

    def open_(store: ObjectStore, pipeline: Pipeline, *, restart_steps: bool = True) -> StreamWriter:
        opening = an_opening(pipeline=pipeline, restart_steps=restart_steps)
        writers.append(open_stream(store, opening, CLOCK))
        return writers[-1]

    yield open_
    for writer in writers:
        writer.close("the test is over")


def a_start(parent: Manifest, steps: int = 2) -> EpochEdit:
    """The epoch in which changed steps begin: no rows, the same positions."""
    acks = tuple(ShardAck(Shard(shard), step=step) for step in range(steps) for shard in range(SHARDS))
    return EpochEdit(acks, parent.sources, parent.batch_id or 0, 1, (1_000,), ran_tasks=False)


def of_one_step(opened: Any, store: ObjectStore) -> Manifest:
    writer: StreamWriter = opened(store, PIPELINE)
    manifest = writer.commit(an_edit(writer.manifest))
    writer.close("the run has ended")
    return manifest


def test_the_old_steps_are_shown_until_the_new_ones_begin(opened: Any) -> None:
    store = a_store()
    old = of_one_step(opened, store)
    writer = opened(store, TWO)
    assert (writer.manifest.pipeline, writer.manifest.runs, writer.changed_pipeline) == (PIPELINE, old.runs, TWO)
    new = writer.commit(a_start(writer.manifest), TWO)
    assert (new.pipeline, writer.changed_pipeline) == (TWO, None)
    assert new.runs == {"0.total": old.runs["total"], "sizes": ((), ())}
    assert (new.sources, new.watermark_us, new.batch_id) == (old.sources, old.watermark_us, old.batch_id)
    assert lineage_epochs(new) == [new.epoch]
    assert old.epoch in [each.epoch for each in new.retained]
    assert ManifestChain(store, CLOCK).newest() == new


def test_without_the_option_nothing_is_changed_and_the_error_says_what_would_be_kept(opened: Any) -> None:
    store = a_store()
    old = of_one_step(opened, store)
    with pytest.raises(IncompatibleStateError, match=r"restart_steps: true.*keep their state: step 1 \(aggregate\); "):
        opened(store, TWO, restart_steps=False)
    with pytest.raises(IncompatibleStateError) as caught:
        opened(store, replace(PIPELINE, keys=("delay",)))
    assert "restart_steps" not in str(caught.value)
    assert ManifestChain(store, CLOCK).newest() == old


def test_a_filter_behind_all_state_begins_without_the_option_unless_it_stops_a_reader(opened: Any) -> None:
    filtered = replace(TWO, operator="mirror", parameters={"where": "total > 5"})
    store = a_store()
    old = of_one_step(opened, store)
    writer = opened(store, filtered, restart_steps=False)
    assert (writer.manifest.pipeline, writer.changed_pipeline) == (PIPELINE, filtered)
    writer.close("it began nothing")
    subscribe(ManifestChain(store, CLOCK), Subscriber("reports", StreamUuid("r"), old.epoch))
    with pytest.raises(IncompatibleStateError, match="have to begin again: reports; with dagster-ckpt restart-steps"):
        opened(store, filtered, restart_steps=False)
    assert opened(store, filtered).changed_pipeline == filtered


@pytest.mark.parametrize(("fault", "begun"), [(Fault.LOST_REQUEST, False), (Fault.LOST_REPLY, True)])
def test_an_unanswered_first_epoch_is_there_or_is_made_again(opened: Any, fault: Fault, begun: bool) -> None:
    store = FaultyStore(a_store())
    of_one_step(opened, store)
    writer = opened(store, TWO)
    store.decide = lambda call: fault if "manifest" in call.name else Fault.NONE
    with pytest.raises(StoreUnavailableError):
        writer.commit(a_start(writer.manifest), TWO)
    store.decide = lambda _: Fault.NONE
    again = writer.reopen()
    try:
        assert (again.changed_pipeline is None) == begun
        if not begun:
            again.commit(a_start(again.manifest), TWO)
        assert again.manifest.pipeline == TWO
    finally:
        again.close("the test is over")


def test_a_rollback_takes_the_steps_of_its_epoch(opened: Any) -> None:
    store = a_store()
    first = opened(store, TWO)
    two = first.commit(a_start(first.manifest))
    newest = first.commit(a_start(first.manifest))
    first.close("the run has ended")
    opening = an_opening("run-2", pipeline=OTHER, restart_steps=True, from_epoch=two.epoch)
    writer = open_stream(store, opening, CLOCK)
    try:
        assert (writer.manifest.epoch, writer.manifest.pipeline, writer.changed_pipeline) == (two.epoch, TWO, OTHER)
        made = writer.commit(a_start(writer.manifest), OTHER)
        assert made.pipeline == OTHER
        assert all(epoch not in lineage_epochs(made) for epoch in (two.epoch, newest.epoch))
    finally:
        writer.close("the test is over")


def test_the_first_epoch_of_changed_steps_reads_nothing(opened: Any) -> None:
    store = a_store()
    of_one_step(opened, store)
    writer = opened(store, TWO)
    [position] = writer.manifest.sources
    moved = replace(position, previous=position.current, current="{}")
    with pytest.raises(AssertionError, match="writer_is_the_parents"):
        writer.commit(replace(a_start(writer.manifest), sources=(moved,)), TWO)
    assert writer.manifest.epoch == Epoch(2)


def test_steps_that_keep_nothing_come_by_no_epoch(opened: Any) -> None:
    store = a_store()
    of_one_step(opened, store)
    writer = opened(store, PIPELINE)
    with pytest.raises(AssertionError, match="refused when the stream is opened"):
        writer.commit(a_start(writer.manifest, 1), replace(PIPELINE, keys=("delay",)))
    assert writer.manifest.epoch == Epoch(2)
