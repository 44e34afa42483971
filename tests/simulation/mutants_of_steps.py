"""Rules of streams of several steps, left out one by one: see `mutants`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dagster_ckpt.ids import Term
from dagster_ckpt.lsm.compaction.run_lists import RunLists
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.coordinator.coordinator import Coordinator, step
from dagster_ckpt.protocol.coordinator.coordinator_events import CommitManifest, Effect, Event, JobEnded, ShardAcked
from dagster_ckpt.protocol.epochs.retention import is_garbage
from dagster_ckpt.protocol.manifest.manifest import Manifest, Pipeline
from dagster_ckpt.protocol.transitions.edits import rollback_manifest
from dagster_ckpt.protocol.transitions.step_changes import change_steps
from dagster_ckpt.state import reshard as reshard_module
from tests.simulation.job import TABLE

Stepped = tuple[Coordinator, list[Effect]]

without_timelines = reshard_module._without_timelines


def _part(event: ShardAcked) -> tuple[int, int]:
    return event.ack.step, event.ack.shard


def waits_for_the_last_step(state: Coordinator, event: Event) -> Stepped:
    """The epoch is committed when all shards have replied in the last step."""
    if isinstance(event, JobEnded):
        for number, shard in state.parts:
            if number < state.steps - 1 and (number, shard) not in state.acks:
                state, _ = step(state, ShardAcked(state.epoch, ShardAck(shard, step=number)))
    return step(state, event)


def takes_late_replies_of_earlier_steps(state: Coordinator, event: Event) -> Stepped:
    """A reply of an earlier step counts for the epoch in work, whatever epoch it is of."""
    if isinstance(event, ShardAcked) and event.ack.step < state.steps - 1:
        event = replace(event, epoch=state.epoch)
    return step(state, event)


def mixes_attempts(state: Coordinator, event: Event) -> Stepped:
    """Of two replies of an earlier step the first counts, as if the second were the same."""
    if isinstance(event, ShardAcked) and event.ack.step < state.steps - 1 and _part(event) in state.acks:
        return state, []
    return step(state, event)


def commits_the_last_step_alone(state: Coordinator, event: Event) -> Stepped:
    """The manifest keeps the runs that earlier steps had."""
    state, effects = step(state, event)
    last = state.steps - 1
    return state, [
        replace(each, acks=tuple(ack if ack.step == last else replace(ack, tables=()) for ack in each.acks))
        if isinstance(each, CommitManifest)
        else each
        for each in effects
    ]


def collects_earlier_steps(name: str, needed: set[str], newest: Manifest, writer: Term | None) -> bool:
    """No manifest needs the runs of earlier steps."""
    named = {each for each in needed if not each.startswith("state/") or each.startswith(f"state/{TABLE}/")}
    return is_garbage(name, named, newest, writer)


def reshards_the_last_step(shown: Manifest, shards: int) -> Mapping[str, RunLists]:
    """Earlier steps begin with nothing."""
    runs = without_timelines(shown, shards)
    return {name: lists if name == TABLE else ((),) * shards for name, lists in runs.items()}


def keeps_the_last_step(parent: Manifest, pipeline: Pipeline) -> Manifest:
    """The last step goes on with what it had before it was changed."""
    now = change_steps(parent, pipeline)
    return replace(now, runs={**now.runs, TABLE: parent.runs[TABLE]})


def rolls_the_last_step_back(parent: Manifest, *others: Any) -> Manifest:
    """Earlier steps stay where they are."""
    back = rollback_manifest(parent, *others)
    if back.shards != parent.shards:
        return back
    return replace(back, runs={**parent.runs, TABLE: back.runs[TABLE]} if TABLE in back.runs else back.runs)
