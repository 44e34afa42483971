"""Takes a snapshot of several streams: manifests are read until `protocol.epochs.aligned_cut` has an answer.

Streams go on meanwhile. What was read stays valid, because epochs never change. But an epoch that is not read yet may
be retired, and its manifest collected. Then the search starts over.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, TypeVar

from dagster_ckpt.errors import InvalidPipelineError, StoreUnavailableError
from dagster_ckpt.history.epoch_choice import choose, epochs_at
from dagster_ckpt.history.snapshot import Snapshot
from dagster_ckpt.history.stream_history import StreamHistory
from dagster_ckpt.ids import EMPTY, Epoch
from dagster_ckpt.protocol.epochs.aligned_cut import (
    Cut,
    Line,
    NoCut,
    NoCutReason,
    Unseen,
    divergence,
    is_creating,
    known_epochs,
    newest_cut,
    upstream_names,
)
from dagster_ckpt.protocol.epochs.lineage import is_abandoned, lineage
from dagster_ckpt.protocol.manifest.manifest import Manifest, Retained

Consistency = Literal["latest", "aligned"] | Mapping[str, int]
T = TypeVar("T")

_TRIES_MAX = 5
_AT_ONCE_MAX = 16


class _MovedOnError(Exception):
    """An epoch was retired, and its manifest collected, while it was looked for."""


@dataclass(frozen=True, slots=True)
class Choosing:
    """What a snapshot is to be: see `CheckpointStore.snapshot`."""

    consistency: Consistency = "latest"
    as_of: datetime | str | None = None
    include_creating: bool = False


def take_snapshot(streams: Mapping[str, StreamHistory], choosing: Choosing) -> Snapshot:
    """The snapshot, from what was in the store at some moment while this ran."""
    if isinstance(choosing.consistency, Mapping):
        return _at(streams, choosing.consistency, choosing.as_of)
    if choosing.consistency not in ("latest", "aligned"):
        raise InvalidPipelineError(
            f"a consistency is 'latest', 'aligned', or the epoch of each stream. consistency={choosing.consistency!r}"
        )
    refused: tuple[NoCut, Mapping[str, Manifest]] | None = None
    for _ in range(_TRIES_MAX):
        newest = _each(streams, lambda stream: stream.manifest())
        if refused is not None and newest == refused[1]:
            break
        try:
            found = _choose(streams, newest, choosing)
        except _MovedOnError:
            continue
        if isinstance(found, Snapshot):
            return found
        # A stream may have consumed epochs that its upstream, read before it, has committed since: read again.
        refused = found, newest
    if refused is not None:
        raise InvalidPipelineError(_why(refused[0], list(streams)))
    raise StoreUnavailableError(
        f"epochs were retired faster than a snapshot could be taken: keep more of them with `retained`. "
        f"streams={list(streams)}"
    )


def _at(streams: Mapping[str, StreamHistory], epochs: Mapping[str, int], as_of: datetime | str | None) -> Snapshot:
    if epochs.keys() != streams.keys() or as_of is not None:
        raise InvalidPipelineError(
            f"give the epoch of each stream of the snapshot, and no time besides. streams={list(streams)}, "
            f"epochs={dict(epochs)}, as_of={as_of}"
        )
    return _snapshot(streams, _each(streams, lambda stream: stream.manifest(epochs[stream.name])), ())


def _choose(
    streams: Mapping[str, StreamHistory], newest: Mapping[str, Manifest], choosing: Choosing
) -> Snapshot | NoCut:
    candidates = {name: _candidates(each, choosing.as_of) for name, each in newest.items()}
    last = _each(streams, lambda stream: _manifest_of(stream, newest[stream.name], candidates[stream.name][-1]))
    left_out = () if choosing.include_creating else tuple(name for name, each in last.items() if is_creating(each))
    kept = {name: stream for name, stream in streams.items() if name not in left_out}
    shown = {name: manifest for name, manifest in last.items() if name in kept}
    if choosing.consistency == "aligned":
        candidates = {name: candidates[name] for name in kept}
        found = _CutSearch(kept, newest, shown, creating=choosing.include_creating).find_aligned(candidates)
        if isinstance(found, NoCut):
            return found
        shown = found
    return _snapshot(kept, shown, left_out)


def _candidates(newest: Manifest, as_of: datetime | str | None) -> list[Retained]:
    """The retained epochs that a stream's current one builds on, oldest first; there is always one."""
    if as_of is not None:
        return epochs_at(newest, as_of)
    return list(lineage(newest)) or [choose(newest)]


class _CutSearch:
    """The search for an aligned cut. `last` are the manifests of the candidates to begin with; none is read twice."""

    def __init__(
        self,
        streams: Mapping[str, StreamHistory],
        newest: Mapping[str, Manifest],
        last: Mapping[str, Manifest],
        *,
        creating: bool,
    ) -> None:
        self._streams = streams
        self._newest = newest
        self._creating = creating
        self._read = {(name, manifest.epoch): manifest for name, manifest in last.items()}

    def find_aligned(self, candidates: Mapping[str, list[Retained]]) -> dict[str, Manifest] | NoCut:
        """The manifests of the newest aligned cut, or why there is none."""
        found = self._of_one_history(candidates)
        # Pins are older than every retained epoch: a cut with them is never newer than one without.
        return self._of_one_history(self._with_pinned(candidates)) if isinstance(found, NoCut) else found

    def _of_one_history(self, candidates: Mapping[str, list[Retained]]) -> dict[str, Manifest] | NoCut:
        """The same of these candidates alone. A stream may have followed an upstream that was restored since."""
        while not isinstance(answer := self._search(candidates), NoCut):
            found = self._manifests(answer, candidates)
            diverged = divergence(found)
            if diverged is None:
                return found
            earlier = [entry for entry in candidates[diverged.stream] if entry.epoch < diverged.epoch]
            if not earlier:
                return diverged
            candidates = {**candidates, diverged.stream: earlier}
        return answer

    def _manifests(self, cut: Cut, candidates: Mapping[str, list[Retained]]) -> dict[str, Manifest]:
        return _each(self._streams, lambda stream: self._manifest(stream.name, cut.epochs[stream.name], candidates))

    def _search(self, candidates: Mapping[str, list[Retained]]) -> Cut | NoCut:
        lines = {name: self._line(name, entries) for name, entries in candidates.items()}
        while isinstance(answer := newest_cut(lines), Unseen):
            line = lines[answer.stream]
            manifest = self._manifest(answer.stream, answer.epoch, candidates)
            seen = {**line.seen, answer.epoch: known_epochs(manifest, creating=self._creating)}
            lines[answer.stream] = replace(line, seen=seen)
        return answer

    def _line(self, name: str, candidates: list[Retained]) -> Line:
        epochs = tuple(entry.epoch for entry in candidates)
        seen = {epoch: self._read[name, epoch] for epoch in epochs if (name, epoch) in self._read}
        return Line(
            self._newest[name].uuid,
            epochs,
            reads=bool(upstream_names(self._newest[name])),
            seen={epoch: known_epochs(manifest, creating=self._creating) for epoch, manifest in seen.items()},
        )

    def _with_pinned(self, candidates: Mapping[str, list[Retained]]) -> dict[str, list[Retained]]:
        """The candidates and the pinned epochs below them. A pin holds a copy of its manifest, which may be gone."""
        pinned = _each(self._streams, StreamHistory.pinned_manifests)
        more = dict(candidates)
        for name, manifests in pinned.items():
            oldest = candidates[name][0].epoch
            older = [each for each in manifests if EMPTY < each.epoch < oldest and _builds_on(self._newest[name], each)]
            self._read |= {(name, each.epoch): each for each in older}
            entries = {each.epoch: Retained(each.epoch, each.version, each.time_ms) for each in older}
            more[name] = [*(entries[epoch] for epoch in sorted(entries)), *candidates[name]]
        return more

    def _manifest(self, name: str, epoch: Epoch, candidates: Mapping[str, list[Retained]]) -> Manifest:
        if (name, epoch) not in self._read:
            entry = next(each for each in candidates[name] if each.epoch == epoch)
            self._read[name, epoch] = _manifest_of(self._streams[name], self._newest[name], entry)
        return self._read[name, epoch]


def _manifest_of(stream: StreamHistory, newest: Manifest, entry: Retained) -> Manifest:
    if entry.epoch == newest.epoch:
        return newest
    manifest = stream.find_version(entry.version)
    if manifest is None:
        raise _MovedOnError
    return manifest


def _builds_on(newest: Manifest, older: Manifest) -> bool:
    return newest.uuid == older.uuid and older.epoch <= newest.epoch and not is_abandoned(newest, older.epoch)


def _why(answer: NoCut, streams: list[str]) -> str:
    why, helps = _reason(answer)
    return (
        f"no epochs of these streams that are kept belong together. {why[:1].upper()}{why[1:]}: {helps}; or take the "
        f"latest epochs as they are, with consistency='latest'. streams={streams}, reason={answer.reason.value!r}"
    )


def _reason(answer: NoCut) -> tuple[str, str]:
    """Why there is no aligned cut, and how to get one."""
    stream, upstream, lagging = answer.stream, answer.upstream, answer.lagging
    reads = f"epoch {answer.epoch} of {stream} has consumed epoch {answer.consumed} of {upstream}"
    match answer.reason:
        case NoCutReason.RETIRED:
            return (
                f"{reads}, which is retired: {upstream} keeps none before {answer.kept}",
                f"run {stream} once more, and let {upstream} keep more epochs (`retained`) or pin some",
            )
        case NoCutReason.AHEAD if lagging is not None:
            return (
                f"{reads}, while {lagging} goes with epoch {answer.kept} of it, and {stream} keeps no older epoch",
                f"run {lagging} once more, and let {stream} keep more epochs (`retained`) or pin some",
            )
        case NoCutReason.AHEAD:
            return (
                f"{reads}, which a rollback left behind or a restore took away, and {stream} keeps no older epoch",
                f"roll {stream} back as well",
            )
        case NoCutReason.DIVERGED:
            return (
                f"{reads}, which {upstream} does not have since it was restored, and {stream} keeps no older epoch",
                f"run {stream}, and do what its error says",
            )
        case NoCutReason.RECREATED:
            return (
                f"{reads}, but {upstream} was removed and created again since",
                f"roll {stream} back to epoch 0 and run it",
            )
        case NoCutReason.CREATING:
            return (
                f"epoch {answer.epoch} of {stream}, which would fit, is of a time when its table was being created",
                f"run {lagging or 'the others'} once more, or take the snapshot with include_creating=True",
            )


def _snapshot(
    streams: Mapping[str, StreamHistory], shown: Mapping[str, Manifest], left_out: tuple[str, ...]
) -> Snapshot:
    return Snapshot({name: shown[name].epoch for name in streams}, left_out, dict(shown), dict(streams))


def _each(streams: Mapping[str, StreamHistory], work: Callable[[StreamHistory], T]) -> dict[str, T]:
    """What comes of each stream. In a far store all are asked at once; on a local disk threads cost more than that."""
    if len(streams) < 2 or not any(stream.is_far for stream in streams.values()):
        return {name: work(stream) for name, stream in streams.items()}
    with ThreadPoolExecutor(min(len(streams), _AT_ONCE_MAX)) as pool:
        return dict(zip(streams, pool.map(work, streams.values()), strict=True))
