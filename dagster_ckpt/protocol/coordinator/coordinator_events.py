"""The events that the coordinator of epochs handles, and the effects that it requests."""

from dataclasses import dataclass
from enum import StrEnum

from dagster_ckpt.ids import Epoch, Shard
from dagster_ckpt.protocol.ack import ShardAck


class FailureKind(StrEnum):
    """Why an epoch was given up."""

    DECLINED = "declined"
    TIMED_OUT = "timed out"
    ABORTED = "aborted"
    NOT_COMMITTED = "not committed"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an epoch was given up, and by which shards on which hosts (empty where unknown)."""

    kind: FailureKind
    reason: str
    shards: tuple[Shard, ...] = ()
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reset:
    """A new term begins, in which these shards take part. Work of an older term is fenced."""

    shards: frozenset[Shard]


@dataclass(frozen=True, slots=True)
class TryFailed:
    """The query that hands over micro-batches has failed, in an epoch or between two."""

    reason: str


@dataclass(frozen=True, slots=True)
class Begin:
    """A barrier was reached: begin this epoch."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class BeginWithoutWork:
    """Begin an epoch that no task works for: it moves positions or the watermark alone."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class ShardAcked:
    """A shard's part is durable."""

    epoch: Epoch
    ack: ShardAck


@dataclass(frozen=True, slots=True)
class ShardDeclined:
    """A shard's part cannot be made. `shard` is None where only the failure of the whole job is known."""

    epoch: Epoch
    shard: Shard | None
    host: str
    reason: str


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The epoch took longer than it may. `hosts` are those still silent, where Spark knows them.

    `shards` are those at work there: none where no shard's work had begun, and then every shard was kept waiting.
    """

    epoch: Epoch
    hosts: tuple[str, ...] = ()
    shards: tuple[Shard, ...] = ()


@dataclass(frozen=True, slots=True)
class Aborted:
    """The epoch is no longer wanted: the Dagster run ends."""

    epoch: Epoch
    reason: str


@dataclass(frozen=True, slots=True)
class JobEnded:
    """Every task has ended, and all their replies were delivered."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Committed:
    """The manifest exists and is durable."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class CommitFailed:
    """The manifest does not exist, or that is unknown: the writer has ended and must open the stream again."""

    epoch: Epoch
    reason: str


EpochEvent = ShardAcked | ShardDeclined | TimedOut | Aborted | JobEnded | Committed | CommitFailed
"""An event of one epoch that was begun."""

Event = Reset | TryFailed | Begin | BeginWithoutWork | EpochEvent


@dataclass(frozen=True, slots=True)
class StartWork:
    """Start the work of every shard."""

    epoch: Epoch
    shards: frozenset[Shard]


@dataclass(frozen=True, slots=True)
class CommitManifest:
    """Create the manifest from these ACKs, one for each shard, in order."""

    epoch: Epoch
    acks: tuple[ShardAck, ...]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Cancel what still runs of the epoch. `failures_in_a_row` counts this one."""

    epoch: Epoch
    failure: Failure
    failures_in_a_row: int


Effect = StartWork | CommitManifest | GiveUp
