"""The product with one rule left out each: what the oracle must catch. None of it is a switch in the product.

Not among them: that an epoch which is retired while its opener looks at it is no damage. It takes an opener that goes
back, sleeps in one certain request, and wakes up after retention: not one of a thousand worlds comes to that.
`tests/unit/storage/writer/test_opening.py` makes it happen. Nor that a fork's pin has to be proved, for a like reason:
`tests/unit/storage/operations/test_fork_concurrent.py` retires the epoch at each call.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import dagster as dg

from dagster_ckpt.delivery import delivery_run as delivery_run_module
from dagster_ckpt.delivery.delivery_run import _DeliveryWork
from dagster_ckpt.errors import FencedError, StoreUnavailableError
from dagster_ckpt.hash_range import HashRange
from dagster_ckpt.history import swap as swap_module
from dagster_ckpt.ids import FIRST, Epoch, Nonce, StreamUuid, Term, Version
from dagster_ckpt.integration.recovery import sensor as sensor_module
from dagster_ckpt.integration.recovery.dagster_runs import LastRuns, StreamAsset
from dagster_ckpt.integration.recovery.decision import Launch
from dagster_ckpt.integration.recovery.relaunch import Watched, run_request
from dagster_ckpt.integration.recovery.sensor_memory import LeaseSeen, Memory
from dagster_ckpt.integration.recovery.stream_status import StreamStatus
from dagster_ckpt.lsm.compaction.run_lists import RunLists
from dagster_ckpt.lsm.compaction.run_lists import reshard_lists as with_clips
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.coordinator.coordinator import Coordinator, step
from dagster_ckpt.protocol.coordinator.coordinator_events import Effect, Event, JobEnded, ShardAcked
from dagster_ckpt.protocol.epochs.pin import Pin, PinVerdict, encode_pin
from dagster_ckpt.protocol.epochs.retention import log_bound
from dagster_ckpt.protocol.epochs.subscriber import Subscriber
from dagster_ckpt.protocol.epochs.upstream import UpstreamPosition
from dagster_ckpt.protocol.lease import Watch
from dagster_ckpt.protocol.manifest.manifest import Manifest, ManifestKind, Pipeline, Retained, RunRef
from dagster_ckpt.protocol.object_names import (
    MANIFESTS,
    manifest_name,
    parse_file_name,
    parse_manifest_name,
    pin_name,
    verdict_name,
)
from dagster_ckpt.protocol.transitions import manifest_rules, well_formed
from dagster_ckpt.protocol.transitions.edits import EpochEdit, reshard_manifest, rollback_manifest
from dagster_ckpt.runtime.upstreams import upstreams as upstreams_module
from dagster_ckpt.state import reshard as reshard_module
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.operations import collector as collector_module
from dagster_ckpt.storage.operations import fork as fork_module
from dagster_ckpt.storage.operations.collector import Collector
from dagster_ckpt.storage.operations.fork import _Fork
from dagster_ckpt.storage.retention_refs import subscribers as subscribers_module
from dagster_ckpt.storage.retention_refs.pins import read_pins
from dagster_ckpt.storage.retention_refs.subscribers import subscribe
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.stores.retry import RetryingStore
from dagster_ckpt.storage.writer import opening as opening_module
from dagster_ckpt.storage.writer import stream_writer as writer_module
from dagster_ckpt.storage.writer.opening import Opening, open_again
from tests.simulation import reading as reading_module
from tests.simulation import tasks as tasks_module
from tests.simulation.character import FIRST_WITH_CHANGED_STEPS, FIRST_WITH_REBUILDS, FIRST_WITH_STEPS
from tests.simulation.deliveries.database import SimulatedSession
from tests.simulation.deliveries.delivery_mutants import (
    ComparesNothing,
    ForgetsTheStream,
    JudgesNoRollback,
    LeavesAGap,
    SnapsTheNewest,
    TakesNoFence,
    TriesAgainBlindly,
    WritesThePositionLater,
    begins_again_where_it_was_emptied,
    begins_at_any_stream,
    begins_at_its_manifest,
    records_before_it_commits,
    replaces_what_it_must_not,
    stops_where_it_could_replace,
    with_session,
)
from tests.simulation.driver import Driver
from tests.simulation.job import Sums, consumed
from tests.simulation.mutants_of_steps import (
    Stepped,
    collects_earlier_steps,
    commits_the_last_step_alone,
    keeps_the_last_step,
    mixes_attempts,
    reshards_the_last_step,
    rolls_the_last_step_back,
    takes_late_replies_of_earlier_steps,
    waits_for_the_last_step,
)
from tests.simulation.reading import ReadingDriver
from tests.simulation.restoring import FIRST_WITH_RESTORES
from tests.simulation.world import Parts

if TYPE_CHECKING:
    from dagster_ckpt.storage.chain.damaged_end import BrokenEnd


# ---- the chain

status_watch = StreamStatus.watch


class NoFencing(ManifestChain):
    """Whoever comes second overwrites."""

    def _create(self, manifest: Manifest, data: bytes, store: RetryingStore) -> bool:
        store.put(manifest_name(manifest.version), data)
        return True


class ExistsIsMine(ManifestChain):
    """What exists must be its own, from a try whose reply was lost."""

    def _create(self, manifest: Manifest, data: bytes, store: RetryingStore) -> bool:
        store.put_if_absent(manifest_name(manifest.version), data)
        return True


class NoncePerWriter(ManifestChain):
    """Manifests of one process are taken for one another: the last digits of a nonce are the process."""

    def _create(self, manifest: Manifest, data: bytes, store: RetryingStore) -> bool:
        try:
            return super()._create(manifest, data, store)
        except FencedError:
            there = self.read(manifest.version)
            if there.nonce[-8:] != manifest.nonce[-8:]:
                raise
            return True


class NoCheckOfItsPlace(ManifestChain):
    """After a create it does not look whether its number had been freed."""

    def _check_place(self, parent: "Manifest | BrokenEnd | None", manifest: Manifest, store: RetryingStore) -> None:
        return


class TakesAwayWhatWasBuiltUpon(ManifestChain):
    """It takes its manifest away as soon as there is a later one, also where others have gone on from it."""

    def _is_built_on(self, manifest: Manifest, successor: bytes) -> bool:
        self.store.delete(manifest_name(manifest.version))
        return False


class BelievesInVersion1(ManifestChain):
    """It does not know that a stream can have been trimmed."""

    def _is_trimmed(self, store: RetryingStore) -> bool:
        return False


class BelievesLists(ManifestChain):
    """The newest manifest is the last one that a list shows."""

    def newest(self, hint: Version | None = None) -> Manifest | None:
        for version in sorted(filter(None, map(parse_manifest_name, self.span().list(MANIFESTS))), reverse=True):
            if self._exists(version, self.span()):
                return self.read(version)
        return None

    def end(self, hint: Version | None = None) -> "Manifest | BrokenEnd | None":
        return self.newest()


class GivesUpAfterOneTry(ManifestChain):
    """An unanswered create is taken for one that did not happen, and the number for free."""

    def create(self, parent: "Manifest | BrokenEnd | None", manifest: Manifest) -> None:
        try:
            super().create(parent, manifest)
        except StoreUnavailableError:
            super().create(parent, replace(manifest, time_ms=manifest.time_ms + 1))


# ---- the collector


class IgnoresGrace(Collector):
    """What is not retained goes at once."""

    def _is_old(self, version: Version, now_ms: int) -> bool:
        return True


class LetsSnapshotsGoTooEarly(Collector):
    """The bound is off by one."""

    def _release_snapshots(self, names: list[str], newest: Manifest) -> None:
        nearer = Collector(self.chain, self.root, self.grace_ms, self.max_lag - 1)
        nearer._release_snapshots(names, newest)


class TrustsItsOwnClock(Collector):
    """Age is told by the collector's clock, not by the store's."""

    def _now_ms(self) -> int:
        super()._now_ms()
        return self.chain.clock.now_ms()


class YoungestFirst(Collector):
    """Manifests go from above."""

    def _retire(self, first: Version, last: Version) -> int:
        for version in range(last - 1, first - 1, -1):
            self._delete(manifest_name(Version(version)))
        return max(0, last - first)


class DoesNotConfirm(Collector):
    """The next manifest is deleted before the last delete was answered."""

    def _delete(self, name: str) -> None:
        try:
            self.chain.store.delete(name)
        except StoreUnavailableError:
            return


class LeavesNoSign(Collector):
    """Nothing says that the stream was trimmed."""

    def _is_marked_as_trimmed(self) -> bool:
        return True


class TrimsWithoutTheSign(Collector):
    """A store that has no room for the sign has lost nothing."""

    def _is_marked_as_trimmed(self) -> bool:
        super()._is_marked_as_trimmed()
        return True


class TrustsItsOwnClockWithoutRoom(Collector):
    """Where nothing can be written to learn the store's time, the collector's clock tells age."""

    def _latest_known_ms(self, newest: Manifest) -> int:
        super()._latest_known_ms(newest)
        return self.chain.clock.now_ms()


class FilesFirst(Collector):
    """Files go before the manifests that name them."""

    def _retire(self, first: Version, last: Version) -> int:
        return 0


class NeverCollects(Collector):
    """Nothing is ever garbage."""

    def collect(self, writer: Term | None = None) -> collector_module.Collected:
        return collector_module.Collected()


class LetsGoOfItsOrigin(Collector):
    """A fork needs nothing of other streams for long."""

    def _release(self, newest: Manifest, needed: set[StreamUuid]) -> None:
        super()._release(newest, set())


# ---- the fork


class ForksWithoutAPin(_Fork):
    """The origin is not told."""

    def _pin(self, store: ObjectStore, manifest: Manifest, is_kept: Callable[[], bool]) -> None:
        return


class ForksBeforeItPins(_Fork):
    """The fork is there before its epoch is pinned."""

    def __init__(self, *which: Any) -> None:
        super().__init__(*which)
        self._later: list[tuple[ObjectStore, Manifest, Callable[[], bool]]] = []

    def _pin(self, store: ObjectStore, manifest: Manifest, is_kept: Callable[[], bool]) -> None:
        self._later.append((store, manifest, is_kept))

    def _create(self, first: Manifest) -> Manifest:
        fork = super()._create(first)
        for each in self._later:
            super()._pin(*each)
        return fork


def pins_of_people(chain: ManifestChain) -> list[Pin]:
    """A fork's pin is none."""
    return [pin for pin in read_pins(chain) if pin.fork is None]


# ---- the reshard


def forgets_the_last_shard(lists: RunLists, shards: int) -> RunLists:
    """The last of the new shards begins with nothing."""
    return (*with_clips(lists, shards)[:-1], ())


def forgets_older_runs(lists: RunLists, shards: int) -> RunLists:
    """Of what several old shards leave to a new one only the newest run is taken."""
    return tuple(runs[:1] for runs in with_clips(lists, shards))


def oldest_first(lists: RunLists, shards: int) -> RunLists:
    """The runs of a new shard are in the wrong order."""
    return tuple(tuple(reversed(runs)) for runs in with_clips(lists, shards))


def without_clips(lists: RunLists, shards: int) -> RunLists:
    """A new shard shows all of each run that it has a part of."""
    return tuple(tuple(replace(run, clip=HashRange()) for run in runs) for runs in with_clips(lists, shards))


def reshards_without_the_log(parent: Manifest, *what: Any) -> Manifest:
    """Nobody can read any more what the shown epoch changed."""
    return replace(reshard_manifest(parent, *what), changes=())


def reshards_without_the_past(parent: Manifest, *what: Any) -> Manifest:
    """It forgets who may read what: the shown epoch alone is retained."""
    return replace(reshard_manifest(parent, *what), retained=parent.retained[-1:])


def shows_all(run: RunRef, content: Sums) -> Sums:
    """A clip is not looked at."""
    return content


# ---- the driver and its tasks


def takes_the_stream_back(chain: ManifestChain, opening: Opening, before: Manifest, *tried: Any) -> Manifest:
    """Whoever reopens does not look whose term it is."""
    return open_again(chain, opening, chain.newest() or before, *tried)


class SaysItHasWorked(Driver):
    """An epoch without work counts as one."""

    def without_work(self, edit: EpochEdit) -> EpochEdit:
        return replace(super().without_work(edit), ran_tasks=True)


class CountsQuietEpochs(Driver):
    """An epoch that reads nothing takes the number of a batch."""

    def without_work(self, edit: EpochEdit) -> EpochEdit:
        return replace(super().without_work(edit), batch_id=edit.batch_id + 1)


class RemembersWhatIsDue(Driver):
    """What is due is known to the driver whose epoch moved the watermark, and to no other."""

    has_moved = False

    def commit(self, edit: EpochEdit, pipeline: Pipeline | None = None) -> None:
        before_us = self.writer.manifest.watermark_us
        super().commit(edit, pipeline)
        self.has_moved = self.writer.manifest.watermark_us != before_us

    @property
    def is_due(self) -> bool:
        return self.has_moved


class EmitsWithChangedSteps(Driver):
    """What was due is taken for emitted in the epoch in which changed steps begin."""

    def commit(self, edit: EpochEdit, pipeline: Pipeline | None = None) -> None:
        super().commit(replace(edit, ran_tasks=True) if pipeline is not None else edit, pipeline)


class SkipsABatch(Driver):
    """It goes on from what it remembers, not from what its manifest says."""

    remembered = 0

    def next_batch(self) -> int:
        self.remembered = max(self.remembered, consumed(self.writer.manifest)) + 1
        return self.remembered


class GoesOnWithAnUnansweredCommit(Driver):
    """A commit that was not answered did not happen: the same writer makes the epoch again."""

    def start_again(self) -> None:
        self.writer._ended = None
        self.coordinator = Coordinator(self.coordinator.shards, retained=1)


def acks_too_early(store: ObjectStore, name: str, data: memoryview) -> None:
    """A file that the store did not take is said to be durable."""
    try:
        store.put_if_absent(name, data)
    except StoreUnavailableError:
        return


def takes_any_word(state: Coordinator, event: Event) -> tuple[Coordinator, list[Effect]]:
    """A word of an epoch that was given up counts for the next."""
    if isinstance(event, ShardAcked):
        event = replace(event, epoch=state.epoch)
    return step(state, event)


def commits_without_all(state: Coordinator, event: Event) -> tuple[Coordinator, list[Effect]]:
    """A shard that said nothing has nothing to say."""
    if isinstance(event, JobEnded):
        for shard in sorted(state.pending):
            state, _ = step(state, ShardAcked(state.epoch, ShardAck(shard)))
    return step(state, event)


def pins_without_a_look(chain: ManifestChain, name: str, epoch: Retained) -> Pin:
    """The pin is not proved after it was written. Its writer sleeps before, or one world in thousands would show it."""
    pin = Pin(name, chain.clock.now_ms(), chain.read(epoch.version), Nonce(chain.clock.unique()))
    chain.clock.sleep_ms(30_000)
    chain.span().put_if_absent(pin_name(name), encode_pin(pin))
    chain.span().put_if_absent(verdict_name(pin.nonce), PinVerdict.KEPT.value)
    return pin


def no_pins(*_: object) -> list[Pin]:
    """No pin is looked at."""
    return []


def no_subscribers(*_: object) -> list[Subscriber]:
    """No subscriber is looked at."""
    return []


def log_bound_too_high(last: Version, consumed: Iterable[Epoch]) -> Version:
    """The first epoch that a subscriber would read next is not spared."""
    return log_bound(last, (Epoch(epoch + 2) for epoch in consumed))


def where_it_is(chain: ManifestChain, newest: Manifest) -> Manifest:
    """A subscriber needs what its newest epoch needs, although it may go back."""
    return newest


def subscribes_without_an_object(upstream: ManifestChain, subscriber: Subscriber) -> Manifest:
    """Nobody is told that the stream reads."""
    newest = upstream.newest()
    assert newest is not None
    return newest


def at_its_number(manifest: Manifest) -> UpstreamPosition:
    """An epoch is its number, whatever is restored."""
    return UpstreamPosition(manifest.uuid, manifest.epoch)


class SubscribesAfterTheCheck(ReadingDriver):
    """It chooses where it begins, makes sure of it, and only then says that it reads."""

    def judged(self, look: Callable[[], None]) -> None:
        super().judged(look)
        self.clock.sleep_ms(4 * self.character.grace_ms)
        mine, epoch = self.writer.manifest, self.upstream.oracle.newest
        assert epoch is not None
        subscriber = Subscriber(self.stream.name, mine.uuid, epoch.epoch)
        subscribe(self.upstream.chain_of(self.process), subscriber)


def newest_not_spared(newest: Manifest, retired: Manifest | None) -> Version:
    """The newest 16 count as little as any others."""
    return FIRST if retired is None else min([retired.version, *(entry.version for entry in retired.retained)])


def retained_not_spared(newest: Manifest, retired: Manifest | None) -> Version:
    """Only the newest manifests stay, retained or not."""
    return FIRST if retired is None else Version(max(FIRST, newest.version - 1))


def live_term_not_spared(name: str, needed: set[str], newest: Manifest, writer: Term | None) -> bool:
    """A stranger takes unnamed files of the live term for garbage."""
    file = parse_file_name(name)
    return file is not None and name not in needed and file.term <= newest.term


def in_flight_not_spared(name: str, needed: set[str], newest: Manifest, writer: Term | None) -> bool:
    """A writer collects also of the epoch that it is making."""
    file = parse_file_name(name)
    if file is None or name in needed:
        return False
    return file.term < newest.term or file.term == newest.term == writer


def forgets_whom_it_went_back_for(parent: Manifest, *others: Any) -> Manifest:
    """Nothing records that a Dagster run has rolled back already."""
    return replace(rollback_manifest(parent, *others), rollbacks=parent.rollbacks)


# ---- the glue of the recovery sensor


def forgets_the_attempt(watched: Watched, launch: Launch, *others: Any) -> dg.RunRequest:
    """Each relaunch is the first."""
    return run_request(watched, replace(launch, attempt=min(launch.attempt, 1), before=None), *others)


def dead_at_first_sight(status: StreamStatus, before: LeaseSeen | None, now_ms: int) -> Watch:
    """A lease that has not changed since the last tick has lapsed."""
    watch = status_watch(status, before, now_ms)
    return watch if watch.since_ms == now_ms else replace(watch, since_ms=now_ms - 10**9)


def remembers_nothing(cursor: str | None, now_ms: int) -> Memory:
    """The cursor is not read back."""
    return Memory(now_ms, 0, {})


def takes_any_run(
    instance: Any,
    asset: StreamAsset,
    unfinished: Sequence[dg.RunRecord],
    last_runs: LastRuns,
    lease_run_id: str | None,
) -> dg.RunRecord | None:
    """The newest run there is, also that of another stream."""
    return max(instance.records.values(), key=lambda record: record.storage_id, default=None)


@dataclass(frozen=True)
class Mutant:
    """One rule left out: by another part, or by functions in the place of those of a module.

    Functions are replaced for the whole life of a world: within a pass, somebody else would move meanwhile. None below
    `first_seed` can catch it.
    """

    parts: Parts
    functions: tuple[tuple[object, str, object], ...] = ()
    first_seed: int = 0

    def applied(self) -> ExitStack:
        with ExitStack() as patches:
            for function in self.functions:
                patches.enter_context(patch.object(*function))
            return patches.pop_all()


def _chain(chain: type[ManifestChain]) -> Mutant:
    return Mutant(Parts(chain=chain))


def _collector(collector: type[Collector]) -> Mutant:
    return Mutant(Parts(collector=collector))


def _function(module: object, name: str, value: object) -> Mutant:
    return Mutant(Parts(), ((module, name, value),))


def _delivered_to(session: type[SimulatedSession]) -> Mutant:
    return Mutant(Parts(destination=with_session(session)))


_UNJUDGED: tuple[tuple[object, str, object], ...] = (
    (manifest_rules, "_OF_KIND", dict.fromkeys(manifest_rules._OF_KIND, ())),
    (well_formed, "_FORMS", ()),
)


def _reshard(module: object, name: str, value: object) -> Mutant:
    """With nothing that would refuse what comes of it: neither before it is created, nor beside the oracle."""
    return Mutant(Parts(), ((module, name, value), *_UNJUDGED))


def _swap(name: str) -> Mutant:
    """Without a part of it, and with nothing that would refuse what comes of it."""
    functions = ((swap_module, name, lambda *_: None), *_UNJUDGED)
    return Mutant(Parts(), functions, first_seed=FIRST_WITH_REBUILDS)


def _pins(read: Callable[[ManifestChain], list[Pin]]) -> Mutant:
    """Of a collector that reads some of the pins alone."""
    functions: tuple[tuple[object, str, object], ...] = (
        (collector_module, "read_pins", read),
        (collector_module, "settled_pins", read),
    )
    return Mutant(Parts(), functions)


def _of_steps(coordinator: Callable[[Coordinator, Event], Stepped]) -> Mutant:
    return Mutant(Parts(step=coordinator), first_seed=FIRST_WITH_STEPS)


MUTANTS: dict[str, Mutant] = {
    "fencing is off": _chain(NoFencing),
    "what exists is mine": _chain(ExistsIsMine),
    "a nonce for each writer instead of each manifest": _chain(NoncePerWriter),
    "a nonce for several tries": _chain(GivesUpAfterOneTry),
    "neither the parent nor later manifests are checked": _chain(NoCheckOfItsPlace),
    "a reopening ignores the term": _function(writer_module, "open_again", takes_the_stream_back),
    "an epoch without work says that it has worked": Mutant(Parts(driver=SaysItHasWorked)),
    "an epoch that reads nothing counts as a batch": Mutant(Parts(driver=CountsQuietEpochs)),
    "what is due is remembered by the driver": Mutant(Parts(driver=RemembersWhatIsDue)),
    "a sleeper takes away what was built upon": _chain(TakesAwayWhatWasBuiltUpon),
    "the mark of a trimmed stream is ignored": _chain(BelievesInVersion1),
    "lists are believed": _chain(BelievesLists),
    "pins are ignored": _pins(no_pins),
    "the grace period is ignored": _collector(IgnoresGrace),
    "age is told by the wrong clock": _collector(TrustsItsOwnClock),
    "the newest 16 count as little as others": _function(collector_module, "first_needed", newest_not_spared),
    "what is retained is forgotten": _function(collector_module, "first_needed", retained_not_spared),
    "manifests go youngest first": _collector(YoungestFirst),
    "a delete is not confirmed": _collector(DoesNotConfirm),
    "no sign that the stream was trimmed": _collector(LeavesNoSign),
    "a full store is trimmed without the sign": _collector(TrimsWithoutTheSign),
    "age is told by the wrong clock in a full store": _collector(TrustsItsOwnClockWithoutRoom),
    "files go before their manifests": _collector(FilesFirst),
    "a stranger collects the live term": _function(collector_module, "is_garbage", live_term_not_spared),
    "a writer collects what is in flight": _function(collector_module, "is_garbage", in_flight_not_spared),
    "subscribers are ignored": _function(collector_module, "read_subscribers", no_subscribers),
    "the bound of the log is off by one": _function(collector_module, "log_bound", log_bound_too_high),
    "that a subscriber may go back is forgotten": _function(subscribers_module, "_oldest", where_it_is),
    "a stream subscribes after it has looked": Mutant(
        Parts(reading_driver=SubscribesAfterTheCheck),
        functions=((upstreams_module, "subscribe", subscribes_without_an_object),),
    ),
    "a snapshot goes before the log behind it": _collector(LetsSnapshotsGoTooEarly),
    "a snapshot goes as soon as it was read to its end": _function(
        upstreams_module, "lineage_epochs", lambda newest: [newest.epoch]
    ),
    "a snapshot goes with a restart once it was read to its end": _function(
        upstreams_module.Upstreams, "_retained_manifest", lambda upstreams, version: None
    ),
    "a fork's pin is not written": _function(fork_module, "_Fork", ForksWithoutAPin),
    "a fork's pin is written after version 1": _function(fork_module, "_Fork", ForksBeforeItPins),
    "a fork's pin is ignored": _pins(pins_of_people),
    "a fork lets go of what it still reads": _collector(LetsGoOfItsOrigin),
    "a reshard forgets a shard": _reshard(reshard_module, "with_clips", forgets_the_last_shard),
    "a reshard forgets runs": _reshard(reshard_module, "with_clips", forgets_older_runs),
    "a reshard turns the order of runs": _reshard(reshard_module, "with_clips", oldest_first),
    "a reshard clips nothing": _reshard(reshard_module, "with_clips", without_clips),
    "a reshard lets go of the change log": _reshard(writer_module, "reshard_manifest", reshards_without_the_log),
    "a reshard lets go of older epochs": _reshard(writer_module, "reshard_manifest", reshards_without_the_past),
    "a task looks at no clip": _function(tasks_module, "shown", shows_all),
    "a stream that reads another looks at no clip": _function(reading_module, "shown", shows_all),
    "a swap comes before all is read again": _swap("check_caught_up"),
    "nothing is collected": _collector(NeverCollects),
    "a pin is not proved": Mutant(Parts(write_pin=pins_without_a_look)),
    "a batch is skipped": Mutant(Parts(driver=SkipsABatch)),
    "an unanswered commit is made again by the same writer": Mutant(
        Parts(driver=GoesOnWithAnUnansweredCommit, chain=NoncePerWriter)
    ),
    "an ACK comes before the file is durable": Mutant(Parts(create=acks_too_early)),
    "a word of another epoch counts": Mutant(Parts(step=takes_any_word)),
    "a missing word counts as one": Mutant(Parts(step=commits_without_all)),
    "an epoch waits for the last step alone": _of_steps(waits_for_the_last_step),
    "a late reply of an earlier step counts": replace(
        _of_steps(takes_late_replies_of_earlier_steps), functions=_UNJUDGED
    ),
    "replies of two attempts of a step are mixed": _of_steps(mixes_attempts),
    "the runs of earlier steps are not committed": _of_steps(commits_the_last_step_alone),
    "the runs of earlier steps are collected": replace(
        _function(collector_module, "is_garbage", collects_earlier_steps), first_seed=FIRST_WITH_STEPS
    ),
    "a reshard forgets earlier steps": replace(
        _reshard(reshard_module, "_without_timelines", reshards_the_last_step), first_seed=FIRST_WITH_STEPS
    ),
    "a rollback takes the last step back alone": Mutant(
        Parts(),
        ((opening_module, "rollback_manifest", rolls_the_last_step_back), *_UNJUDGED),
        first_seed=FIRST_WITH_STEPS,
    ),
    "a changed step keeps what it had": Mutant(
        Parts(),
        (
            (writer_module, "change_steps", keeps_the_last_step),
            (tasks_module, "change_steps", keeps_the_last_step),
            *_UNJUDGED,
        ),
        first_seed=FIRST_WITH_CHANGED_STEPS,
    ),
    "the first epoch of changed steps emits what is due": Mutant(
        Parts(driver=EmitsWithChangedSteps), first_seed=FIRST_WITH_CHANGED_STEPS
    ),
    "each relaunch is the first": _function(sensor_module, "run_request", forgets_the_attempt),
    "a lease lapses in one tick": _function(StreamStatus, "watch", dead_at_first_sight),
    "the sensor's cursor is not read back": _function(Memory, "read", remembers_nothing),
    "the newest run may be another stream's": _function(sensor_module, "newest_run", takes_any_run),
    "rows are committed before the position": _delivered_to(WritesThePositionLater),
    "a position without the stream's UUID": Mutant(
        Parts(destination=with_session(ForgetsTheStream)),
        (
            (_DeliveryWork, "_resume", begins_at_any_stream),
            (manifest_rules, "_OF_KIND", {**manifest_rules._OF_KIND, ManifestKind.EPOCH: ()}),
        ),
    ),
    "a position without its nonce": replace(
        _function(UpstreamPosition, "after", at_its_number), first_seed=FIRST_WITH_RESTORES
    ),
    "a destination has no fence": _delivered_to(TakesNoFence),
    "a destination compares neither fence nor position": _delivered_to(ComparesNothing),
    "a commit without a reply is sent again": _delivered_to(TriesAgainBlindly),
    "a delivery goes on from its manifest, not from the destination": Mutant(
        Parts(),
        ((_DeliveryWork, "_resume", begins_at_its_manifest), (_DeliveryWork, "_apply", records_before_it_commits)),
    ),
    "a delivery records what is not committed": _function(_DeliveryWork, "_apply", records_before_it_commits),
    "a gap between the snapshot and the log": _function(delivery_run_module, "DeliveryRows", LeavesAGap),
    "a delivery begins with a table that is not pinned": _function(delivery_run_module, "DeliveryRows", SnapsTheNewest),
    "a delivery does not look for rollbacks": _function(delivery_run_module, "UpstreamLog", JudgesNoRollback),
    "an emptied destination is filled again": _function(
        delivery_run_module, "judge", begins_again_where_it_was_emptied
    ),
    "an upsert delivery stops where it could replace": _function(
        delivery_run_module, "judge", stops_where_it_could_replace
    ),
    "an append delivery replaces the table": _function(delivery_run_module, "judge", replaces_what_it_must_not),
    "from_epoch is replayed": _function(opening_module, "rollback_manifest", forgets_whom_it_went_back_for),
}
