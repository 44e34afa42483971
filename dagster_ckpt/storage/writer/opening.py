"""Opening a stream: the one operation that fences, and the checks before it.

A writer opens by creating the next manifest, which begins its term. The earlier writer meets that manifest at its next
create and stops. Because that is all it takes, an opener first waits for a writer whose lease still beats, and gives up
if the lease goes on. It does not wait if the writer is known to have ended, if the opener may fence exactly the newest
term, or if a user chose to take over.
"""

import logging
from dataclasses import dataclass, replace
from enum import StrEnum

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import CorruptStateError, FencedError, IncompatibleStateError, InvalidPipelineError
from dagster_ckpt.ids import EMPTY, Epoch, Nonce, StreamUuid, Term, can_be_shards
from dagster_ckpt.protocol.epochs.lineage import is_abandoned, lineage, lineage_epochs, ranges
from dagster_ckpt.protocol.epochs.upstream import parse_backfill_pin
from dagster_ckpt.protocol.lease import Lease, LeaseHolder, Life, Watch, judge, next_watch
from dagster_ckpt.protocol.manifest.manifest import Manifest, ManifestKind, Owner, Pipeline
from dagster_ckpt.protocol.object_names import manifest_name
from dagster_ckpt.protocol.transitions.compatibility import breaking_changes, redefined_columns
from dagster_ckpt.protocol.transitions.edits import (
    NO_OWNER,
    Beginning,
    Stamp,
    first_manifest,
    opening_manifest,
    rollback_manifest,
)
from dagster_ckpt.protocol.transitions.later_columns import beginning_after, beginnings
from dagster_ckpt.protocol.transitions.manifest_rules import check_successor, stream_stays_itself
from dagster_ckpt.protocol.transitions.source_moves import Moves, pipeline_gone_on
from dagster_ckpt.protocol.transitions.step_changes import StepChange
from dagster_ckpt.protocol.transitions.well_formed import broken_rules
from dagster_ckpt.storage.chain.damaged_end import BrokenEnd, newest_known
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.leases.heartbeat import BEATS_PER_TIMEOUT, read_lease
from dagster_ckpt.storage.leases.process_identity import is_gone
from dagster_ckpt.storage.retention_refs.pins import hold_epoch, is_kept, let_go, read_pins
from dagster_ckpt.storage.retention_refs.subscribers import read_subscribers

_log = logging.getLogger(__name__)

_LOOKS_PER_BEAT = 10


class Takeover(StrEnum):
    """Whether a live writer, or one of another owner, may be fenced."""

    NEVER = "never"
    ALWAYS = "always"


@dataclass(frozen=True)
class Opening:
    """All that a writer needs to open a stream.

    `shards` is used only to create the stream. `retained` is how many epochs stay readable. `may_fence` is the
    one term that may be fenced without waiting. The stream goes back to `from_epoch` once for each `root_run`: the
    first Dagster run, before all retries and relaunches. `moves` maps what a source read before to where it is now.
    `restart_steps`: steps that changed may start over from the tables of those before them (`step_changes`);
    `timed_steps` are those that read event times.
    """

    stream: str
    owner: Owner
    pipeline: Pipeline
    shards: int
    holder: LeaseHolder
    root_run: str
    lease_timeout_ms: int = 30_000
    retained: int = 20
    take_over: Takeover = Takeover.NEVER
    may_fence: Term | None = None
    from_epoch: Epoch | None = None
    moves: Moves = ()
    restart_steps: bool = False
    timed_steps: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if not can_be_shards(self.shards):
            raise InvalidPipelineError(f"shards must be a power of two: 1, 2, 4, 8 ... shards={self.shards}")
        if self.retained < 1:
            raise InvalidPipelineError(f"at least the newest epoch must be retained. retained={self.retained}")
        if self.lease_timeout_ms < 1:
            raise InvalidPipelineError(f"lease_timeout must be positive. lease_timeout_ms={self.lease_timeout_ms}")
        if self.from_epoch is not None and self.from_epoch < EMPTY:
            raise InvalidPipelineError(f"from_epoch must be 0 or a retained epoch. from_epoch={self.from_epoch}")


def open_manifest(chain: ManifestChain, opening: Opening) -> Manifest:
    """Begin a term. Returns the durable manifest that begins it. A crash leaves that manifest or nothing.

    Raises `FencedError` if another writer stays alive, `IncompatibleStateError` if the pipeline no longer fits the
    state, `InvalidPipelineError` for another owner's stream or a missing epoch, and `CorruptStateError` if the newest
    manifest is damaged, unless the opener goes back to an older epoch.
    """
    while True:
        end = chain.end()
        if end is not None:
            successor = _current_successor(chain, end, opening)  # report mistakes before waiting
            if successor is None:
                continue
            await_its_end(chain, newest_known(end), opening)
            if not _is_end(chain, end):
                continue
        else:
            successor = _first(chain.clock, opening)
        if _create(chain, end, successor):
            return successor


def open_again(chain: ManifestChain, opening: Opening, before: Manifest, tried: set[Nonce] | None = None) -> Manifest:
    """Begin a new term after the caller's term, without waiting. `before` is the newest known manifest of that term.

    `tried` holds the nonces of earlier, unanswered tries, and gets this one's: a writer that finds one of those as the
    newest manifest goes on from it, so that it does not fence itself.

    Raises `FencedError` if another writer has opened the stream meanwhile.
    """
    tried = set() if tried is None else tried
    while True:
        newest = chain.newest(before.version)
        if newest is not None and newest.version < before.version:
            name = manifest_name(before.version)
            raise CorruptStateError(
                f"a manifest that this writer builds on is missing: restore it from a backup, or go back to an "
                f"epoch before it. object={name}, found={newest.version}, store={chain.store.url}"
            )
        if newest is None or (newest.term != before.term and newest.nonce not in tried):
            raise FencedError(
                f"another writer took over the stream; this one has stopped and changed nothing since. "
                f"stream={before.stream}, mine={before.term}, theirs={newest and newest.term}"
            )
        successor = _current_successor(chain, newest, opening)
        if successor is None:
            continue
        tried.add(successor.nonce)
        if _create(chain, newest, successor):
            return successor


def _is_end(chain: ManifestChain, end: Manifest | BrokenEnd) -> bool:
    """Whether the chain still ends there."""
    return chain.end() == end if isinstance(end, BrokenEnd) else chain.is_newest(end)


def _create(chain: ManifestChain, end: Manifest | BrokenEnd | None, successor: Manifest) -> bool:
    """Create the manifest; False if another writer was faster: then read the end again."""
    check_successor(None if end is None else newest_known(end), successor)
    held = None if end is None else _hold(chain, newest_known(end), successor)
    # The writer of the newest manifest may have died before it was durable.
    chain.settle()
    try:
        chain.create(end, successor)
        is_created = True
    except FencedError:
        is_created = False
    if held is not None:
        let_go(chain, held)
    return is_created


def _hold(chain: ManifestChain, newest: Manifest, successor: Manifest) -> str | None:
    """Pin the epoch to go back to, where other pins alone keep it: they may be removed before the manifest keeps it.

    Returns the pin's name; None where none is needed. Another pin that is there after this one was written has kept
    the epoch until then. After a crash, or a create with an unknown outcome, this pin stays, and keeps the epoch until
    it is unpinned.
    """
    if successor.kind is not ManifestKind.ROLLBACK:
        return None
    shown = check_can_go_back(chain, newest, successor.epoch)
    if shown is None:
        return None
    name = f"rollback-{chain.clock.unique()}"
    hold_epoch(chain, name, shown)
    try:
        check_can_go_back(chain, newest, successor.epoch)
    except InvalidPipelineError:
        let_go(chain, name)
        raise
    return name


def _first(clock: Clock, opening: Opening) -> Manifest:
    if opening.from_epoch:
        raise InvalidPipelineError(
            f"there is no such epoch to go back to: the stream is new. "
            f"stream={opening.stream}, from_epoch={opening.from_epoch}"
        )
    beginning = Beginning(opening.stream, StreamUuid(clock.unique()), opening.owner, opening.pipeline, opening.shards)
    manifest = first_manifest(beginning, _stamp(clock))
    # An empty stream is at epoch 0 already, but a retry of this Dagster run must not go back to it.
    return manifest if opening.from_epoch is None else replace(manifest, rollbacks=(opening.root_run,))


def _successor(chain: ManifestChain, newest: Manifest, opening: Opening) -> Manifest:
    """The manifest that would begin the opener's term after `newest`."""
    _check_owner(newest, opening)
    if newest.shards != opening.shards:
        _log.warning(
            "the stream keeps its number of shards until it is resharded: give the asset that number, or the stream "
            "the other (dagster-ckpt reshard, StreamHistory.reshard). stream=%s, shards=%s, asked=%s",
            newest.stream,
            newest.shards,
            opening.shards,
        )

    def open_with(pipeline: Pipeline) -> Manifest:
        return opening_manifest(newest, opening.owner, pipeline, _stamp(chain.clock), opening.moves)

    shown = manifest_to_show(chain, newest, opening)
    if shown is newest:
        return open_with(_pipeline(chain, newest, newest, opening))
    if shown is None:
        return rollback_manifest(open_with(opening.pipeline), None, opening.root_run)
    _check_sound(shown, newest)
    return rollback_manifest(
        open_with(_pipeline(chain, newest, shown, opening)), shown, opening.root_run, opening.moves
    )


def manifest_to_show(chain: ManifestChain, newest: Manifest, opening: Opening) -> Manifest | None:
    """The manifest of the epoch that an opening shows: `newest`, or that to which it goes back; None: epoch 0.

    Raises as `find_target` does.
    """
    if opening.from_epoch is None or opening.root_run in newest.rollbacks:
        return newest
    return None if opening.from_epoch == EMPTY else find_target(chain, newest, opening.from_epoch)


def _current_successor(chain: ManifestChain, end: Manifest | BrokenEnd, opening: Opening) -> Manifest | None:
    """The successor of the newest manifest; None if a newer one exists by now."""
    found = end.readable if isinstance(end, BrokenEnd) else end
    try:
        _check_sound(found, found)
        successor = _successor(chain, newest_known(end), opening)
    except CorruptStateError:
        # The epoch to go back to is missing: perhaps another writer went on and it was retired meanwhile.
        if _is_end(chain, end):
            raise
        return None
    if isinstance(end, BrokenEnd) and successor.kind is not ManifestKind.ROLLBACK:
        raise CorruptStateError(end.damage)
    return successor


def find_target(chain: ManifestChain, newest: Manifest, epoch: Epoch) -> Manifest:
    """The manifest that shows a retained or pinned epoch to which the stream can go back.

    Who goes back pins a pinned epoch too, until the stream's newest manifest keeps its files (`_hold`).
    """
    pinned = check_can_go_back(chain, newest, epoch)
    if pinned is not None:
        return pinned
    return chain.read(next(entry.version for entry in lineage(newest) if entry.epoch == epoch))


def check_can_go_back(chain: ManifestChain, newest: Manifest, epoch: int) -> Manifest | None:
    """The manifest of a pin, where that alone keeps the epoch; None where the stream does.

    Raises `InvalidPipelineError` if the stream of this newest manifest cannot go back to the epoch.
    """
    if epoch in {EMPTY, *lineage_epochs(newest)}:
        return None
    # Pins that a fork or a subscriber lets go of by itself keep nothing for others.
    pins = [pin for pin in read_pins(chain) if pin.fork is None and parse_backfill_pin(pin.name) is None]
    shown = [pin.manifest for pin in pins if is_kept(chain, pin)]
    there = {each.epoch: each for each in shown if each.epoch < newest.epoch and not is_abandoned(newest, each.epoch)}
    if epoch in there:
        return there[Epoch(epoch)]
    raise InvalidPipelineError(
        f"the stream cannot go back to an epoch that is neither retained nor pinned, or that an earlier rollback left "
        f"behind: choose another, or 0 for the empty stream. One that can still be read can be forked. epoch={epoch}, "
        f"current={newest.epoch}, retained={ranges(lineage_epochs(newest)) or 'none'}, "
        f"pinned={ranges(there) or 'none'}, stream={newest.stream!r}"
    )


def _check_sound(manifest: Manifest, newest: Manifest) -> None:
    """Refuse to build on a manifest that breaks the rules, even if its bytes are intact."""
    broken = [
        *broken_rules(manifest),
        *([] if stream_stays_itself(newest, manifest) else [stream_stays_itself.__name__]),
    ]
    if broken:
        raise CorruptStateError(
            f"a manifest breaks its rules: restore it from a backup, or go back to an epoch before it. "
            f"object={manifest_name(manifest.version)}, broken={broken}, stream={newest.stream}"
        )


def _check_owner(newest: Manifest, opening: Opening) -> None:
    theirs, mine = newest.owner, opening.owner
    same = theirs == NO_OWNER or (theirs.instance, theirs.asset_key) == (mine.instance, mine.asset_key)
    if not same and opening.take_over is Takeover.NEVER:
        raise InvalidPipelineError(
            f"the stream belongs to another {_how_to_be_it(theirs, mine)}, use another store, or make it yours by "
            f"take_over: true in the run config. stream={newest.stream!r}, owner={_owner_text(theirs)}, "
            f"mine={_owner_text(mine)}"
        )


def _how_to_be_it(theirs: Owner, mine: Owner) -> str:
    if theirs.instance == mine.instance:
        return "asset: give this one another key"
    # The most common case for new users: without DAGSTER_HOME, Dagster creates a temporary instance.
    return "Dagster instance: set DAGSTER_HOME as it was then (without it each start of Dagster is a new instance)"


def _owner_text(owner: Owner) -> str:
    location = f", code location {owner.location}" if owner.location else ""
    return f"'asset {owner.asset_key} of instance {owner.instance}{location}'"


def _pipeline(chain: ManifestChain, newest: Manifest, shown: Manifest, opening: Opening) -> Pipeline:
    """The pipeline with which the opening shows what `shown` does. Raises `IncompatibleStateError` for another one.

    Where changed steps may start over, it is the one that made the state: an epoch brings the new steps. They may if
    the opening says so, and by themselves where no state is lost and no reader of the stream has to stop.
    """
    if shown.epoch == EMPTY:
        return opening.pipeline  # there is no state that it could not fit
    before = pipeline_gone_on(shown.pipeline, opening.pipeline, opening.moves)
    changes = breaking_changes(before, opening.pipeline)
    if not changes:
        begun = beginnings(opening.pipeline) - beginnings(before)
        if begun - {beginning_after(shown, newest)}:
            raise FencedError(
                "another Dagster run has gone on with the stream while this one started, and its new columns begin "
                f"elsewhere; nothing was changed: start it again. stream={shown.stream}, begun={sorted(begun)}, "
                f"epoch={newest.epoch}"
            )
        _check_meanings(before, opening.pipeline, shown.stream)
        return opening.pipeline
    if shown.pipeline.delivers:
        raise IncompatibleStateError(
            f"the delivery has gone on to epoch {shown.epoch}, and is another one now: {'; '.join(changes)}. Change it "
            f"back, or begin a new one under another name, with an empty table. delivery={shown.stream}"
        )
    change = StepChange.between(before, opening.pipeline, opening.timed_steps)
    by_itself = not opening.restart_steps and change.is_of_rows_alone
    readers = [each.stream for each in read_subscribers(chain)] if by_itself else []
    if (opening.restart_steps and change.can_restart) or (by_itself and not readers):
        _log.warning("the stream's steps have changed. %s. stream=%s", change.text(), shown.stream)
        return before
    stops = f"what reads the stream would have to begin again: {', '.join(sorted(readers))}; " if readers else ""
    raise IncompatibleStateError(
        f"the pipeline changed and no longer fits the state of epoch {shown.epoch}: {'; '.join(changes)}. "
        f"To make its table again with this code, beside the old one until it has caught up: dagster-ckpt rebuild "
        f"{shown.stream}. Or change it back; {stops}{change.advice()}"
        'if a source\'s folder or bucket has moved, set moved={"old": "new"}; if a column has another name, set '
        'renamed={"old": "new"}; or start again '
        f"from the sources' beginning with dagster-ckpt from-epoch {shown.stream} 0 (run config from_epoch: 0); "
        f"or keep the old stream and start a new one with fork(..., epoch=0). stream={shown.stream}"
    )


def _check_meanings(before: Pipeline, after: Pipeline, stream: str) -> None:
    """Refuse another aggregate under the name of one: what reads the change log has its values, registered or not."""
    others = redefined_columns(before, after)
    if others:
        raise IncompatibleStateError(
            "a column of the table has another aggregate now, and what reads the stream's changes has values of the "
            f"old one: give it another name. columns={', '.join(others)}, stream={stream}"
        )


def _may_fence(term: Term, opening: Opening) -> bool:
    return opening.take_over is Takeover.ALWAYS or opening.may_fence == term


def await_its_end(chain: ManifestChain, newest: Manifest, opening: Opening) -> None:
    """Return once the writer of the newest term is known to have ended, or at once if the opening may fence it.

    This takes one time-out, or less than two if the last beat came during the wait. Raises `FencedError` if the writer
    stays alive.
    """
    if _may_fence(newest.term, opening):
        return
    clock, watch = chain.clock, None
    end_ms = None
    while True:
        lease = read_lease(chain.span(), newest.term)
        now_ms = clock.monotonic_ms()
        watch = next_watch(watch, newest.term, lease, now_ms)
        timeout_ms = opening.lease_timeout_ms if lease is None else max(opening.lease_timeout_ms, lease.timeout_ms)
        gone = lease is not None and is_gone(lease.holder.process)
        life = judge(watch, lease, now_ms, timeout_ms, process_is_gone=gone)
        if life is not Life.BEATING:
            _log.info(
                "the stream's last writer has ended. stream=%s, term=%s, lease=%s", newest.stream, newest.term, life
            )
            return
        end_ms = now_ms + timeout_ms if end_ms is None else end_ms
        if lease is not None and now_ms >= end_ms and _beat_lately(watch, now_ms, timeout_ms):
            raise FencedError(_live(newest, lease))
        clock.sleep_ms(max(1, timeout_ms // BEATS_PER_TIMEOUT // _LOOKS_PER_BEAT))


def _beat_lately(watch: Watch, now_ms: int, timeout_ms: int) -> bool:
    """Whether the next beat is not overdue: at most two of the three periods of a time-out have passed."""
    return now_ms - watch.since_ms < timeout_ms * 2 // BEATS_PER_TIMEOUT


def _live(newest: Manifest, lease: Lease) -> str:
    holder = lease.holder
    return (
        f"another Dagster run is writing this stream; it goes on unharmed, and this one has stopped. Wait for its end, "
        f"or end it, or fence it: take_over in the run config, or --fence. stream={newest.stream}, "
        f"dagster_run={holder.dagster_run_id}, host={holder.process.host}, pid={holder.process.pid}, "
        f"instance={holder.instance}, term={newest.term}"
    )


def _stamp(clock: Clock) -> Stamp:
    return Stamp(Nonce(clock.unique()), clock.now_ms())
