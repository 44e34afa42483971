"""The heartbeat of a Dagster run that has started and not opened its stream yet: Spark may take minutes to start.

Without it the sensor could not distinguish a killed run from a slow one, and would wait three minutes for either.
It is advice, as every lease is, and all runs of the stream share one object: the last to start overwrites it. So the
sensor trusts it only for the run that it names. The crashes in between:

    killed before the first beat                     the sensor waits for 3 minutes, as without a heartbeat
    killed between two beats                         the process is known to be gone, or the beat lapses
    killed after the opening, before the last beat   the lease of the new term, or else this one, lapses
    hung before the opening                          it beats for `STARTING_MS_MAX`, then lapses
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import IncompatibleStateError, InvalidPipelineError
from dagster_ckpt.ids import EMPTY
from dagster_ckpt.integration.recovery.decision import STARTING_MS_MAX
from dagster_ckpt.protocol.lease import Lease, LeaseHolder, refusal
from dagster_ckpt.protocol.object_names import MANIFESTS
from dagster_ckpt.storage.leases.heartbeat import NOT_OPEN, LeaseHeartbeat, Pulse
from dagster_ckpt.storage.stores.object_store import ObjectStore


@dataclass(frozen=True)
class StartHeartbeat:
    """`end` ends it, once the stream is open. `pulse` takes signs of work before that.

    Without any, the run may take `STARTING_MS_MAX`.
    """

    pulse: Pulse
    end: Callable[[], None]


@contextmanager
def beating_until_open(
    folder: ObjectStore, holder: LeaseHolder, lease_timeout_ms: int, clock: Clock
) -> Iterator[StartHeartbeat]:
    """Beat until the yielded heartbeat is ended, or the block ends. Never raises if the store fails.

    A stream that does not exist yet gets no heartbeat: a run that is refused must leave nothing behind. Elsewhere the
    last beat says why it was refused, until another run starts.
    """
    pulse = Pulse(clock, STARTING_MS_MAX)
    beat = LeaseHeartbeat(folder, Lease(NOT_OPEN, holder, lease_timeout_ms, EMPTY), clock, pulse)
    if not _is_there(folder):
        yield StartHeartbeat(pulse, lambda: None)
        return
    try:
        beat.begin()
        yield StartHeartbeat(pulse, lambda: beat.end("opened"))
    except (InvalidPipelineError, IncompatibleStateError) as error:
        beat.end(refusal(str(error)))
        raise
    finally:
        beat.end("not opened")


def _is_there(folder: ObjectStore) -> bool:
    try:
        return next(iter(folder.list(MANIFESTS)), None) is not None
    except Exception:  # noqa: BLE001  (opening meets the same, and reports it better)
        return False
