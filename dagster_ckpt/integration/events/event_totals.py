"""What the events of a stream add up to: each has running totals, and their difference to those of the event before.

The event before is the newest that Dagster has stored, whatever Dagster run logged it. So the sum over all events is
the total of the newest one: a crash between a commit and its event is made up for by the next event, and an event whose
storing was not confirmed is not repeated. A rollback takes totals back: the next difference may be negative.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field, replace
from typing import Self

import dagster as dg

from dagster_ckpt.ids import EMPTY, Epoch, Nonce, StreamUuid
from dagster_ckpt.protocol.epochs.upstream import UpstreamPosition
from dagster_ckpt.protocol.manifest.manifest import Manifest, StepWork
from dagster_ckpt.runtime.micro_batch.epoch_driver import CommittedEpoch

EPOCH_NONCE = "epoch_nonce"
"""The label of the nonce of an event's epoch."""

_EVENTS_MAX = 100
"""How many events are searched for the newest with totals: people can report events without them."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Since the stream began, or the difference of two such totals. The names are labels of events."""

    rows_in: int = 0
    rows_out: int = 0
    late_rows: int = 0
    epochs: int = 0

    @classmethod
    def of(cls, manifest: Manifest) -> Self:
        """The stream's totals at the manifest's epoch."""
        counts = manifest.statistics
        return cls(counts.total_rows_in, counts.total_rows_out, counts.total_late_rows, counts.total_epochs)

    def since(self, before: "Totals") -> "Totals":
        """What these totals have more than those."""
        return Totals(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))

    @property
    def rows(self) -> tuple[int, int, int]:
        """The totals of rows alone."""
        return self.rows_in, self.rows_out, self.late_rows

    def labels(self) -> dict[str, int]:
        """The totals by their labels."""
        return {f"{name}_total": number for name, number in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class Reported:
    """What Dagster's events have reported of a stream: the epoch of the newest one, and its totals.

    `nonce` is the epoch's (`Manifest.epoch_nonce`), None for epoch 0.
    """

    epoch: Epoch
    totals: Totals
    nonce: Nonce | None = None

    @classmethod
    def of(cls, manifest: Manifest) -> Self:
        """What is reported after an event of the manifest's epoch."""
        return cls(manifest.epoch, Totals.of(manifest), manifest.epoch_nonce)

    def position(self, stream: StreamUuid) -> UpstreamPosition:
        """The epoch as a position in the stream of that UUID."""
        return UpstreamPosition(stream, self.epoch, nonce=self.nonce)

    def has(self, manifest: Manifest) -> bool:
        """Whether the manifest's epoch was reported last. A restored stream has another epoch of the same number."""
        return self.position(manifest.uuid).is_at(manifest) and self.totals == Totals.of(manifest)


NO_TOTALS = Totals()
NOTHING = Reported(EMPTY, NO_TOTALS)


def read_totals(instance: dg.DagsterInstance, key: dg.AssetKey) -> Reported:
    """What Dagster has stored of this stream."""
    # Not `get_latest_materialization_event`: PostgreSQL stores an event, and in another transaction which one is the
    # asset's latest. After a crash between the two the next event would count again what the stored one has counted.
    newest = instance.fetch_materializations(key, limit=1).records
    if not newest:
        return NOTHING
    found = _read(newest[0].asset_materialization)
    if found is not None:
        return found
    events = [each.asset_materialization for each in instance.fetch_materializations(key, limit=_EVENTS_MAX).records]
    return next((found for event in events if (found := _read(event)) is not None), NOTHING)


def _read(event: dg.AssetMaterialization | None) -> Reported | None:
    metadata = {} if event is None else event.metadata
    labels = ("epoch", *Totals().labels())
    numbers = [value for label in labels if label in metadata and type(value := metadata[label].value) is int]
    if len(numbers) != len(labels):
        return None
    nonce = metadata[EPOCH_NONCE].value if EPOCH_NONCE in metadata else None
    return Reported(Epoch(numbers[0]), Totals(*numbers[1:]), Nonce(nonce) if isinstance(nonce, str) else None)


@dataclass(frozen=True, slots=True)
class CommittedWork:
    """How the epochs went that a step has committed since its last event.

    `slowest_ms` is the time of the slowest epoch until its commit, `commit_ms` that of the slowest commit, `all_ms` the
    time of all epochs together. `counters` are those of the last step's operator; `steps` has the rows of each of
    several steps, and its time in the epoch in which it was slowest.
    """

    rows_in: int = 0
    slowest_ms: int = 0
    commit_ms: int = 0
    all_ms: int = 0
    merged_rows: int = 0
    stall_ms: int = 0
    counters: Mapping[str, int] = field(default_factory=dict)
    steps: tuple[StepWork, ...] = ()

    def plus(self, committed: CommittedEpoch) -> "CommittedWork":
        """With one more epoch."""
        did = committed.manifest.statistics
        return replace(
            self,
            rows_in=self.rows_in + did.rows_in,
            slowest_ms=max(self.slowest_ms, did.epoch_ms),
            commit_ms=max(self.commit_ms, committed.commit_ms),
            all_ms=self.all_ms + committed.epoch_ms,
            merged_rows=self.merged_rows + did.merged_rows,
            stall_ms=self.stall_ms + did.stall_ms,
            counters=Counter(self.counters) + Counter(committed.counters),
            steps=tuple(map(_both, self.steps, committed.manifest.steps)) if self.steps else committed.manifest.steps,
        )

    @property
    def rows_per_second(self) -> float:
        """Rows of input for each second that an epoch was in work."""
        return self.rows_in * 1000 / max(1, self.all_ms)


def _both(one: StepWork, other: StepWork) -> StepWork:
    return StepWork(
        one.rows_in + other.rows_in,
        one.rows_out + other.rows_out,
        one.late_rows + other.late_rows,
        max(one.milliseconds, other.milliseconds),
    )


NO_WORK = CommittedWork()
