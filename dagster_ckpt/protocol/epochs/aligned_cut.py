"""Which epochs of several streams belong together. Pure: `history.snapshot` reads the manifests requested here.

A *cut* is one epoch of each stream. It is aligned if each stream that reads another of them has consumed exactly the
chosen epoch of that one: then all tables are made of the same rows. There is a newest aligned cut: what a stream has
consumed never goes back along its lineage, so the later epochs of two aligned cuts, stream by stream, are an aligned
cut too. The search runs backwards: each stream begins at its newest epoch, and goes back only as far as every aligned
cut must.

Manifests are requested only where they matter; how far a stream must go back is found by binary search.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from dagster_ckpt.ids import Epoch, StreamUuid
from dagster_ckpt.protocol.epochs.upstream import FORMAT, UpstreamPosition, consumption_by_epoch
from dagster_ckpt.protocol.manifest.manifest import BackfillStatus, Consumed, Manifest


@dataclass(frozen=True, slots=True)
class KnownEpochs:
    """The relevant part of an epoch's manifest. `whole`: its table is not still being created.

    If several sources read one upstream, `consumed` has an entry for each epoch that one of them is at. Where these
    differ, no epoch of the upstream matches.
    """

    consumed: tuple[Consumed, ...] = ()
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Line:
    """One stream: the epochs to choose from, oldest first, and what is known of those that were read (`seen`).

    `reads`: it has upstreams, in the cut or not. The manifests of a stream without any are never read.
    """

    uuid: StreamUuid
    epochs: tuple[Epoch, ...]
    reads: bool = False
    seen: Mapping[Epoch, KnownEpochs] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cut:
    """The chosen epoch of each stream."""

    epochs: Mapping[str, Epoch]


@dataclass(frozen=True, slots=True)
class Unseen:
    """The manifest of this epoch must be read to go on."""

    stream: str
    epoch: Epoch


class NoCutReason(StrEnum):
    """Why there is no aligned cut."""

    RETIRED = "retired"
    """The upstream epoch that the stream has consumed is no longer kept, nor any older one."""
    AHEAD = "ahead"
    """All kept epochs of the stream have consumed more than others have, or than its upstream has now."""
    RECREATED = "recreated"
    """The stream has consumed another stream of the same name."""
    DIVERGED = "diverged"
    """The stream has consumed an epoch that its upstream, which was restored from a backup, does not have."""
    CREATING = "creating"
    """The epoch that would match is from the time when the stream's table was still being created."""


@dataclass(frozen=True, slots=True)
class NoCut:
    """There is none, because `epoch` of `stream` has consumed `consumed` of `upstream`, or was still being created.

    `kept` is the upstream's epoch that could be chosen: for AHEAD the newest, for RETIRED the oldest. `lagging` is
    another stream that rules out newer ones.
    """

    reason: NoCutReason
    stream: str
    epoch: Epoch
    upstream: str | None = None
    consumed: Epoch | None = None
    kept: Epoch | None = None
    lagging: str | None = None


def known_epochs(manifest: Manifest, *, creating: bool = False) -> KnownEpochs:
    """The relevant part of a manifest. `creating`: accept a table that is still being created."""
    return KnownEpochs(consumption_by_epoch(manifest.sources), creating or not is_creating(manifest))


def upstream_names(manifest: Manifest) -> frozenset[str]:
    """The names of the streams that its stream reads."""
    sources = (source for entry in manifest.pipeline.source_inputs for source in entry.sources)
    return frozenset(source.address for source in sources if source.format == FORMAT)


def is_creating(manifest: Manifest) -> bool:
    """Whether its table is still being created from a snapshot of an upstream, or that has not begun.

    It begins with the first batch, which has a position in each upstream. An epoch without a batch may come before.
    """
    begun = upstream_names(manifest) <= {each.stream for each in manifest.consumed}
    return manifest.backfill.status is BackfillStatus.CREATING or not begun


def divergence(manifests: Mapping[str, Manifest]) -> NoCut | None:
    """The first manifest of a cut, by stream, that has consumed another epoch of the same number; None: none.

    All later epochs of that stream have too, since what an epoch has consumed is in what follows it.
    """
    for name, manifest in manifests.items():
        for consumed in consumption_by_epoch(manifest.sources):
            upstream = manifests.get(consumed.stream)
            at = UpstreamPosition.from_consumed(consumed)
            if upstream is not None and at.epoch == upstream.epoch and not at.is_at(upstream):
                return NoCut(
                    NoCutReason.DIVERGED, name, manifest.epoch, consumed.stream, consumed.epoch, upstream.epoch
                )
    return None


def newest_cut(lines: Mapping[str, Line]) -> Cut | Unseen | NoCut:
    """The newest aligned cut, why there is none, or which manifest to read first. Each line has at least one epoch.

    Call it again with each `Unseen` manifest added, until it returns another result.
    """
    at = {name: len(line.epochs) - 1 for name, line in lines.items()}
    lagging: dict[str, str] = {}  # by upstream, the stream that made it go back
    creating: NoCut | None = None  # the newest epoch that would match, but is still being created
    while True:
        before = dict(at)
        for name, line in lines.items():
            answer = _agreed(name, lines, at, lagging) if line.reads else None
            if isinstance(answer, NoCut) and answer.reason is NoCutReason.CREATING:
                creating = creating or answer
                if at[name] > 0:
                    at[name] -= 1
                    continue
            if isinstance(answer, NoCut):
                return creating or answer
            if answer is not None:
                return answer
        if at == before:
            return Cut({name: lines[name].epochs[index] for name, index in at.items()})


def _agreed(name: str, lines: Mapping[str, Line], at: dict[str, int], lagging: dict[str, str]) -> Unseen | NoCut | None:
    """Align a stream with its upstreams: take it or them back, once. None if they agree, or may after that."""
    epoch = lines[name].epochs[at[name]]
    seen = lines[name].seen.get(epoch)
    if seen is None:
        return Unseen(name, epoch)
    if not seen.whole:
        causes = (lagging[each] for each in (name, *(one.stream for one in seen.consumed)) if each in lagging)
        return NoCut(NoCutReason.CREATING, name, epoch, lagging=next(causes, None))
    for consumed in seen.consumed:
        if consumed.stream in lines:
            answer = _move(name, consumed, lines, at, lagging)
            if answer is not None or lines[name].epochs[at[name]] != epoch:
                return answer
    return None


def _move(
    name: str, consumed: Consumed, lines: Mapping[str, Line], at: dict[str, int], lagging: dict[str, str]
) -> Unseen | NoCut | None:
    """Take the upstream back to what was consumed of it, or the downstream to an epoch that consumed no more."""
    line, upstream = lines[name], lines[consumed.stream]
    epoch, limit = line.epochs[at[name]], upstream.epochs[at[consumed.stream]]
    if consumed.uuid != upstream.uuid:
        return NoCut(NoCutReason.RECREATED, name, epoch, consumed.stream, consumed.epoch)
    if consumed.epoch < limit:
        back = sum(candidate <= consumed.epoch for candidate in upstream.epochs) - 1
        if back < 0:
            return NoCut(NoCutReason.RETIRED, name, epoch, consumed.stream, consumed.epoch, upstream.epochs[0])
        at[consumed.stream], lagging[consumed.stream] = back, name
    elif consumed.epoch > limit:
        fits, over = _bounds(line, at[name], consumed.stream, limit)
        if over - fits > 1:
            return Unseen(name, line.epochs[(fits + over) // 2])
        if fits < 0:
            oldest = line.epochs[0]
            needed = max(each.epoch for each in line.seen[oldest].consumed if each.stream == consumed.stream)
            cause = lagging.get(consumed.stream)
            cause = None if cause == name else cause
            return NoCut(NoCutReason.AHEAD, name, oldest, consumed.stream, needed, limit, cause)
        at[name] = fits
    return None


def _bounds(line: Line, at: int, upstream: str, limit: Epoch) -> tuple[int, int]:
    """The last epoch read up to `at` that has consumed no more than `limit`, and the next, which has.

    The first is -1 if all have consumed more.
    """
    fits = -1
    for index, epoch in enumerate(line.epochs[: at + 1]):
        seen = line.seen.get(epoch)
        if seen is None:
            continue
        if any(each.stream == upstream and each.epoch > limit for each in seen.consumed):
            return fits, index
        fits = index
    return fits, at
