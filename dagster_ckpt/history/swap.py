"""One stream takes the place of another in the store: the last step of a rebuild. No Spark, no Dagster.

The stream that was built beside keeps its files, as an origin keeps those of a fork, by a pin in its folder. The order

    its pin             validated like that of a fork: from here on its files stay
    the change log      what differs between the two tables, written below the stream's folder for the next version
    the swap            the one create that does it all

A crash before the swap leaves the stream as it was, a pin, and files that the stream's collector removes once another
writer has opened it; the next try begins again. The swap names its parent: if the stream has gone on meanwhile, the
create fails, and all is done again after what is newest then.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import CheckpointError, FencedError, InvalidPipelineError
from dagster_ckpt.ids import EMPTY, Epoch, Nonce, Shard, Term
from dagster_ckpt.protocol.epochs.pin import ForkId
from dagster_ckpt.protocol.manifest.codec import FILE_SEEN, FILES_SEEN
from dagster_ckpt.protocol.manifest.manifest import BackfillStatus, ChangeRef, Manifest, Pipeline, SourcePosition
from dagster_ckpt.protocol.object_names import FileId, pin_name, swap_pin_name
from dagster_ckpt.protocol.transitions.edits import Stamp
from dagster_ckpt.protocol.transitions.manifest_rules import check_successor
from dagster_ckpt.protocol.transitions.renamed_columns import names_in_files
from dagster_ckpt.protocol.transitions.source_moves import Moves, positions_gone_on
from dagster_ckpt.protocol.transitions.swap import Swap, cannot_take_over, files_in, lagging_sources, swap_manifest
from dagster_ckpt.state.committed import change_log
from dagster_ckpt.storage.chain.indexed_lists import IndexedLists
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.operations.manual_opening import close_by_hand
from dagster_ckpt.storage.retention_refs.ancestors import with_ancestors
from dagster_ckpt.storage.retention_refs.pins import forks_pinned, pin_as_shown
from dagster_ckpt.storage.stores.folder import stream_folder
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.stores.probe import prove_atomic_create
from dagster_ckpt.storage.stores.retry import retrying
from dagster_ckpt.storage.writer.opening import Opening, await_its_end
from dagster_ckpt.tables.table_difference import TableSide, table_difference

_log = logging.getLogger(__name__)

_TRIES_MAX = 5
_ATTEMPT_DIGITS = 12
"""How many digits the unique number of a try has in the names of its files."""


class NotCaughtUpError(CheckpointError):
    """The stream has read more of a source than the one that is to take its place."""


def check_can_take_over(newest: Manifest, rebuilt: Pipeline) -> None:
    """Raise `InvalidPipelineError` if a table of the new pipeline can never take the place of the stream's."""
    if reasons := cannot_take_over(newest.pipeline, rebuilt):
        raise InvalidPipelineError(
            f"what was built beside the stream cannot take its place: {'; '.join(reasons)}. Begin a stream "
            f"under another name with it: fork(..., epoch=0). stream={newest.stream!r}"
        )


def swap(root: ObjectStore, chain: ManifestChain, beside: ManifestChain, opening: Opening) -> Manifest:
    """Let the stream of `beside` take the place of that of `chain`, in one epoch. Returns the manifest that does.

    `root` is the store that holds both. `opening` says who asks, and for how long it waits for a live writer. Done once
    for each root run. Raises `NotCaughtUpError`, `InvalidPipelineError` (`check_can_take_over`), `FencedError` while a
    writer lives, `StoreUnavailableError`: then call it again.
    """
    prove_atomic_create(chain.store, chain.clock)
    for _ in range(_TRIES_MAX):
        newest, rebuilt = _newest(chain), _newest(beside)
        if opening.root_run in newest.rollbacks:
            return newest
        await_its_end(chain, newest, opening)
        if not chain.is_newest(newest):
            continue
        check_can_take_over(newest, rebuilt.pipeline)
        check_caught_up(root, chain.clock, newest, rebuilt, opening.moves)
        _keep(beside, rebuilt, ForkId(newest.stream, newest.uuid))
        changes = _change_log(root, chain, newest, rebuilt)
        asked = Swap(opening.owner, opening.root_run, opening.retained)
        stamp = Stamp(Nonce(chain.clock.unique()), chain.clock.now_ms())
        successor = swap_manifest(newest, rebuilt, changes, asked, stamp)
        check_successor(newest, successor)
        chain.settle()
        try:
            chain.create(newest, successor)
        except FencedError:
            continue  # the stream has gone on
        close_by_hand(chain, successor, f"swapped with {rebuilt.stream}")
        _let_go_of_earlier_tries(beside, successor)
        return successor
    raise FencedError(f"the stream goes on, so nothing could take its place: stop it. stream={opening.stream}")


def _newest(chain: ManifestChain) -> Manifest:
    newest = chain.newest()
    if newest is None:
        raise InvalidPipelineError(f"there is no such stream. folder={chain.store.url}")
    return newest


def check_caught_up(root: ObjectStore, clock: Clock, newest: Manifest, rebuilt: Manifest, moves: Moves) -> None:
    """Raise `NotCaughtUpError` if the stream, as `newest` shows it, has read more than `rebuilt`.

    After a pass over all that the sources had, they no longer have what is missing.
    """
    unread = dict(_unread(root, clock, newest, rebuilt, moves))
    late = [_files_missing(address, files) for address, files in unread.items()]
    late += [
        each.address or each.format for each in lagging_sources(newest, rebuilt, moves) if each.address not in unread
    ]
    if rebuilt.backfill.status is BackfillStatus.CREATING or rebuilt.epoch == EMPTY:
        late.append("all")
    if late:
        raise NotCaughtUpError(
            f"what was built beside the stream has not read all that the stream has: let it go on, or restore what the "
            f"source no longer has. stream={newest.stream!r}, sources={late}"
        )


def _unread(
    root: ObjectStore, clock: Clock, newest: Manifest, rebuilt: Manifest, moves: Moves
) -> Iterator[tuple[str, set[str]]]:
    """The sources with files that the stream has read and the other one has not.

    Where files were moved, each list has the addresses of its time: then the files' own names, which stay, have to do.
    """
    mine = {position.source: position for position in rebuilt.sources}
    for known in positions_gone_on(newest.sources, rebuilt.pipeline, moves):
        position = mine.get(known.source)
        if position is None or not files_in(known):
            continue
        read, files = _files(root, clock, rebuilt, position), _files(root, clock, newest, known)
        if known.moved or position.moved:
            unread = set(_names(files) - _names(read))
        else:
            # A file may have been replaced since the one beside has read it.
            unread = {path for path, modified_ms in files.items() if path not in read or read[path] < modified_ms}
        if unread:
            yield known.source.address, unread


def _names(files: Iterable[str]) -> Counter[str]:
    return Counter(path.rpartition("/")[2] for path in files)


def _files_missing(address: str, unread: set[str]) -> str:
    return f"{address} ({len(unread)} files, the first is {min(unread)})"


def _files(root: ObjectStore, clock: Clock, manifest: Manifest, position: SourcePosition) -> dict[str, int]:
    """The files that a source has seen, each with its newest time."""
    lists = IndexedLists(_folder(root, manifest), FILES_SEEN, clock)
    seen: dict[str, int] = {}
    for columns in lists.columns(position.files, FILE_SEEN):
        for path, modified_ms in zip(columns["path"], columns["modified_ms"], strict=True):
            seen[path] = max(modified_ms, seen.get(path, modified_ms))
    return seen


def _folder(root: ObjectStore, manifest: Manifest) -> ObjectStore:
    """All files that a manifest names."""
    return with_ancestors(stream_folder(root, manifest.stream), root, manifest.ancestors)


def _keep(beside: ManifestChain, rebuilt: Manifest, fork: ForkId) -> None:
    """Pin the epoch that takes over, for the stream that will name its files."""
    pin_as_shown(beside, swap_pin_name(fork.uuid, rebuilt.epoch), rebuilt, fork)


def _change_log(root: ObjectStore, chain: ManifestChain, newest: Manifest, rebuilt: Manifest) -> tuple[ChangeRef, ...]:
    """Write what differs between the two tables. No other term and no other try uses the same names."""
    version, attempt = newest.version + 1, int(chain.clock.unique()[:_ATTEMPT_DIGITS], 16)
    sides = [TableSide(_folder(root, manifest), manifest) for manifest in (newest, rebuilt)]
    names = names_in_files(rebuilt.pipeline)
    written = []
    for number, changes in enumerate(table_difference(chain.clock, *sides)):
        shard = Shard(number % rebuilt.shards)
        file = FileId(Term(version), Epoch(version), shard, attempt, number)
        store = retrying(chain.store, chain.clock, chain.patience)
        written.append(change_log.write(store, file, changes, names))
    return tuple(ref for ref in written if ref is not None)


def _let_go_of_earlier_tries(beside: ManifestChain, successor: Manifest) -> None:
    """Remove the pins of tries that did not come to a swap: none of them will."""
    kept = successor.ancestors[-1].pin_of(successor.uuid)
    try:
        for name, fork in forks_pinned(beside):
            if fork.uuid == successor.uuid and name != pin_name(kept):
                beside.span().delete(name)
    except CheckpointError as error:  # the swap is done
        _log.warning("pins of earlier tries were not removed. stream=%s, reason=%s", successor.stream, error)
