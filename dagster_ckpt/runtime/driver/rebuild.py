"""Rebuilds a stream from the start of its sources alongside the live one, then switches over to it.

The stream beside is one of its own, with a name of its own: a fork of epoch 0, which reads from where the stream once
began. It is worked in passes, each over all that the sources have. Once a pass is short, the live writer is asked to
end, a last pass reads what that had read, and the swap is one commit. A crash

    before the swap    leaves the stream beside, with which the same Dagster run goes on when it is restarted; any
                       other starts over, since nothing shows which code has made the rows there. A writer that had
                       been asked to end has ended: until the next try the stream stands still
    after it           leaves a stream that the new code goes on with
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import CheckpointError, FencedError, IncompatibleStateError, InvalidPipelineError
from dagster_ckpt.history.drain import drain
from dagster_ckpt.history.info.writer_info import WriterInfo, WriterWatch
from dagster_ckpt.history.swap import NotCaughtUpError, check_can_take_over, check_caught_up, swap
from dagster_ckpt.ids import EMPTY
from dagster_ckpt.protocol.epochs.topic_offsets import LostOffsets, read_elsewhere
from dagster_ckpt.protocol.manifest.manifest import Manifest, Pipeline
from dagster_ckpt.protocol.object_names import folder_of, name_of, parts_of_name
from dagster_ckpt.protocol.transitions.edits import initial_positions
from dagster_ckpt.protocol.transitions.source_moves import Moves, positions_gone_on
from dagster_ckpt.runtime.declared.sources import source_text, spell_moves
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.stream_checks import CheckedStream, check_stream, check_tables
from dagster_ckpt.runtime.driver.stream_job import Ending, JobHooks, StreamJob
from dagster_ckpt.runtime.driver.stream_run import run_stream
from dagster_ckpt.runtime.lag.lag import Lag
from dagster_ckpt.runtime.micro_batch.epoch_driver import CommittedEpoch
from dagster_ckpt.runtime.micro_batch.initial_tables import refuse_other_tables
from dagster_ckpt.runtime.run_mode import Mode
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.operations.fork import fork_empty
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.writer.opening import Opening

_LOG = logging.getLogger(__name__)

SHORT_PASS_MS = 30_000
"""After a pass that takes no longer than this, the live writer is asked to end: the stream stands still in the next."""
PASSES_MAX = 20
"""A stream that gets rows faster than they are read again is never caught up with."""
_LOOK_MS = 1_000
"""How often a rebuild that rests looks whether it is to stop."""
_TRY = ", try "
"""Before what is unique to each start over, in the root run that the stream beside records."""
_RETAINED = 2
_TRIES_MAX = 3


@dataclass(frozen=True)
class Progress:
    """How far a rebuild is: the epochs and rows of the stream beside, and what waits for it in the sources."""

    beside: str
    epoch: int
    rows: int
    lag: Lag | None = None


def _ignore(_: Progress) -> None: ...


@dataclass(frozen=True)
class RebuildHooks:
    """What a rebuild calls: `stop_reason` and `on_idle` as a run does, `on_progress` after each epoch."""

    stop_reason: Callable[[], str | None] = lambda: None
    on_idle: Callable[[], None] = lambda: None
    on_progress: Callable[[Progress], None] = _ignore


class _StoppedError(Exception):
    """Something asked the rebuild to stop."""


def names_beside(newest: Manifest) -> Iterator[str]:
    """The names of streams in which that of this manifest may be rebuilt, the first to take first."""
    swaps = sum(each.swapped for each in newest.ancestors)
    return (name_of((*parts_of_name(newest.stream), f"~rebuild-{number}")) for number in count(swaps + 1))


def is_beside(there: Manifest, newest: Manifest, moves: Moves) -> bool:
    """Whether the stream of `there` was made to rebuild that of `newest`, and knows where all its sources began.

    A stream that was removed and created again, or that has begun again with other sources, has a new one.
    """
    known = {each.source: each.initial for each in there.sources}
    wanted = initial_positions(positions_gone_on(newest.sources, there.pipeline, moves))
    begun = all(known.get(each.source) == each.initial for each in wanted)
    return begun and there.ancestors[-1:] != () and there.ancestors[-1].uuid == newest.uuid


def rebuild(
    job: StreamJob,
    stream_of: Callable[[str], Stream],
    request: str,
    pace: float,
    hooks: RebuildHooks,
    clock: Clock,
    code_version: str = "",
) -> bool:
    """Rebuild the stream of `job`, and let the new one take its place. Blocks. False where something asked to stop.

    `stream_of` makes the stream to rebuild, as one that is kept in the folder it gets. `request` identifies who asks:
    it is done once, and resumed where `code_version` and the pipeline are the same. `pace` is the part of the time that
    it may work: above 0, at most 1. Works nothing where the stream has no epoch: then the new code can begin at once.

    Raises `InvalidPipelineError` where readers could not follow, or the code does not read all that the stream has
    read; `NotCaughtUpError` where the sources no longer have it; and what else ends a run.
    """
    root = job.address.open()
    chain = ManifestChain(folder_store(root, job.folder), clock)
    newest = chain.newest()
    if newest is None or newest.epoch == EMPTY or request in newest.rollbacks:
        return True
    try:
        _Rebuild(job, stream_of, request, f"{request} {code_version}", pace, hooks, clock, root, chain).to_end(newest)
    except _StoppedError:
        return False
    return True


@dataclass
class _Rebuild:
    job: StreamJob
    stream_of: Callable[[str], Stream]
    request: str
    code: str
    """Which request, and which code, the rows beside are from."""
    pace: float
    hooks: RebuildHooks
    clock: Clock
    root: ObjectStore
    chain: ManifestChain

    @cached_property
    def name(self) -> str:
        newest = self._newest(self.chain)
        theirs = (name for name in names_beside(newest) if self._may_be_beside(self._chain_of(name), newest))
        return next(theirs)

    @property
    def folder(self) -> str:
        return folder_of(parts_of_name(self.name))

    @property
    def beside(self) -> ManifestChain:
        return self._chain_of(self.name)

    @cached_property
    def moves(self) -> Moves:
        return spell_moves(self.job.asset, self.job.stream.frame.sparkSession, self.job.moved)

    def to_end(self, newest: Manifest) -> None:
        checked = check_stream(self.job)
        check_can_take_over(newest, checked.dataflow.pipeline)
        self._check_sources(newest, checked)
        if self.beside.newest() is None:
            fork_empty(self.root, self.chain, newest, self.name)
        for _ in range(PASSES_MAX):
            if self._pass() <= SHORT_PASS_MS:
                break
        for _ in range(_TRIES_MAX):
            self._end_the_writer()
            self._pass(is_last=True)
            opening = replace(self.job.opening(checked.dataflow.pipeline), root_run=self.request, moves=self.moves)
            try:
                swap(self.root, self.chain, self.beside, opening)
                return
            except (NotCaughtUpError, FencedError) as error:
                # Another run has gone on with the stream meanwhile, or is live: it is asked to end like the first.
                _LOG.warning("the rebuilt stream could not take over yet. stream=%s, reason=%s", self.job.asset, error)
        raise CheckpointError(f"other runs go on with the stream: stop them. stream={self.job.asset}")

    def _check_sources(self, newest: Manifest, checked: CheckedStream) -> None:
        """Raise `InvalidPipelineError` where the code does not read all that the stream has read."""
        read = {source.identity for source in checked.sources}
        known = positions_gone_on(newest.sources, checked.dataflow.pipeline, self.moves)
        if gone := [source_text(each.source) for each in known if each.source not in read]:
            raise InvalidPipelineError(
                "the stream has read sources that the code does not read, or under another name, so nothing shows "
                'that the rebuilt one has their rows: say moved={"old": "new"} where a folder or a bucket has moved; '
                "with other sources, begin a stream under another name, with fork(..., epoch=0). "
                f"stream={self.job.asset}, gone={gone}"
            )
        tables = {each.source for each in known if each.after_table} - checked.sources_after_tables
        if tables:
            raise InvalidPipelineError(
                "the stream began with a table, whose rows the rebuilt one would lack: give it again, with "
                f"Stream(df, initial=...). stream={self.job.asset}, sources={sorted(map(source_text, tables))}"
            )
        check_tables(self.job.asset, checked, known)
        begun = {each.source for each in known if each.initial is not None}
        if new := [
            source_text(each.identity) for each in checked.sources if each.begins_at_end and each.identity not in begun
        ]:
            raise InvalidPipelineError(
                "a new source begins at its end, so the rebuilt stream would have none of the rows that it has now: "
                f"set startingOffsets. stream={self.job.asset}, sources={new}"
            )

    def _may_be_beside(self, chain: ManifestChain, newest: Manifest) -> bool:
        there = chain.newest()
        return there is None or is_beside(there, newest, self.moves)

    def _chain_of(self, name: str) -> ManifestChain:
        return ManifestChain(folder_store(self.root, folder_of(parts_of_name(name))), self.clock)

    def _pass(self, *, is_last: bool = False) -> int:
        """Read all that the sources have; returns how many milliseconds it took."""
        target, began_ms = self._newest(self.chain), self.clock.monotonic_ms()
        result = run_stream(self._job_beside(is_last=is_last), self._hooks(), self.clock)
        if result.ending is Ending.STOPPED or self.hooks.stop_reason() is not None:
            raise _StoppedError
        check_caught_up(self.root, self.clock, target, result.manifest, self.moves)
        self._check_same_tables(target, result.manifest)
        return self.clock.monotonic_ms() - began_ms

    def _check_same_tables(self, newest: Manifest, beside: Manifest) -> None:
        """Raise `InvalidPipelineError` where a table has changed since the rebuild began."""
        known = positions_gone_on(newest.sources, beside.pipeline, self.moves)
        then, now = (
            {each.source: each.table for each in positions if each.table is not None}
            for positions in (known, beside.sources)
        )
        refuse_other_tables(self.job.asset, then, now)

    def _job_beside(self, *, is_last: bool) -> StreamJob:
        stream = self.stream_of(self.folder)
        # Rows of the next pass would be late after a flush. The last one ends as a run of the stream does.
        flushes = is_last and self.job.options.mode is Mode.AVAILABLE_NOW
        options = replace(self.job.options, mode=Mode.AVAILABLE_NOW, run_for_ms=None, flushes=flushes)
        return replace(
            self.job, asset=self.name, folder=self.folder, stream=stream, options=options, opening=self._opening
        )

    def _opening(self, pipeline: Pipeline) -> Opening:
        """The opening of the stream beside. It starts over unless this request has made it, with this code."""
        opening, there = self.job.opening(pipeline), self._newest(self.beside)
        begun_by = there.rollbacks[-1] if there.rollbacks else ""
        is_mine = begun_by.rpartition(_TRY)[0] == self.code and there.pipeline == pipeline
        return replace(
            opening,
            stream=self.name,
            owner=replace(opening.owner, asset_key=self.name),
            shards=there.shards,
            from_epoch=EMPTY,  # once for each root run
            root_run=begun_by if is_mine else f"{self.code}{_TRY}{self.clock.unique()}",
            retained=_RETAINED,
            may_fence=None,
        )

    def _hooks(self) -> JobHooks:
        lag: list[Lag | None] = [None]

        def on_commit(epoch: CommittedEpoch) -> None:
            manifest = epoch.manifest
            rows = manifest.statistics.total_rows_in
            self.hooks.on_progress(Progress(self.name, manifest.epoch, rows, lag[0]))
            self._rest(round(epoch.epoch_ms * (1 / self.pace - 1)))

        def on_lag(found: Lag | None) -> None:
            lag[0] = found

        def on_skipped_offsets(missing: Sequence[LostOffsets]) -> None:
            if gone := read_elsewhere(missing, self._newest(self.chain).sources):
                raise IncompatibleStateError(
                    "the stream has read records that its topics no longer have, so the rebuilt one would lack them, "
                    "and it has not taken over. Begin a stream under another name with what is there: "
                    f"fork(..., epoch=0). stream={self.job.asset}, partitions={'; '.join(map(str, gone))}"
                )

        return JobHooks(
            on_commit=on_commit,
            stop_reason=self.hooks.stop_reason,
            on_idle=self.hooks.on_idle,
            on_lag=on_lag,
            on_skipped=on_skipped_offsets,
        )

    def _rest(self, for_ms: int) -> None:
        """Leave the time to others, unless something asks to stop."""
        end_ms = self.clock.monotonic_ms() + for_ms
        while (left_ms := end_ms - self.clock.monotonic_ms()) > 0 and self.hooks.stop_reason() is None:
            self.clock.sleep_ms(min(left_ms, _LOOK_MS))
            self.hooks.on_idle()

    def _end_the_writer(self) -> None:
        """Ask the live writer to end at its next epoch, and wait until it has; one that has died has ended too."""
        draining = drain(self.chain, self.job.asset, WriterWatch(self.chain, lambda: self._newest(self.chain)))
        if draining is None:
            return
        try:
            draining.wait(self._look)
        except CheckpointError as error:
            _LOG.warning("the live writer did not end as it was asked to. stream=%s, reason=%s", self.job.asset, error)

    def _look(self, _: WriterInfo) -> None:
        self.hooks.on_idle()
        if self.hooks.stop_reason() is not None:
            raise _StoppedError

    def _newest(self, chain: ManifestChain) -> Manifest:
        newest = chain.newest()
        assert newest is not None, "it was there when the rebuild began"
        return newest
