"""Which epochs of several streams belong together. Pure: `history.snapshot` reads what is asked for here.

A *cut* is one epoch of each stream. It is aligned where each stream that reads another of them has consumed exactly
the chosen epoch of that one: then all tables are made of the same rows. Of aligned cuts there is a newest. What a
stream has consumed never goes back along its lineage, so of two aligned cuts the later epochs of each stream are an
aligned cut too. It is found from above: each stream begins at its newest epoch, and goes back only as far as any
aligned cut below must.

Manifests are asked for only where they count; of how far a stream must go back, half of what is left is found by each.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from dagster_ckpt.ids import Epoch, StreamUuid
from dagster_ckpt.protocol.epochs.upstream import FORMAT, consumed_in_each_way
from dagster_ckpt.protocol.manifest.manifest import BackfillStatus, Consumed, Manifest


@dataclass(frozen=True, slots=True)
class KnownEpochs:
    """What an epoch's manifest says. `whole`: its table is not one that is still being created.

    An upstream that is read in several ways is in `consumed` once for each epoch that one of them is at: an epoch where
    they are not all at the same fits none of the upstream's.
    """

    consumed: tuple[Consumed, ...] = ()
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Line:
    """One stream: the epochs that may be chosen, oldest first; of those that were looked at, what their manifests say.

    `reads`: it has upstreams, in the cut or not. Of a stream that has none nothing need be looked at.
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
    """The manifest of this epoch must be looked at before more can be said."""

    stream: str
    epoch: Epoch


class Reason(StrEnum):
    """Why there is no aligned cut."""

    RETIRED = "retired"
    """What the stream has consumed of its upstream is no longer kept, nor anything older."""
    AHEAD = "ahead"
    """All epochs that are kept of the stream have consumed more than others have, or than its upstream has now."""
    MADE_ANEW = "made anew"
    """What the stream has consumed was another one of its upstream's name."""
    CREATING = "creating"
    """The epoch that would fit is of a time when the stream's table was still being created."""


@dataclass(frozen=True, slots=True)
class NoCut:
    """There is none, because `epoch` of `stream` has consumed `consumed` of `upstream`, or was still being created.

    `kept` is the upstream's epoch that could be chosen: for AHEAD the newest, for RETIRED the oldest. `behind` is
    another stream, for whose sake no newer one can be.
    """

    reason: Reason
    stream: str
    epoch: Epoch
    upstream: str | None = None
    consumed: Epoch | None = None
    kept: Epoch | None = None
    behind: str | None = None


def seen_of(manifest: Manifest, *, creating: bool = False) -> KnownEpochs:
    """What counts of a manifest. `creating`: a table that is still being created will do."""
    return KnownEpochs(consumed_in_each_way(manifest.sources), creating or not is_creating(manifest))


def upstreams_of(manifest: Manifest) -> frozenset[str]:
    """The names of the streams that its stream reads."""
    sources = (source for entry in manifest.pipeline.inputs for source in entry.sources)
    return frozenset(source.address for source in sources if source.format == FORMAT)


def is_creating(manifest: Manifest) -> bool:
    """Whether the table that it shows is still being created from a snapshot of an upstream, or that has not begun.

    It begins with the first batch, which has a position in each upstream: an epoch of the driver's own may come before.
    """
    begun = upstreams_of(manifest) <= {each.stream for each in manifest.consumed}
    return manifest.backfill.status is BackfillStatus.CREATING or not begun


def newest_cut(lines: Mapping[str, Line]) -> Cut | Unseen | NoCut:
    """The newest aligned cut, why there is none, or what must be looked at first. Each line has an epoch at least.

    Ask again with what was `Unseen`, until there is an answer.
    """
    at = {name: len(line.epochs) - 1 for name, line in lines.items()}
    behind: dict[str, str] = {}  # by upstream, for whose sake it went back
    creating: NoCut | None = None  # the newest epoch that would fit, but for that
    while True:
        before = dict(at)
        for name, line in lines.items():
            answer = _agreed(name, lines, at, behind) if line.reads else None
            if isinstance(answer, NoCut) and answer.reason is Reason.CREATING:
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


def _agreed(name: str, lines: Mapping[str, Line], at: dict[str, int], behind: dict[str, str]) -> Unseen | NoCut | None:
    """Let a stream agree with its upstreams: take it or them back, once; None where it does then, or may."""
    epoch = lines[name].epochs[at[name]]
    seen = lines[name].seen.get(epoch)
    if seen is None:
        return Unseen(name, epoch)
    if not seen.whole:
        causes = (behind[each] for each in (name, *(one.stream for one in seen.consumed)) if each in behind)
        return NoCut(Reason.CREATING, name, epoch, behind=next(causes, None))
    for consumed in seen.consumed:
        if consumed.stream in lines:
            answer = _moved(name, consumed, lines, at, behind)
            if answer is not None or lines[name].epochs[at[name]] != epoch:
                return answer
    return None


def _moved(
    name: str, consumed: Consumed, lines: Mapping[str, Line], at: dict[str, int], behind: dict[str, str]
) -> Unseen | NoCut | None:
    """Take the upstream back to what was consumed of it, or the downstream to where it had consumed no more."""
    line, upstream = lines[name], lines[consumed.stream]
    epoch, limit = line.epochs[at[name]], upstream.epochs[at[consumed.stream]]
    if consumed.uuid != upstream.uuid:
        return NoCut(Reason.MADE_ANEW, name, epoch, consumed.stream, consumed.epoch)
    if consumed.epoch < limit:
        back = sum(candidate <= consumed.epoch for candidate in upstream.epochs) - 1
        if back < 0:
            return NoCut(Reason.RETIRED, name, epoch, consumed.stream, consumed.epoch, upstream.epochs[0])
        at[consumed.stream], behind[consumed.stream] = back, name
    elif consumed.epoch > limit:
        fits, over = _bounds(line, at[name], consumed.stream, limit)
        if over - fits > 1:
            return Unseen(name, line.epochs[(fits + over) // 2])
        if fits < 0:
            oldest = line.epochs[0]
            needed = max(each.epoch for each in line.seen[oldest].consumed if each.stream == consumed.stream)
            cause = behind.get(consumed.stream)
            cause = None if cause == name else cause
            return NoCut(Reason.AHEAD, name, oldest, consumed.stream, needed, limit, cause)
        at[name] = fits
    return None


def _bounds(line: Line, at: int, upstream: str, limit: Epoch) -> tuple[int, int]:
    """Of the epochs up to `at` that were looked at, the last that has consumed up to `limit`, and the next that more.

    -1 where all have consumed more.
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
